//! Kubernetes' admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, compiled and decided as
//! kube-apiserver does.
//!
//! ```
//! # use std::{cell::Cell, sync::Arc};
//! # use gatepost_api::{Enforcement, FailurePolicy, HookType, MatchPolicy, Operation, Rule, Scope};
//! # use gatepost_cel::{AccessDecisions, Allowance, Input, JsonDocument, Request, User};
//! # use gatepost_policy::{Actions, Binding, Bound, Definition, MatchResources, NamedRule, Policy, decide};
//! # use gatepost_policy::document::*;
//! # let rule = Rule {
//! #     operations: Operation::ALL.into(),
//! #     api_groups: vec!["apps".into()],
//! #     api_versions: vec!["v1".into()],
//! #     resources: vec!["deployments".into()],
//! #     scope: Scope::Any,
//! # };
//! # let rules = vec![NamedRule { rule, resource_names: vec![] }];
//! # let definition = Definition::compile(PolicyDocument {
//! #     name: "replicas".into(),
//! #     hook_type: HookType::Validating,
//! #     failure_policy: FailurePolicy::Fail,
//! #     match_constraints: MatchResources { rules, ..MatchResources::default() },
//! #     match_conditions: vec![],
//! #     param_kind: None,
//! #     variables: vec![],
//! #     validations: vec![ValidationDocument {
//! #         expression: "object.spec.replicas <= 5".into(),
//! #         ..ValidationDocument::default()
//! #     }],
//! #     audit_annotations: vec![],
//! #     mutations: vec![],
//! #     reinvocation: Reinvocation::Never,
//! # }).unwrap();
//! # let binding = Binding::checked(BindingDocument {
//! #     name: "everywhere".into(),
//! #     hook_type: HookType::Validating,
//! #     policy_name: "replicas".into(),
//! #     param_ref: None,
//! #     match_resources: None,
//! #     actions: Actions { deny: true, ..Actions::default() },
//! # }).unwrap();
//! // A policy with the validation `object.spec.replicas <= 5`, and its binding:
//! let (definition, bindings) = (Arc::new(definition), vec![Arc::new(binding)]);
//! let policy = Policy { definition, bindings, fails_open: false, enforcement: Enforcement::Deny, schemas: Arc::default() };
//! let input = Input {
//!     request: Request::new(|| Ok(User::default())),
//!     object: Some(JsonDocument::new(br#"{"spec":{"replicas":6}}"#.as_slice().into())),
//!     old_object: None,
//!     namespace: None,
//!     decisions: AccessDecisions::default(),
//! };
//! let bound = [Bound { binding: &policy.bindings[0], params: Ok(&[None]) }];
//! let steps = Cell::new(1_000_000);
//! let outcome = decide(&policy, bound, &input, &Allowance { steps: &steps, over: &|| false }).unwrap();
//! assert_eq!(
//!     outcome.denials[0].message,
//!     "ValidatingAdmissionPolicy 'replicas' with binding 'everywhere' denied request: \
//!      failed expression: object.spec.replicas <= 5"
//! );
//! ```
//!
//! `document` has policies and bindings as they are written, `check` what kube-apiserver refuses, `definition` and
//! `binding` what they become. `matching` compares rules. `decide` decides a validating policy, and `outcome` has the
//! words. `mutate` applies mutations to an object, and `configuration` those that are merged into it, by the types of
//! `schema`.
//!
//! Nothing here blocks, reads a clock or calls anything. The caller compares selectors, and finds params, namespaces
//! and decisions of the authorizer. An evaluation that lacks such a decision, or takes too many steps, is suspended:
//! the caller evaluates again.
//!
//! The upstream is `k8s.io/apiserver/pkg/admission/plugin/policy`, in the version that `tests/policies` names.
//! Messages, their order, and costs are upstream's; the limits on how much one policy may say are this crate's. Of
//! schemas, which upstream has for mutations, there are only those by which configurations are applied: of built-in kinds,
//! and of the custom resources whose definitions the caller has. A JSON patch may leave an object that its type does not
//! allow, and an apply configuration for any other kind fails where it would have to merge a list. A policy with two
//! variables of one name, of which upstream uses the last, is refused.

mod binding;
mod check;
mod configuration;
mod decide;
mod definition;
pub mod document;
mod explain;
mod matching;
mod mutate;
mod outcome;
mod schema;
mod suspended;
#[cfg(test)]
mod tests;

pub use self::{
    binding::{Actions, Binding, PARAMS_NOT_FOUND, ParamRef, ParamSelector},
    check::Fault,
    decide::{Bound, decide, decide_into},
    definition::{Definition, Policy, Reason},
    explain::{Explanation, explain},
    matching::{MatchResources, NamedRule, ParamKind},
    mutate::{Mutated, MutationLimits, mutate},
    outcome::{AuditedFailure, Denial, Outcome, binding_failed, failed},
    schema::{CustomSchema, CustomSchemas, has_schema, is_custom_group},
    suspended::Suspended,
};
