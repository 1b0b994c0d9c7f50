//! Initializer: a named party that must act on a new object before anyone else sees it.

use super::FailurePolicy;

/// One initializer of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initializer {
    /// The name that is put on the object's pending list.
    pub name: Box<str>,
    /// What becomes of an object on which it does not act in time: `Ignore` (default) or `Fail`.
    pub failure_policy: FailurePolicy,
}

/// The initializers that new objects of one resource get, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInitializers {
    /// API group; the core group is "".
    pub api_group: Box<str>,
    /// Resource, plural and lower case.
    pub resource: Box<str>,
    /// In the order in which they act.
    pub initializers: Vec<Initializer>,
}
