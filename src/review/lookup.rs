//! Lookup: the labels that selectors look at, found at most once a request, and only when a selector asks for them.

use std::{
    cell::OnceCell,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use bytestring::ByteString;

use super::{access::Access, caller::Caller, conditions::Conditions, status, status::StatusError};
use crate::{
    clock::now,
    live::{Generation, LiveHook, Namespaces, namespaces::NamespaceView},
    model::{Labels, Operation, Review, RuleTarget, Selector},
    offload::{self, LARGE},
    snapshot::NAME_LABEL,
    wire::labels,
};

/// An apiserver that takes longer to answer about a namespace is not waited for, nor for more than half of the time that
/// is left: failure policies decide, and other hooks are to have their time.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Reasons why it is not known whether a hook is asked.
#[derive(Clone, Debug)]
pub(super) enum LookupError {
    /// The request is rejected with this.
    Refused(StatusError),
    /// The cluster's namespaces are followed, and what is known of this one is nothing, or too old: the apiserver is to be
    /// asked.
    Unknown(ByteString),
    /// The apiserver was asked about the namespace in vain, for this reason.
    Unavailable(String),
    /// An object is to be read that is too large to be read here: [`Lookup::read`].
    Large,
    /// There are conditions that would take too long here, or ask the authorizer: [`Conditions::evaluate`].
    Slow,
}

impl From<StatusError> for LookupError {
    fn from(refusal: StatusError) -> Self {
        Self::Refused(refusal)
    }
}

/// Labels of a namespace as the apiserver gives them, or why it does not: [`LookupError::Refused`] where there is no such
/// namespace, else [`LookupError::Unavailable`].
pub(super) type Found = Result<Arc<Labels>, LookupError>;

/// The labels of one request's namespace and objects.
pub(super) struct Lookup<'a> {
    generation: &'a Generation,
    namespaces: Option<&'a Namespaces>,
    review: &'a Review,
    caller: &'a Caller,
    now: Instant,
    /// The request's namespace, where it had to be asked about.
    found: Option<Found>,
    /// The request's namespace as the followed cluster has it: the same for all hooks, whatever changes meanwhile.
    followed: OnceCell<NamespaceView>,
    own_object: OnceCell<Result<Option<Labels>, StatusError>>,
    /// The same of a Namespace, with its name.
    own_namespace: OnceCell<Labels>,
    old_object: OnceCell<Result<Option<Labels>, StatusError>>,
    /// Decisions of hooks' `matchConditions`.
    pub(super) conditions: Conditions<'a>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(
        generation: &'a Generation,
        namespaces: Option<&'a Namespaces>,
        review: &'a Review,
        caller: &'a Caller,
        now: Instant,
        access: &'a Access<'a>,
    ) -> Self {
        let (followed, own_object, old_object) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let conditions = Conditions::new(review, caller, access);
        let (found, own_namespace) = (None, OnceCell::new());
        Self {
            generation,
            namespaces,
            review,
            caller,
            now,
            found,
            followed,
            own_object,
            own_namespace,
            old_object,
            conditions,
        }
    }

    /// The same, with what the apiserver has said of the request's namespace already.
    pub(super) fn with(self, found: Option<Found>) -> Self {
        Self { found, ..self }
    }

    /// Namespace as the apiserver has sent it, where it was asked.
    pub(super) fn into_found(self) -> Option<Found> {
        self.found
    }

    /// Asks the apiserver about a namespace that is not known, within the request's time; upstream does the same.
    /// The answer, an error included, then counts for this request.
    pub(super) async fn find(&mut self, namespace: &str) {
        let Some(namespaces) = self.namespaces else { return };
        // Not held while we wait.
        self.followed.take();
        let within = LOOKUP_TIMEOUT.min(self.caller.deadline.left(now()) / 2);
        let asked = tokio::time::timeout(within, namespaces.ask(namespace)).await;
        let asked = asked.unwrap_or_else(|_| Err("the apiserver did not answer in time".to_owned()));
        self.found = Some(match asked {
            Ok(Some(labels)) => Ok(Arc::new(labels)),
            Ok(None) => Err(LookupError::Refused(Box::new(status::namespace_not_found(namespace)))),
            Err(why) => Err(LookupError::Unavailable(format!("looking up namespace \"{namespace}\": {why}"))),
        });
    }

    /// Was the apiserver asked about the request's namespace in vain? Then why.
    pub(super) fn unavailable(&self) -> Option<&str> {
        match &self.found {
            Some(Err(LookupError::Unavailable(why))) => Some(why),
            _ => None,
        }
    }

    /// Reads the labels of large objects beside the worker, within the request's time.
    pub(super) async fn read(&mut self) {
        let Self { review, caller, own_object, old_object, .. } = self;
        let cells = [(own_object, &review.object), (old_object, &review.old_object)];
        for (cell, place) in cells {
            let Some(place) = place.clone().filter(|place| place.len() >= LARGE) else { continue };
            let bytes = review.bytes.clone();
            let reading = offload::run(place.len(), move || labels::of_object(&bytes, place));
            let read = match tokio::time::timeout_at(caller.deadline.instant().into(), reading).await {
                Ok(read) => read.map_err(|error| Box::new(status::internal(&error))),
                Err(_) => Err(Box::new(status::out_of_time())),
            };
            *cell = OnceCell::from(read);
        }
    }

    /// Do both selectors of this hook match? A clean "no" of either wins over an error of the other, and an error of
    /// the namespace selector over one of the object selector, as upstream.
    pub(super) fn selects(&self, live: &LiveHook) -> Result<bool, LookupError> {
        self.selected_by(&live.hook.namespace_selector, &live.hook.object_selector)
    }

    /// The same of any two selectors.
    pub(super) fn selected_by(&self, of_namespace: &Selector, of_object: &Selector) -> Result<bool, LookupError> {
        let namespace = self.namespace_matches(of_namespace);
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let object = self.object_matches(of_object);
        if matches!(object, Ok(false)) {
            return Ok(false);
        }
        // Either unknown may turn out to be that "no".
        if matches!(namespace, Err(LookupError::Large)) || matches!(object, Err(LookupError::Large)) {
            return Err(LookupError::Large);
        }
        Ok(namespace? && object?)
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
                return Err(Box::new(status::no_object("object", "namespaceSelector")).into());
            }
            let own = self.own_labels()?;
            // The apiserver sets it by default, also where a hook before has taken it away.
            let named = [(NAME_LABEL, &*review.name)].into_iter().filter(|(_, name)| !name.is_empty());
            let of_namespace = || own.into_iter().flat_map(Labels::iter).chain(named).collect();
            return Ok(selector.matches(self.own_namespace.get_or_init(of_namespace)));
        }
        // A Namespace's own request has its name as the namespace; where the caller left it out, the name is the same.
        let namespace = if review.namespace.is_empty() { &review.name } else { &review.namespace };
        self.matches_namespace(selector, namespace)
    }

    /// The caller knows best, then the cluster, then (where no cluster is followed) the configuration's documents.
    fn matches_namespace(&self, selector: &Selector, namespace: &ByteString) -> Result<bool, LookupError> {
        if let Some(sent) = &self.caller.namespace_labels {
            return Ok(selector.matches(sent));
        }
        let Some(namespaces) = self.namespaces else {
            let written = self.generation.snapshot.selects_namespace(selector, namespace);
            return written.ok_or_else(|| LookupError::Refused(Box::new(status::namespace_not_found(namespace))));
        };
        if let Some(found) = &self.found {
            return Ok(selector.matches(found.as_ref().map_err(Clone::clone)?));
        }
        self.known_labels(namespaces, namespace).map(|labels| selector.matches(labels))
    }

    /// Labels of a namespace as it is followed. Before the first list, and once the last news is too old, every one is
    /// unknown.
    fn known_labels(&self, namespaces: &Namespaces, namespace: &ByteString) -> Result<&Labels, LookupError> {
        let unknown = || LookupError::Unknown(namespace.clone());
        if !namespaces.is_fresh(self.now) {
            return Err(unknown());
        }
        self.followed.get_or_init(|| namespaces.seen(namespace)).labels(namespace).ok_or_else(unknown)
    }

    /// Labels of the request's namespace; none where it is in none.
    pub(super) fn namespace_labels(&self) -> Result<Labels, LookupError> {
        let namespace = &self.review.namespace;
        let not_found = || LookupError::Refused(Box::new(status::namespace_not_found(namespace)));
        if namespace.is_empty() {
            return Ok(Labels::default());
        }
        if let Some(sent) = &self.caller.namespace_labels {
            return Ok(sent.clone());
        }
        let Some(namespaces) = self.namespaces else {
            return self.generation.snapshot.namespace_labels(namespace).cloned().ok_or_else(not_found);
        };
        if let Some(found) = &self.found {
            return Ok(Labels::clone(found.as_ref().map_err(Clone::clone)?));
        }
        self.known_labels(namespaces, namespace).cloned()
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
        let missing = |field| LookupError::Refused(Box::new(status::no_object(field, "objectSelector")));
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
            return Err(LookupError::Large);
        }
        let read = cell.get_or_init(|| {
            labels::of_object(&self.review.bytes, place.clone()).map_err(|error| Box::new(status::internal(&error)))
        });
        read.as_ref().map(Option::as_ref).map_err(|refusal| LookupError::Refused(refusal.clone()))
    }
}

/// Result of `look`, after the labels of the namespace or object that it needs have been looked up.
pub(super) async fn known<'l, T>(
    lookup: &mut Lookup<'l>,
    look: impl Fn(&Lookup<'l>) -> Result<T, LookupError>,
) -> Result<T, StatusError> {
    let mut found = false;
    loop {
        match look(lookup) {
            Ok(known) => return Ok(known),
            Err(LookupError::Refused(refusal)) => return Err(refusal),
            Err(LookupError::Unavailable(why)) => return Err(Box::new(status::internal(&why))),
            Err(LookupError::Large) => lookup.read().await,
            Err(LookupError::Slow) => lookup.conditions.evaluate().await,
            Err(LookupError::Unknown(namespace)) if found => {
                return Err(Box::new(status::namespace_not_found(&namespace)));
            }
            Err(LookupError::Unknown(namespace)) => {
                found = true;
                lookup.find(&namespace).await;
            }
        }
    }
}
