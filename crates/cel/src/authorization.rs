//! Access checks that an expression makes with `authorizer`, and their decisions.
//!
//! Nothing here calls an authorizer. A check without a decision in the input ends the evaluation. The caller obtains
//! the decision and evaluates again. Source: `k8s.io/apiserver/pkg/cel/library/authz.go`.

use std::{collections::HashMap, sync::Arc};

/// The user that an access check is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The user who makes the request.
    Requester,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
}

/// The resources of an access check. Empty fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAccess {
    /// API group.
    pub group: Box<str>,
    /// Resource, in its plural.
    pub resource: Box<str>,
    /// Subresource.
    pub sub_resource: Box<str>,
    /// Namespace.
    pub namespace: Box<str>,
    /// Name of the object.
    pub name: Box<str>,
    /// Field selector, as it was written.
    pub field_selector: Box<str>,
    /// Label selector, as it was written.
    pub label_selector: Box<str>,
}

/// The target of an access check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessTarget {
    /// A path that is not a resource's.
    Path(Box<str>),
    /// Resources.
    Resource(ResourceAccess),
}

/// One access check: whether a user may perform a verb on a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessCheck {
    /// User.
    pub subject: Subject,
    /// Verb, of HTTP or of the API.
    pub verb: Box<str>,
    /// Target.
    pub target: AccessTarget,
}

/// An authorizer's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// True if access is allowed. No opinion counts as denial.
    pub allowed: bool,
    /// The reason; may be empty.
    pub reason: Box<str>,
    /// The error while deciding, if there was one.
    pub error: Option<Box<str>>,
}

/// A decision, or the reason why there is none, which is an error of every expression that makes the check.
type DecisionResult = Result<AccessDecision, Box<str>>;

/// Decisions by access check.
#[derive(Clone, Debug, Default)]
pub struct AccessDecisions(Option<Arc<HashMap<AccessCheck, DecisionResult>>>);

impl AccessDecisions {
    /// Returns the decision of a check; `None` if it is undecided.
    pub fn get(&self, check: &AccessCheck) -> Option<&Result<AccessDecision, Box<str>>> {
        self.0.as_ref()?.get(check)
    }

    /// Adds the decision of a check.
    pub fn insert(&mut self, check: AccessCheck, decided: Result<AccessDecision, Box<str>>) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(check, decided);
    }

    /// Returns the number of checks.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |decided| decided.len())
    }

    /// Returns true if no check is decided.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A partial access check: the value of `authorizer` and of its calls.
#[derive(Clone, Debug)]
pub(super) struct Authorizer<'a> {
    pub(super) decisions: &'a AccessDecisions,
    pub(super) subject: Subject,
    pub(super) stage: Stage,
}

/// The part of an access check that is known: each call of a chain adds one.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Only the user.
    User,
    /// Everything except the verb.
    Path(Box<str>),
    /// The API group.
    Group(Box<str>),
    /// Everything except the verb and optional fields.
    Resource(ResourceAccess),
}

impl<'a> Authorizer<'a> {
    /// Returns the authorizer of the user who makes the request.
    pub(super) fn new(decisions: &'a AccessDecisions) -> Self {
        Self { decisions, subject: Subject::Requester, stage: Stage::User }
    }

    /// Returns the check of a resource for the user who makes the request.
    pub(super) fn of_resource(decisions: &'a AccessDecisions, access: ResourceAccess) -> Self {
        Self { stage: Stage::Resource(access), ..Self::new(decisions) }
    }

    /// Returns the name of the type.
    pub(super) const fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::User => "kubernetes.authorization.Authorizer",
            Stage::Path(_) => "kubernetes.authorization.PathCheck",
            Stage::Group(_) => "kubernetes.authorization.GroupCheck",
            Stage::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}
