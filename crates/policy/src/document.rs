//! The documents of policies and bindings as written, with defaults. Their shape was checked; expressions, names and
//! references between fields were not.

use gatepost_api::{FailurePolicy, HookType};

use crate::{Actions, MatchResources, ParamKind, ParamRef};

pub use gatepost_api::Reinvocation;

/// A ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
#[derive(Clone, Debug)]
pub struct PolicyDocument {
    /// `metadata.name`.
    pub name: Box<str>,
    /// Kind of the policy.
    pub hook_type: HookType,
    /// Treatment of requests for which the policy cannot be evaluated.
    pub failure_policy: FailurePolicy,
    /// Requests that the policy is about.
    pub match_constraints: MatchResources,
    /// Conditions that a request must meet.
    pub match_conditions: Vec<NamedExpression>,
    /// Kind of the params.
    pub param_kind: Option<ParamKind>,
    /// Variables, each of which may use those before it.
    pub variables: Vec<NamedExpression>,
    /// Validations of a validating policy.
    pub validations: Vec<ValidationDocument>,
    /// Audit annotations of a validating policy.
    pub audit_annotations: Vec<AuditAnnotationDocument>,
    /// Mutations of a mutating policy, each of the result of those before it.
    pub mutations: Vec<MutationDocument>,
    /// Whether mutations are evaluated again if the object changes after them.
    pub reinvocation: Reinvocation,
}

/// An expression with a name.
#[derive(Clone, Debug, Default)]
pub struct NamedExpression {
    /// The name.
    pub name: Box<str>,
    /// The expression.
    pub expression: Box<str>,
}

/// One of `spec.validations`.
#[derive(Clone, Debug, Default)]
pub struct ValidationDocument {
    /// Expression that is true for what is allowed.
    pub expression: Box<str>,
    /// Message of a denial; may be empty.
    pub message: Box<str>,
    /// Expression for the message of a denial; may be empty.
    pub message_expression: Box<str>,
    /// Reason of a denial.
    pub reason: Option<Box<str>>,
}

/// One of `spec.auditAnnotations`.
#[derive(Clone, Debug, Default)]
pub struct AuditAnnotationDocument {
    /// Key of the annotation, without the name of the policy.
    pub key: Box<str>,
    /// Expression for the value; null for no annotation.
    pub value_expression: Box<str>,
}

/// A binding of a policy.
#[derive(Clone, Debug)]
pub struct BindingDocument {
    /// `metadata.name`.
    pub name: Box<str>,
    /// Kind of the policy.
    pub hook_type: HookType,
    /// Name of the policy.
    pub policy_name: Box<str>,
    /// Params to evaluate the policy with.
    pub param_ref: Option<ParamRef>,
    /// Requests that the binding is about, among those of the policy; `None` for all of them.
    pub match_resources: Option<MatchResources>,
    /// Effects of a failed validation.
    pub actions: Actions,
}

/// One of `spec.mutations`.
#[derive(Clone, Debug)]
pub enum MutationDocument {
    /// Expression for a JSON patch.
    JsonPatch(Box<str>),
    /// Expression for an object that is applied.
    ApplyConfiguration(Box<str>),
}
