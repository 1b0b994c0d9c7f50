//! Authorization: access checks that an expression makes by `authorizer`, and their decisions.
//!
//! No authorizer is asked here. A check without a decision in the input ends the evaluation ([`Stop::Undecided`]); the
//! caller has it decided, and evaluates once more. Source: `k8s.io/apiserver/pkg/cel/library/authz.go`.
//!
//! [`Stop::Undecided`]: super::fault::Stop::Undecided

use std::{collections::HashMap, sync::Arc};

/// User that an access check is about.
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

/// Resources of an access check. Empty fields are left out of the review.
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

/// Target of an access check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessTarget {
    /// A path that is no resource's.
    Path(Box<str>),
    /// Resources.
    Resource(ResourceAccess),
}

/// One access check: may this user do that?
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
    /// True where it is allowed. No opinion is a no.
    pub allowed: bool,
    /// Reason that it gives; may be empty.
    pub reason: Box<str>,
    /// Error in the course of deciding, where there was one.
    pub error: Option<Box<str>>,
}

/// A decision; or why there is none, which is an error of every expression that makes the check.
type Decided = Result<AccessDecision, Box<str>>;

/// Decided access checks.
#[derive(Clone, Debug, Default)]
pub struct AccessDecisions(Option<Arc<HashMap<AccessCheck, Decided>>>);

impl AccessDecisions {
    /// The decision of a check; `None` while there is none.
    pub fn get(&self, check: &AccessCheck) -> Option<&Result<AccessDecision, Box<str>>> {
        self.0.as_ref()?.get(check)
    }

    /// A check has been decided.
    pub fn insert(&mut self, check: AccessCheck, decided: Result<AccessDecision, Box<str>>) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(check, decided);
    }

    /// Number of checks.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |decided| decided.len())
    }

    /// True before the first check.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An access check in the making.
#[derive(Clone, Debug)]
pub(super) struct Authorizer<'a> {
    pub(super) decisions: &'a AccessDecisions,
    pub(super) subject: Subject,
    pub(super) stage: Stage,
}

/// Stage of an access check in the making: each call of the chain names one part more.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// No more than the user.
    User,
    /// All but the verb.
    Path(Box<str>),
    /// The API group.
    Group(Box<str>),
    /// All but the verb, perhaps.
    Resource(ResourceAccess),
}

impl<'a> Authorizer<'a> {
    /// Of the user who makes the request.
    pub(super) fn new(decisions: &'a AccessDecisions) -> Self {
        Self { decisions, subject: Subject::Requester, stage: Stage::User }
    }

    /// The same, of a resource.
    pub(super) fn of_resource(decisions: &'a AccessDecisions, access: ResourceAccess) -> Self {
        Self { stage: Stage::Resource(access), ..Self::new(decisions) }
    }

    /// The name of its type.
    pub(super) const fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::User => "kubernetes.authorization.Authorizer",
            Stage::Path(_) => "kubernetes.authorization.PathCheck",
            Stage::Group(_) => "kubernetes.authorization.GroupCheck",
            Stage::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}
