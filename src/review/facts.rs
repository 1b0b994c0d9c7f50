//! Facts: the inputs of the selection of hooks: labels of the namespace and of the objects, and results of conditions.
//!
//! Some labels must be fetched first: those of a namespace from the apiserver, and those of large objects off the
//! worker's thread. [`resolve`](super::select::resolve), [`Facts::fetch_and_select`] and [`Facts::namespace_labels`]
//! fetch them. [`Facts::selects`] then evaluates selectors without waiting.

use std::{cell::OnceCell, ops::Range, sync::Arc, time::Duration};

use bytestring::ByteString;

use super::{
    conditions::{Conditions, is_large},
    context::ReviewContext,
    rejection::{self, StatusError},
};
use crate::live::{Namespaces, namespaces::NamespaceView};
use gatepost_api::{Labels, Operation, Review, RuleTarget, Selector};
use gatepost_base::{clock::now, offload::OFFLOAD_THRESHOLD};
use gatepost_config::NAME_LABEL;
use gatepost_wire::metadata;

/// Maximum time to wait for the apiserver's answer about a namespace. The wait is also limited to half of the time
/// left, so that other hooks keep the rest. After it, failure policies apply.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason why selectors cannot be evaluated.
#[derive(Clone, Debug)]
pub(super) enum SelectorError {
    /// The request is at fault, and is rejected with this.
    Refused(StatusError),
    /// The apiserver did not return the labels of the namespace, for this reason.
    Unavailable(String),
}

impl From<SelectorError> for StatusError {
    fn from(error: SelectorError) -> Self {
        match error {
            SelectorError::Refused(refusal) => refusal,
            SelectorError::Unavailable(why) => Box::new(rejection::internal(&why)),
        }
    }
}

/// Labels that must be fetched before selectors can be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Labels of the request's namespace, which are unknown or too old.
    Namespace,
    /// Labels of an object that is too large to be read on a worker's thread.
    Objects,
}

/// Reason why it is unknown whether a selector matches.
enum LookupError {
    /// These labels must be fetched first.
    Missing(Missing),
    /// The selector cannot be evaluated.
    Final(SelectorError),
}

impl From<StatusError> for LookupError {
    fn from(refusal: StatusError) -> Self {
        Self::Final(SelectorError::Refused(refusal))
    }
}

/// Labels of a namespace from the apiserver. The error is [`SelectorError::Refused`] if the namespace does not exist,
/// else [`SelectorError::Unavailable`].
pub(super) type NamespaceAnswer = Result<Arc<Labels>, SelectorError>;

/// Facts about one state of a review's object.
pub(super) struct Facts<'a: 'r, 'r> {
    pub(super) ctx: &'a ReviewContext<'a>,
    /// The review with the current object.
    pub(super) review: &'r Review,
    /// The apiserver's answer about the request's namespace, if it was requested.
    namespace_answer: Option<NamespaceAnswer>,
    /// View of the watched namespaces. It is taken once, so that all hooks see the same labels.
    namespace_view: OnceCell<NamespaceView>,
    /// Labels of the review's new object.
    new_object_labels: OnceCell<Result<Option<Labels>, StatusError>>,
    /// Labels of the request's own Namespace object, and its name label.
    namespace_object_labels: OnceCell<Labels>,
    /// Labels of the review's old object.
    old_object_labels: OnceCell<Result<Option<Labels>, StatusError>>,
    /// Decisions of hooks' `matchConditions`.
    pub(super) conditions: Conditions<'r>,
}

