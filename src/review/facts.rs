//! Facts: what the selection of hooks looks at: labels of the namespace and of the objects, and decided conditions.
//!
//! What is not at hand is found out first, by [`resolve`](super::select::resolve): the apiserver is asked about a
//! namespace, and large objects are read. Whether a selector matches is then said at once.

use std::{cell::OnceCell, ops::Range, sync::Arc, time::Duration};

use bytestring::ByteString;

use super::{
    conditions::{Conditions, is_large},
    context::ReviewContext,
    rejection::{self, StatusError},
};
use crate::live::{Namespaces, namespaces::NamespaceView};
use gatepost_api::{Labels, Operation, Review, RuleTarget, Selector};
use gatepost_base::{clock::now, offload::LARGE};
use gatepost_config::NAME_LABEL;
use gatepost_wire::metadata;

/// An apiserver that takes longer to answer about a namespace is not waited for, nor for more than half of the time that
/// is left: failure policies decide, and other hooks need their time.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason why selectors cannot be evaluated.
#[derive(Clone, Debug)]
pub(super) enum SelectorError {
    /// The fault of the request, which is rejected with this.
    Refused(StatusError),
    /// The apiserver could not be asked about the namespace, for this reason.
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

/// Labels that are not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Nothing is known of the request's namespace, or what is known is too old: the apiserver must be asked.
    Namespace,
    /// An object is too large to be read on a worker.
    Objects,
}

/// Reason why it is not known whether a selector matches.
enum LookupError {
    /// It can be decided once this has been looked up.
    Missing(Missing),
    /// It cannot be decided.
    Final(SelectorError),
}

impl From<StatusError> for LookupError {
    fn from(refusal: StatusError) -> Self {
        Self::Final(SelectorError::Refused(refusal))
    }
}

/// Labels of a namespace as the apiserver gives them, or why it does not: [`SelectorError::Refused`] where there is no
/// such namespace, else [`SelectorError::Unavailable`].
pub(super) type NamespaceAnswer = Result<Arc<Labels>, SelectorError>;

/// Facts about one review.
pub(super) struct Facts<'a: 'r, 'r> {
    pub(super) ctx: &'a ReviewContext<'a>,
    /// The review about the object as it is now.
    pub(super) review: &'r Review,
    /// The apiserver's answer about the request's namespace, where it was asked.
    namespace_answer: Option<NamespaceAnswer>,
    /// The request's namespace as the followed cluster has it: the same for all hooks, whatever changes meanwhile.
    followed: OnceCell<NamespaceView>,
    own_object: OnceCell<Result<Option<Labels>, StatusError>>,
    /// The labels of a Namespace, with its name.
    own_namespace: OnceCell<Labels>,
    old_object: OnceCell<Result<Option<Labels>, StatusError>>,
    /// Decisions of hooks' `matchConditions`.
    pub(super) conditions: Conditions<'r>,
}

