//! PolicyTask: a policy that applies to a review, and what its evaluation needs.

use std::sync::Arc;

use bytes::Bytes;

use super::object::PatchedObject;
use gatepost_policy::Policy;

/// A policy that applies to a review, with everything that its evaluation needs. Owned, so that it can be evaluated on
/// another thread.
#[derive(Clone, Debug)]
pub(super) struct PolicyTask {
    /// Index in the generation.
    pub(super) index: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<BoundTask>,
    /// Reason why the policy cannot be evaluated at all.
    pub(super) failure: Option<String>,
}

/// A binding that applies to a review.
#[derive(Clone, Debug)]
pub(super) struct BoundTask {
    /// Index in the policy.
    pub(super) index: usize,
    /// Params as JSON, one evaluation for each, or the reason why there are none.
    pub(super) params: Result<Vec<Option<Bytes>>, String>,
}

/// Mutating policies that decide once more if the object changes.
#[derive(Debug)]
pub(super) struct Reinvocable {
    pub(super) tasks: Vec<PolicyTask>,
    /// The object after all policies.
    pub(super) after: Option<Arc<PatchedObject>>,
    /// True if a policy has changed the object.
    pub(super) is_needed: bool,
}
