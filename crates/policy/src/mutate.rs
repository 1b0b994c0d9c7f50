//! Applies the mutations of a policy to an object. Sources:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/{dispatcher,patch/json_patch,patch/smd}.go`.
//!
//! Upstream fills in the defaults of the object's type after each mutation. That is left to whoever stores the object.

use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use gatepost_cel::{Allowance, Input, JsonDocument, OUT_OF_BUDGET, Output};
use gatepost_json::pointer;
use gatepost_json_patch::{Document, OperationFault, Patch, PatchError, PatchLimits};
use serde::Deserialize;

use crate::{
    binding::Binding,
    configuration,
    decide::{Applicability, Budget, PolicyEvaluation},
    definition::{Definition, Mutation, Policy, Reason},
    outcome::Outcome,
    schema::CustomSchemas,
    suspended::Suspended,
};

/// Bytes of an object or a patch that can be read in the time of one step.
const BYTES_PER_STEP: usize = 64;

/// Limits of the patches of mutations.
#[derive(Clone, Debug, Default)]
pub struct MutationLimits {
    /// Limits of each patch.
    pub patch: PatchLimits,
    /// True once nobody waits for the result.
    pub cancelled: Option<Arc<AtomicBool>>,
}

/// Result of the mutations of a policy for one binding and one param.
#[derive(Clone, Debug)]
pub struct Mutated {
    /// The object, with each mutation that did not fail.
    pub object: Document,
    /// True if the object differs from what it was. White space counts, too.
    pub is_changed: bool,
    /// True if the match conditions hold. As upstream, only such mutations are applied once more.
    pub is_applied: bool,
    /// Failures, and whether match conditions exclude the request. There are no warnings and audit annotations.
    pub outcome: Outcome,
}

/// Applies the mutations of a policy, in order, each to the result of those before it. As upstream, those behind a
/// mutation that fails are applied, too.
///
/// `param` is one of the binding's params, or `None` if it has none. The object of `input` must be `object`; it becomes
/// the last object that an expression has read.
///
/// # Errors
/// A mutation is undecided. Begin again with the input as it was.
pub fn mutate(
    (policy, binding, param): (&Policy, &Binding, Option<&JsonDocument<'_>>),
    input: &mut Input<'_>,
    object: &Document,
    limits: &MutationLimits,
    allowance: &Allowance<'_>,
) -> Result<Mutated, Suspended> {
    let (definition, mut outcome) = (&*policy.definition, Outcome::default());
    let mut current = object.clone();
    let mut text = None;
    let applies = PolicyEvaluation { definition, input, param, allowance }.applies()?;
    match applies {
        Applicability::Applies => {}
        Applicability::Excluded => {
            outcome.is_excluded = true;
            return Ok(Mutated { object: current, is_changed: false, is_applied: false, outcome });
        }
        Applicability::Failed(why) => {
            outcome.fail(policy, Some(binding), Reason::Invalid, &why);
            return Ok(Mutated { object: current, is_changed: false, is_applied: false, outcome });
        }
    }
    for mutation in &definition.mutations {
        let one = One { definition, mutation, schemas: &policy.schemas, param, limits, allowance };
        match one.apply(input, &current, &mut outcome.cost)? {
            Ok(None) => {}
            Ok(Some(changed)) => {
                let bytes = changed.rope().to_bytes();
                input.object = Some(JsonDocument::new(bytes.to_vec().into()));
                (current, text) = (changed, Some(bytes));
            }
            Err(why) => outcome.fail(policy, Some(binding), Reason::Invalid, &why),
        }
    }
    let is_changed = text.is_some_and(|text| text != object.rope().to_bytes());
    Ok(Mutated { object: current, is_changed, is_applied: true, outcome })
}

/// One mutation of an object.
struct One<'a> {
    definition: &'a Definition,
    mutation: &'a Mutation,
    schemas: &'a CustomSchemas,
    param: Option<&'a JsonDocument<'a>>,
    limits: &'a MutationLimits,
    allowance: &'a Allowance<'a>,
}

