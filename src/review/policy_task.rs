//! PolicyTask: a policy that applies to a review, and what its evaluation needs.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::object::PatchedObject;
use gatepost_policy::Policy;

/// A policy that applies to a review, with everything that its evaluation needs. Owned, so that it can be evaluated on
/// another thread.
#[derive(Clone, Debug)]
pub(super) struct PolicyTask {
    /// Index in the generation.
    pub(super) index: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: SmallVec<[BoundTask; 1]>,
    /// Reason why the policy cannot be evaluated at all.
    pub(super) failure: Option<String>,
}

impl PolicyTask {
    /// Returns true if the request passes even though this policy cannot be evaluated, regardless of its failure
    /// policy.
    pub(super) fn rejects_no_failure(&self) -> bool {
        self.policy.fails_open || !self.policy.enforcement.denies()
    }

    /// Keeps the params for which `keep` returns true, and the bindings that still have any. Gets the number of the
    /// binding in the task, and of the param in the binding.
    pub(super) fn retain_params(&mut self, keep: impl Fn(usize, usize) -> bool) {
        for (number, bound) in self.bindings.iter_mut().enumerate() {
            let Ok(params) = &mut bound.params else { continue };
            let mut param = 0..;
            params.retain(|_| param.next().is_some_and(|param| keep(number, param)));
        }
        self.bindings.retain(|bound| bound.params.as_ref().is_ok_and(|params| !params.is_empty()));
    }
}

/// Params of a binding: `[None]` if it has none.
pub(super) type Params = SmallVec<[Option<Bytes>; 1]>;

/// A binding that applies to a review.
#[derive(Clone, Debug)]
pub(super) struct BoundTask {
    /// Index in the policy.
    pub(super) index: usize,
    /// Params as JSON, one evaluation for each, or the reason why there are none.
    pub(super) params: Result<Params, String>,
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
