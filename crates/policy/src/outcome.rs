//! Outcomes of policies, in kube-apiserver's words. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/{validating/dispatcher,generic/policy_dispatcher}.go`.

use std::sync::Arc;

use gatepost_api::HookType;
use serde::{Serialize, Serializer};

use crate::{
    binding::{Actions, Binding},
    definition::{Policy, Reason},
};

/// Maximum number of denials and of warnings that are kept of one policy. Upstream has no limit.
const MAX_KEPT: usize = 64;

/// Maximum number of audited failures of one request, as upstream.
const MAX_AUDITED_FAILURES: usize = 50;

/// Maximum length of one value of an audit annotation in bytes, as upstream.
const MAX_ANNOTATION_BYTES: usize = 10 << 10;

/// Maximum length in bytes of all values of audit annotations of one policy. Upstream has no limit.
const MAX_ANNOTATIONS_BYTES: usize = 256 << 10;

/// Maximum number of different values of one audit annotation. Upstream has no limit.
const MAX_ANNOTATION_VALUES: usize = 64;

/// A denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Name of the binding; `None` if the policy itself cannot be evaluated.
    pub binding: Option<Arc<str>>,
    /// Message. Upstream puts `<resource> "<name>" is forbidden: ` before that of a validating policy.
    pub message: String,
    /// Reason of the status.
    pub reason: Reason,
    /// HTTP status code.
    pub code: i32,
    /// True if the policy could not be evaluated.
    pub is_error: bool,
}

/// A failed validation of a binding with the effect `Audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditedFailure {
    /// Message.
    pub message: String,
    /// Name of the policy.
    pub policy: String,
    /// Name of the binding.
    pub binding: String,
    /// Index of the validation.
    pub expression_index: usize,
    /// Effects of the binding.
    #[serde(serialize_with = "names")]
    pub validation_actions: Actions,
}

fn names<S: Serializer>(actions: &Actions, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(actions.names())
}

impl AuditedFailure {
    /// Key of the audit annotation with all failures of a request.
    pub const KEY: &'static str = "validation.policy.admission.k8s.io/validation_failure";

    /// Returns the value of this annotation; `None` if there are no failures. Failures beyond upstream's limit are left
    /// out.
    pub fn annotation(failures: &[Self]) -> Option<String> {
        let kept = &failures[..failures.len().min(MAX_AUDITED_FAILURES)];
        if kept.is_empty() {
            return None;
        }
        let text = serde_json::to_string(kept).ok()?;
        // Go escapes these. They occur only in strings.
        const ESCAPED: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        let mut escaped = String::with_capacity(text.len());
        for part in text.split_inclusive(ESCAPED) {
            match part.chars().next_back().filter(|last| ESCAPED.contains(last)) {
                Some(last) => {
                    escaped.push_str(&part[..part.len() - last.len_utf8()]);
                    escaped.push_str(&format!("\\u{:04x}", u32::from(last)));
                }
                None => escaped.push_str(part),
            }
        }
        Some(escaped)
    }
}

/// Outcome of one policy for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Denials in upstream's order. The client gets the first.
    pub denials: Vec<Denial>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Audit annotations. Keys are without the name of the policy.
    pub audit_annotations: Vec<(String, String)>,
    /// Failed validations for the audit annotation [`AuditedFailure::KEY`], which all policies of a request share.
    pub failures: Vec<AuditedFailure>,
    /// Number of evaluations that failed without an effect, because the failure policy is Ignore.
    pub failed_open: usize,
    /// True if match conditions exclude the request from every evaluation.
    pub is_excluded: bool,
    /// Cost of validations, messages and audit annotations, in upstream's units.
    pub cost: u64,
}