impl One<'_> {
    /// Returns the patched object; `None` if it does not change. The error is the message for the client.
    fn apply(
        &self,
        input: &Input<'_>,
        object: &Document,
        cost: &mut u64,
    ) -> Result<Result<Option<Document>, String>, Suspended> {
        let Self { definition, param, allowance, .. } = *self;
        let evaluation = PolicyEvaluation { definition, input, param, allowance };
        let value = evaluation.value(&evaluation.evaluator(), self.mutation.expression(), &mut Budget::new(cost))?;
        let written = match value {
            None => return Ok(Err(OUT_OF_BUDGET.to_owned())),
            Some(Err(why)) => return Ok(Err(why)),
            Some(Ok(Output::Json(written))) => written,
            Some(Ok(_)) => return Ok(Err("the mutation evaluates to no patch".to_owned())),
        };
        self.pay(object.rope().len() + written.len())?;
        let patch = match self.mutation {
            Mutation::JsonPatch(_) => written,
            Mutation::ApplyConfiguration(_) => {
                let object = object.rope().to_bytes();
                let merged = configuration::patch(&object, &written, self.schemas, &|bytes| self.pay(bytes))?;
                match merged {
                    Ok(patch) => patch,
                    Err(why) => return Ok(Err(why)),
                }
            }
        };
        let patch_text = Bytes::from(patch);
        let parsed = match Patch::parse(patch_text.clone()) {
            Ok(parsed) if parsed.is_empty() => return Ok(Ok(None)),
            Ok(parsed) => parsed,
            Err(error) => return Ok(Err(format!("JSON Patch: {}", unreadable(&error, &patch_text)))),
        };
        match object.patched_unless(&parsed, self.limits.patch, self.limits.cancelled.as_ref()) {
            Ok(patched) => Ok(Ok(Some(patched))),
            // As upstream, nothing of the patch is then applied, and it is no failure.
            Err(PatchError::Operation { fault: OperationFault::TestFailed, .. }) => Ok(Ok(None)),
            Err(PatchError::Cancelled) => Err(Suspended::Deadline),
            Err(error) => Ok(Err(format!("JSON Patch: {}", message(&error, &patch_text)))),
        }
    }

    /// Takes steps for bytes that are read outside of expressions.
    fn pay(&self, bytes: usize) -> Result<(), Suspended> {
        if (self.allowance.over)() {
            return Err(Suspended::Deadline);
        }
        match self.allowance.steps.get().checked_sub((bytes / BYTES_PER_STEP) as u64) {
            Some(left) => {
                self.allowance.steps.set(left);
                Ok(())
            }
            None => {
                self.allowance.steps.set(0);
                Err(Suspended::TooLong)
            }
        }
    }
}

/// The fields of an operation that messages show.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationFields {
    op: String,
    path: String,
    from: String,
}

/// Returns the message for a patch that cannot be read. It is upstream's for an operation of unknown kind, which
/// upstream finds only when it gets there.
fn unreadable(error: &PatchError, patch: &[u8]) -> String {
    let PatchError::Operation { index, .. } = error else { return error.to_string() };
    let operations: Vec<OperationFields> = serde_json::from_slice(patch).unwrap_or_default();
    match operations.get(*index) {
        Some(OperationFields { op, .. })
            if !matches!(&**op, "add" | "remove" | "replace" | "move" | "copy" | "test") =>
        {
            format!("Unexpected kind: {op}")
        }
        _ => error.to_string(),
    }
}

/// Returns the message for a patch that does not apply, in the words of upstream's library if it has one for that.
/// Source: `gopkg.in/evanphx/json-patch.v4`.
fn message(error: &PatchError, patch: &[u8]) -> String {
    const MISSING: &str = "missing value";
    let PatchError::Operation { index, fault, .. } = error else { return error.to_string() };
    let operations: Vec<OperationFields> = serde_json::from_slice(patch).unwrap_or_default();
    let Some(OperationFields { op, path, from }) = operations.get(*index) else { return error.to_string() };
    let unescaped = |path: &str| {
        let last = path.rsplit_once('/').map_or("", |(_, last)| last);
        pointer::unescaped(last).into_owned()
    };
    let key = unescaped(path);
    let out_of_range = || format!("Unable to access invalid index: {key}: invalid index referenced");
    let not_an_index = || format!("strconv.Atoi: parsing {key:?}: invalid syntax");
    match (&**op, fault) {
        ("add" | "remove", OperationFault::NoParent(_)) => {
            format!("{op} operation does not apply: doc is missing path: \"{path}\": {MISSING}")
        }
        ("add" | "remove", OperationFault::OutOfRange(_)) => {
            format!("error in {op} for path: '{path}': {}", out_of_range())
        }
        ("add", OperationFault::NotAnIndex(_)) => {
            format!("error in add for path: '{path}': value was not a proper array index: '{key}': {}", not_an_index())
        }
        ("remove", OperationFault::NotAnIndex(_)) => format!("error in remove for path: '{path}': {}", not_an_index()),
        ("remove", OperationFault::NoMember(_)) => {
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: {MISSING}")
        }
        ("replace", OperationFault::NoParent(_)) => {
            format!("replace operation does not apply: doc is missing path: {path}: {MISSING}")
        }
        ("replace", OperationFault::NoMember(_) | OperationFault::OutOfRange(_) | OperationFault::NotAnIndex(_)) => {
            format!("replace operation does not apply: doc is missing key: {path}: {MISSING}")
        }
        ("move" | "copy", OperationFault::NoParent("from")) => {
            format!("{op} operation does not apply: doc is missing from path: {from}: {MISSING}")
        }
        ("move" | "copy", OperationFault::NoParent(_)) => {
            format!("{op} operation does not apply: doc is missing destination path: {path}: {MISSING}")
        }
        ("test", OperationFault::NoParent(_) | OperationFault::NoMember(_)) => {
            format!("test operation does not apply: is missing path: {path}: {MISSING}")
        }
        ("move", OperationFault::NoMember("from")) => {
            let key = unescaped(from);
            format!("error in move for path: '{key}': Unable to remove nonexistent key: {key}: {MISSING}")
        }
        _ => error.to_string(),
    }
}