impl<'a: 'r, 'r> Facts<'a, 'r> {
    /// Facts at hand about `review`. `namespace_answer`: what the apiserver has said of its namespace already.
    pub(super) fn new(
        ctx: &'a ReviewContext<'a>,
        review: &'r Review,
        namespace_answer: Option<NamespaceAnswer>,
    ) -> Self {
        Self {
            ctx,
            review,
            namespace_answer,
            followed: OnceCell::new(),
            own_object: OnceCell::new(),
            own_namespace: OnceCell::new(),
            old_object: OnceCell::new(),
            conditions: Conditions::new(review, ctx.caller.deadline, ctx.caller.worker, &ctx.access),
        }
    }

    /// The apiserver's answer about the namespace, which counts for the whole request.
    pub(super) fn into_namespace_answer(self) -> Option<NamespaceAnswer> {
        self.namespace_answer
    }

    /// Labels that these selectors need and that are not at hand.
    pub(super) fn missing(&self, of_namespace: &Selector, of_object: &Selector) -> Option<Missing> {
        let is_unread = |place: &Option<Range<usize>>, cell: &OnceCell<_>| is_large(place) && cell.get().is_none();
        let lacks_objects =
            is_unread(&self.review.object, &self.own_object) || is_unread(&self.review.old_object, &self.old_object);
        let lacks_namespace = || matches!(self.namespace_labels_at_hand(), Err(LookupError::Missing(_)));
        // Most labels are at hand; then nothing is compared.
        if !lacks_objects && (of_namespace.is_empty() || !lacks_namespace()) {
            return None;
        }
        match self.look(of_namespace, of_object) {
            Err(LookupError::Missing(missing)) => Some(missing),
            _ => None,
        }
    }

    /// Finds out what is missing.
    pub(super) async fn fetch(&mut self, missing: Missing) {
        match missing {
            Missing::Namespace => self.ask_about_namespace().await,
            Missing::Objects => self.read_objects().await,
        }
    }

    /// Asks the apiserver about a namespace that is not known, within the request's time; upstream does the same.
    /// The answer, an error included, then counts for this request.
    async fn ask_about_namespace(&mut self) {
        let Some(namespaces) = self.ctx.deps.namespaces.as_deref() else { return };
        // Not held while we wait.
        self.followed.take();
        let namespace = self.namespace().clone();
        let within = LOOKUP_TIMEOUT.min(self.ctx.caller.deadline.left(now()) / 2);
        let asked = tokio::time::timeout(within, namespaces.ask(&namespace)).await;
        let asked = asked.unwrap_or_else(|_| Err("the apiserver did not answer in time".to_owned()));
        self.namespace_answer = Some(match asked {
            Ok(Some(labels)) => Ok(Arc::new(labels)),
            Ok(None) => Err(SelectorError::Refused(Box::new(rejection::namespace_not_found(&namespace)))),
            Err(why) => Err(SelectorError::Unavailable(format!("looking up namespace \"{namespace}\": {why}"))),
        });
    }

    /// Reason why the apiserver, where it was asked, has not answered about the request's namespace.
    pub(super) fn unavailable(&self) -> Option<&str> {
        match &self.namespace_answer {
            Some(Err(SelectorError::Unavailable(why))) => Some(why),
            _ => None,
        }
    }

    /// Reads the labels of large objects beside the worker, within the request's time.
    async fn read_objects(&mut self) {
        let Self { review, ctx, own_object, old_object, .. } = self;
        let cells = [(own_object, &review.object), (old_object, &review.old_object)];
        for (cell, place) in cells {
            let Some(place) = place.clone().filter(|place| place.len() >= LARGE) else { continue };
            let bytes = review.bytes.clone();
            *cell = OnceCell::from(ctx.read(place.len(), move || metadata::labels(&bytes, place)).await);
        }
    }

    /// Do both selectors match, once what they need is found out?
    pub(super) async fn find_selected(
        &mut self,
        of_namespace: &Selector,
        of_object: &Selector,
    ) -> Result<bool, StatusError> {
        while let Some(missing) = self.missing(of_namespace, of_object) {
            self.fetch(missing).await;
        }
        Ok(self.selects(of_namespace, of_object)?)
    }

    /// Do both selectors match? A clean "no" of either wins over an error of the other, and an error of the namespace
    /// selector over one of the object selector, as upstream.
    pub(super) fn selects(&self, of_namespace: &Selector, of_object: &Selector) -> Result<bool, SelectorError> {
        self.look(of_namespace, of_object).map_err(|error| match error {
            LookupError::Final(error) => error,
            // `resolve` comes first.
            LookupError::Missing(_) => {
                SelectorError::Refused(Box::new(rejection::namespace_not_found(self.namespace())))
            }
        })
    }

    fn look(&self, of_namespace: &Selector, of_object: &Selector) -> Result<bool, LookupError> {
        let namespace = self.namespace_matches(of_namespace);
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let object = self.object_matches(of_object);
        if matches!(object, Ok(false)) {
            return Ok(false);
        }
        // Either unknown may turn out to be that "no".
        let lacks_objects = |error: &LookupError| matches!(error, LookupError::Missing(Missing::Objects));
        if namespace.as_ref().is_err_and(lacks_objects) || object.as_ref().is_err_and(lacks_objects) {
            return Err(LookupError::Missing(Missing::Objects));
        }
        Ok(namespace? && object?)
    }

    /// The request's namespace. A Namespace's own request has its name as the namespace; where the caller left it out,
    /// the name is the same.
    fn namespace(&self) -> &'r ByteString {
        let review = self.review;
        if review.namespace.is_empty() { &review.name } else { &review.namespace }
    }

    /// Source: §4.3, upstream `W/predicates/namespace/matcher.go`.
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
            let own = self.own_labels()?;
            // The apiserver sets it by default, also where a hook before has taken it away.
            let named = [(NAME_LABEL, &*review.name)].into_iter().filter(|(_, name)| !name.is_empty());
            let of_namespace = || own.into_iter().flat_map(Labels::iter).chain(named).collect();
            return Ok(selector.matches(self.own_namespace.get_or_init(of_namespace)));
        }
        if let Some(labels) = self.namespace_labels_at_hand()? {
            return Ok(selector.matches(labels));
        }
        let by_documents = self.ctx.generation.snapshot.selects_namespace(selector, self.namespace());
        by_documents.ok_or_else(|| Box::new(rejection::namespace_not_found(self.namespace())).into())
    }

    /// Labels of the request's namespace. The caller knows best, then the cluster; `None` where no cluster is followed:
    /// then the configuration's documents.
    fn namespace_labels_at_hand(&self) -> Result<Option<&Labels>, LookupError> {
        if let Some(sent) = &self.ctx.caller.namespace_labels {
            return Ok(Some(sent));
        }
        let Some(namespaces) = self.ctx.deps.namespaces.as_deref() else { return Ok(None) };
        match &self.namespace_answer {
            Some(Ok(labels)) => Ok(Some(labels)),
            Some(Err(error)) => Err(LookupError::Final(error.clone())),
            None => self.followed_labels(namespaces).map(Some).ok_or(LookupError::Missing(Missing::Namespace)),
        }
    }

    /// Labels of the namespace as it is followed. Before the first list, and once the last news is too old, every one is
    /// unknown.
    fn followed_labels(&self, namespaces: &Namespaces) -> Option<&Labels> {
        let namespace = self.namespace();
        let is_fresh = namespaces.is_fresh(self.ctx.began);
        is_fresh.then(|| self.followed.get_or_init(|| namespaces.seen(namespace)).labels(namespace)).flatten()
    }

    /// Labels of the request's namespace, which are found out first; none where it is in none.
    pub(super) async fn namespace_labels(&mut self) -> Result<Labels, StatusError> {
        if self.review.namespace.is_empty() {
            return Ok(Labels::default());
        }
        if matches!(self.namespace_labels_at_hand(), Err(LookupError::Missing(_))) {
            self.ask_about_namespace().await;
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

    /// Source: §4.4, upstream `W/predicates/object/matcher.go`: the new object or the old one.
    fn object_matches(&self, selector: &Selector) -> Result<bool, LookupError> {
        if selector.is_empty() {
            return Ok(true);
        }
        let matches = |labels: Option<&Labels>| labels.is_some_and(|labels| selector.matches(labels));
        if matches(self.own_labels()?) || matches(self.old_labels()?) {
            return Ok(true);
        }
        let missing = |field| Box::new(rejection::no_object(field, "objectSelector")).into();
        self.missing_object().map_or(Ok(false), |field| Err(missing(field)))
    }

    /// Object that every apiserver sends of such an operation, and this caller did not: its labels might have matched.
    /// Of a CONNECT some send nothing.
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

    fn own_labels(&self) -> Result<Option<&Labels>, LookupError> {
        self.labels(&self.own_object, &self.review.object)
    }

    fn old_labels(&self) -> Result<Option<&Labels>, LookupError> {
        self.labels(&self.old_object, &self.review.old_object)
    }

    fn labels<'s>(
        &'s self,
        cell: &'s OnceCell<Result<Option<Labels>, StatusError>>,
        place: &Option<Range<usize>>,
    ) -> Result<Option<&'s Labels>, LookupError> {
        let Some(place) = place else { return Ok(None) };
        if place.len() >= LARGE && cell.get().is_none() {
            return Err(LookupError::Missing(Missing::Objects));
        }
        let read = cell.get_or_init(|| {
            metadata::labels(&self.review.bytes, place.clone()).map_err(|error| Box::new(rejection::internal(&error)))
        });
        read.as_ref().map(Option::as_ref).map_err(|refusal| refusal.clone().into())
    }
}