impl<'a: 'r, 'r> Facts<'a, 'r> {
    /// Creates the facts about `review`. `namespace_answer` is the apiserver's answer to an earlier request for the
    /// namespace.
    pub(super) fn new(
        ctx: &'a ReviewContext<'a>,
        review: &'r Review,
        namespace_answer: Option<NamespaceAnswer>,
    ) -> Self {
        Self {
            ctx,
            review,
            namespace_answer,
            namespace_view: OnceCell::new(),
            new_object_labels: OnceCell::new(),
            namespace_object_labels: OnceCell::new(),
            old_object_labels: OnceCell::new(),
            conditions: Conditions::new(ctx, review),
        }
    }

    /// Returns the apiserver's answer about the namespace, which applies to the whole request.
    pub(super) fn into_namespace_answer(self) -> Option<NamespaceAnswer> {
        self.namespace_answer
    }

    /// Returns labels that these selectors need and that must be fetched.
    pub(super) fn missing(&self, of_namespace: &Selector, of_object: &Selector) -> Option<Missing> {
        let is_unread = |place: &Option<Range<usize>>, cell: &OnceCell<_>| is_large(place) && cell.get().is_none();
        let lacks_objects = is_unread(&self.review.object, &self.new_object_labels)
            || is_unread(&self.review.old_object, &self.old_object_labels);
        let lacks_namespace = || matches!(self.namespace_labels_at_hand(), Err(LookupError::Missing(_)));
        // Usually nothing must be fetched, and then no selector is evaluated.
        if !lacks_objects && (of_namespace.is_empty() || !lacks_namespace()) {
            return None;
        }
        match self.match_selectors(of_namespace, of_object) {
            Err(LookupError::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    /// Fetches missing labels.
    pub(super) async fn fetch(&mut self, missing: Missing) {
        match missing {
            Missing::Namespace => self.fetch_namespace_labels().await,
            Missing::Objects => self.read_objects().await,
        }
    }

    /// Requests the labels of an unknown namespace from the apiserver, as upstream does. Waits for at most
    /// [`LOOKUP_TIMEOUT`]. The answer, also an error, then applies to this request.
    async fn fetch_namespace_labels(&mut self) {
        let Some(namespaces) = self.ctx.deps.namespaces.as_deref() else { return };
        // The view is not kept during the wait.
        self.namespace_view.take();
        let namespace = self.namespace().clone();
        let within = LOOKUP_TIMEOUT.min(self.ctx.caller.deadline.left(now()) / 2);
        let looked_up = tokio::time::timeout(within, namespaces.look_up(&namespace)).await;
        let looked_up = looked_up.unwrap_or_else(|_| Err("the apiserver did not answer in time".to_owned()));
        self.namespace_answer = Some(match looked_up {
            Ok(Some(labels)) => Ok(Arc::new(labels)),
            Ok(None) => Err(SelectorError::Refused(Box::new(rejection::namespace_not_found(&namespace)))),
            Err(why) => Err(SelectorError::Unavailable(format!("looking up namespace \"{namespace}\": {why}"))),
        });
    }

    /// Returns the reason why the apiserver did not return the labels of the request's namespace, if they were
    /// requested.
    pub(super) fn unavailable(&self) -> Option<&str> {
        match &self.namespace_answer {
            Some(Err(SelectorError::Unavailable(why))) => Some(why),
            _ => None,
        }
    }

    /// Reads the labels of large objects off the worker's thread, until the request's deadline.
    async fn read_objects(&mut self) {
        let Self { review, ctx, new_object_labels, old_object_labels, .. } = self;
        let cells = [(new_object_labels, &review.object), (old_object_labels, &review.old_object)];
        for (cell, place) in cells {
            let Some(place) = place.clone().filter(|place| place.len() >= OFFLOAD_THRESHOLD) else { continue };
            let bytes = review.bytes.clone();
            *cell = OnceCell::from(ctx.run_reading(place.len(), move || metadata::labels(&bytes, place)).await);
        }
    }

    /// Fetches missing labels, and returns true if both selectors match.
    pub(super) async fn fetch_and_select(
        &mut self,
        of_namespace: &Selector,
        of_object: &Selector,
    ) -> Result<bool, StatusError> {
        while let Some(missing) = self.missing(of_namespace, of_object) {
            self.fetch(missing).await;
        }
        Ok(self.selects(of_namespace, of_object)?)
    }

    /// Returns true if both selectors match. As in upstream, a selector that does not match outweighs an error of the
    /// other one, and an error of the namespace selector outweighs an error of the object selector.
    pub(super) fn selects(&self, of_namespace: &Selector, of_object: &Selector) -> Result<bool, SelectorError> {
        self.match_selectors(of_namespace, of_object).map_err(|error| match error {
            LookupError::Final(error) => error,
            // Callers fetch missing labels first.
            LookupError::Missing(_) => {
                SelectorError::Refused(Box::new(rejection::namespace_not_found(self.namespace())))
            }
        })
    }

    fn match_selectors(&self, of_namespace: &Selector, of_object: &Selector) -> Result<bool, LookupError> {
        let namespace = self.namespace_matches(of_namespace);
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let object = self.object_matches(of_object);
        if matches!(object, Ok(false)) {
            return Ok(false);
        }
        // With the missing labels, a selector may turn out not to match, which outweighs the error of the other
        // selector.
        let lacks_objects = |error: &LookupError| matches!(error, LookupError::Missing(Missing::Objects));
        if namespace.as_ref().is_err_and(lacks_objects) || object.as_ref().is_err_and(lacks_objects) {
            return Err(LookupError::Missing(Missing::Objects));
        }
        Ok(namespace? && object?)
    }

    /// Returns the request's namespace. For a Namespace object that is its own name, even if the caller left the
    /// namespace empty.
    fn namespace(&self) -> &'r ByteString {
        let review = self.review;
        if review.namespace.is_empty() { &review.name } else { &review.namespace }
    }

    /// Returns true if the namespace selector matches. Source: `docs/reference/webhook-semantics.md` §4.3, upstream
    /// `W/predicates/namespace/matcher.go`.
    fn namespace_matches(&self, selector: &Selector) -> Result<bool, LookupError> {
        let review = self.review;
        let made = RuleTarget::as_made(review);
        let is_namespace = made.resource.resource == "namespaces";
        if selector.is_empty() || (review.namespace.is_empty() && !is_namespace) {
            return Ok(true);
        }
        let writes = matches!(review.operation, Operation::Create | Operation::Update);
        if is_namespace && made.sub_resource.is_empty() && writes {
            if review.object.is_none() {
                return Err(Box::new(rejection::no_object("object", "namespaceSelector")).into());
            }
            let own = self.new_labels()?;
            // The apiserver sets the name label by default, even if an earlier hook has removed it.
            let named = [(NAME_LABEL, &*review.name)].into_iter().filter(|(_, name)| !name.is_empty());
            let of_namespace = || own.into_iter().flat_map(Labels::iter).chain(named).collect();
            return Ok(selector.matches(self.namespace_object_labels.get_or_init(of_namespace)));
        }
        if let Some(labels) = self.namespace_labels_at_hand()? {
            return Ok(selector.matches(labels));
        }
        let by_documents = self.ctx.generation.snapshot.selects_namespace(selector, self.namespace());
        by_documents.ok_or_else(|| Box::new(rejection::namespace_not_found(self.namespace())).into())
    }

    /// Returns the labels of the request's namespace: those that the caller sent, or else the cluster's. `None` if no
    /// cluster is watched: the configuration's documents then decide.
    fn namespace_labels_at_hand(&self) -> Result<Option<&Labels>, LookupError> {
        if let Some(sent) = &self.ctx.caller.namespace_labels {
            return Ok(Some(sent));
        }
        let Some(namespaces) = self.ctx.deps.namespaces.as_deref() else { return Ok(None) };
        match &self.namespace_answer {
            Some(Ok(labels)) => Ok(Some(labels)),
            Some(Err(error)) => Err(LookupError::Final(error.clone())),
            None => self.watched_labels(namespaces).map(Some).ok_or(LookupError::Missing(Missing::Namespace)),
        }
    }

    /// Returns the labels of the namespace in the watched cluster. Every namespace is unknown before the first list,
    /// and once the last event of the watch is too old.
    fn watched_labels(&self, namespaces: &Namespaces) -> Option<&Labels> {
        let namespace = self.namespace();
        let is_fresh = namespaces.is_fresh(self.ctx.began);
        is_fresh.then(|| self.namespace_view.get_or_init(|| namespaces.seen(namespace)).labels(namespace)).flatten()
    }

    /// Fetches the labels of the request's namespace if necessary, and returns them; none if the request has no
    /// namespace.
    pub(super) async fn namespace_labels(&mut self) -> Result<Labels, StatusError> {
        if self.review.namespace.is_empty() {
            return Ok(Labels::default());
        }
        if matches!(self.namespace_labels_at_hand(), Err(LookupError::Missing(_))) {
            self.fetch_namespace_labels().await;
        }
        let not_found = || Box::new(rejection::namespace_not_found(&self.review.namespace));
        match self.namespace_labels_at_hand() {
            Ok(Some(labels)) => Ok(labels.clone()),
            Ok(None) => {
                let written = self.ctx.generation.snapshot.namespace_labels(&self.review.namespace);
                written.cloned().ok_or_else(not_found)
            }
            Err(LookupError::Final(error)) => Err(error.into()),
            Err(LookupError::Missing(_)) => Err(not_found()),
        }
    }

    /// Returns true if the object selector matches the new object or the old one. Source:
    /// `docs/reference/webhook-semantics.md` §4.4, upstream `W/predicates/object/matcher.go`.
    fn object_matches(&self, selector: &Selector) -> Result<bool, LookupError> {
        if selector.is_empty() {
            return Ok(true);
        }
        let matches = |labels: Option<&Labels>| labels.is_some_and(|labels| selector.matches(labels));
        if matches(self.new_labels()?) || matches(self.old_labels()?) {
            return Ok(true);
        }
        let missing = |field| Box::new(rejection::no_object(field, "objectSelector")).into();
        self.missing_object().map_or(Ok(false), |field| Err(missing(field)))
    }

    /// Returns the field of an object that every apiserver sends for this operation and this caller did not: its labels
    /// might have matched. For CONNECT, some apiservers send no object.
    fn missing_object(&self) -> Option<&'static str> {
        let (new, old) = (self.review.object.is_some(), self.review.old_object.is_some());
        match self.review.operation {
            Operation::Create if !new && !old => Some("object"),
            Operation::Update if !new => Some("object"),
            Operation::Update if !old => Some("oldObject"),
            Operation::Delete if !new && !old => Some("oldObject"),
            _ => None,
        }
    }

    fn new_labels(&self) -> Result<Option<&Labels>, LookupError> {
        self.labels(&self.new_object_labels, &self.review.object)
    }

    fn old_labels(&self) -> Result<Option<&Labels>, LookupError> {
        self.labels(&self.old_object_labels, &self.review.old_object)
    }

    fn labels<'s>(
        &'s self,
        cell: &'s OnceCell<Result<Option<Labels>, StatusError>>,
        place: &Option<Range<usize>>,
    ) -> Result<Option<&'s Labels>, LookupError> {
        let Some(place) = place else { return Ok(None) };
        if place.len() >= OFFLOAD_THRESHOLD && cell.get().is_none() {
            return Err(LookupError::Missing(Missing::Objects));
        }
        let read = cell.get_or_init(|| {
            metadata::labels(&self.review.bytes, place.clone()).map_err(|error| Box::new(rejection::internal(&error)))
        });
        read.as_ref().map(Option::as_ref).map_err(|refusal| refusal.clone().into())
    }
}