impl Outcome {
    /// Adds a denial, unless there are many. The message is without the names of the policy and the binding.
    pub(super) fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, reason: Reason, error: Error, why: &str) {
        if self.denials.len() >= MAX_KEPT {
            return;
        }
        let name = &policy.definition.name;
        let is_mutating = policy.definition.hook_type == HookType::Mutating;
        let message = match (binding, is_mutating) {
            (Some(Binding { name: bound, .. }), false) => {
                format!("ValidatingAdmissionPolicy '{name}' with binding '{bound}' denied request: {why}")
            }
            (None, false) => format!("ValidatingAdmissionPolicy '{name}' denied request: {why}"),
            (Some(Binding { name: bound, .. }), true) => {
                format!("policy '{name}' with binding '{bound}' denied request: {why}")
            }
            (None, true) => format!("policy \"{name}\" denied request: {why}"),
        };
        self.denials.push(Denial {
            binding: binding.map(|binding| Arc::clone(&binding.name)),
            message,
            reason,
            code: if is_mutating { Reason::Forbidden.code() } else { reason.code() },
            is_error: error == Error::Yes,
        });
    }

    /// Adds the failure of an evaluation: a denial, or nothing if the failure policy is Ignore.
    pub(super) fn fail(&mut self, policy: &Policy, binding: Option<&Binding>, reason: Reason, why: &str) {
        match policy.ignores_errors() {
            true => self.failed_open += 1,
            false => self.deny(policy, binding, reason, Error::Yes, why),
        }
    }

    /// Adds the denials and failures of another evaluation of the same policy.
    pub fn join(&mut self, other: Self) {
        let room = MAX_KEPT.saturating_sub(self.denials.len());
        self.denials.extend(other.denials.into_iter().take(room));
        self.failed_open += other.failed_open;
        self.cost = self.cost.saturating_add(other.cost);
    }

    /// Adds a failure that comes before any evaluation.
    pub(super) fn fail_configuration(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let reason = match policy.definition.hook_type {
            HookType::Validating => Reason::Invalid,
            HookType::Mutating => Reason::Forbidden,
        };
        self.fail(policy, binding, reason, &format!("failed to configure {what}: {why}"));
    }

    /// Adds a warning, unless there are many.
    pub(super) fn warn(&mut self, policy: &str, binding: &str, why: &str) {
        if self.warnings.len() < MAX_KEPT {
            self.warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {why}"
            ));
        }
    }

    /// Adds a failed validation, unless there are many.
    pub(super) fn audit(&mut self, policy: &Policy, binding: &Binding, index: usize, why: &str) {
        if self.failures.len() < MAX_AUDITED_FAILURES {
            self.failures.push(AuditedFailure {
                message: why.to_owned(),
                policy: policy.definition.name.to_string(),
                binding: binding.name.to_string(),
                expression_index: index,
                validation_actions: binding.actions,
            });
        }
    }
}

/// Whether a denial is due to an evaluation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// It is.
    Yes,
    /// A validation is false.
    No,
}

/// Returns the outcome of a policy that cannot be evaluated: its selectors cannot be compared, or the object is not in
/// a version of its rules.
pub fn failed(policy: &Policy, why: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.fail_configuration(policy, None, why);
    outcome
}

/// Returns the outcome of a binding that cannot be evaluated: its selectors cannot be compared, or its params are not
/// known.
pub fn binding_failed(policy: &Policy, binding: &Binding, why: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.fail_configuration(policy, Some(binding), why);
    outcome
}

/// Collects the values of audit annotations over all bindings of a policy.
#[derive(Debug, Default)]
pub(super) struct AnnotationCollector<'a> {
    values: Vec<(&'a str, Vec<String>)>,
    bytes: usize,
}

impl<'a> AnnotationCollector<'a> {
    /// Adds a value. As upstream, a value that is there is not added again, and a long one is cut.
    pub(super) fn add(&mut self, key: &'a str, mut value: String) {
        if value.len() > MAX_ANNOTATION_BYTES {
            let end = value.floor_char_boundary(MAX_ANNOTATION_BYTES);
            value.truncate(end);
            // Go cuts within a character, and writes each byte of its beginning as a replacement character.
            (end..MAX_ANNOTATION_BYTES).for_each(|_| value.push(char::REPLACEMENT_CHARACTER));
        }
        let at = self.values.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            self.values.push((key, Vec::new()));
            self.values.len() - 1
        });
        let known = &mut self.values[at].1;
        let has_room = known.len() < MAX_ANNOTATION_VALUES && self.bytes + value.len() <= MAX_ANNOTATIONS_BYTES;
        if has_room && !known.contains(&value) {
            self.bytes += value.len();
            known.push(value);
        }
    }

    /// Returns the annotations. As upstream, several values are joined.
    pub(super) fn finish(self) -> Vec<(String, String)> {
        let annotation = |(key, values): (&str, Vec<String>)| (key.to_owned(), values.join(", "));
        self.values.into_iter().filter(|(_, values)| !values.is_empty()).map(annotation).collect()
    }
}
