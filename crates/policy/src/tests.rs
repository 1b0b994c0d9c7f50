//! Tests, many of which are upstream's tables: `k8s.io/apiserver/pkg/admission/plugin/policy` v0.37.2.

mod compile;
mod decide;
mod matching;
mod mutate;

use std::{cell::Cell, sync::Arc};

use gatepost_api::{FailurePolicy, HookType, Operation, Rule, Scope};
use gatepost_cel::{AccessDecisions, Allowance, Input, JsonDocument, Request, User};

use crate::{
    Actions, Binding, Bound, Definition, Fault, MatchResources, NamedRule, Outcome, ParamKind, Policy, Suspended,
    document::{
        AuditAnnotationDocument, BindingDocument, MutationDocument, NamedExpression, PolicyDocument, Reinvocation,
        ValidationDocument,
    },
};

/// A mutation.
const SET: &str = "[JSONPatch{op: 'add', path: '/x', value: 1}]";

const DENY: Actions = Actions { deny: true, warn: false, audit: false, audit_first: false };

fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> NamedRule {
    let texts = |all: &[&str]| all.iter().map(|text| Box::from(*text)).collect();
    let rule = Rule {
        operations: Operation::ALL.into(),
        api_groups: texts(groups),
        api_versions: texts(versions),
        resources: texts(resources),
        scope: Scope::Any,
    };
    NamedRule { rule, resource_names: Vec::new() }
}

/// A policy to be compiled, and its bindings.
struct Draft {
    document: PolicyDocument,
    actions: Vec<Actions>,
}

impl Draft {
    fn new(hook_type: HookType) -> Self {
        let rules = vec![rule(&["*"], &["*"], &["*"])];
        Self {
            document: PolicyDocument {
                name: "p".into(),
                hook_type,
                failure_policy: FailurePolicy::Fail,
                match_constraints: MatchResources { rules, ..MatchResources::default() },
                match_conditions: Vec::new(),
                param_kind: None,
                variables: Vec::new(),
                validations: Vec::new(),
                audit_annotations: Vec::new(),
                mutations: Vec::new(),
                reinvocation: Reinvocation::Never,
            },
            actions: vec![DENY],
        }
    }

    fn validating() -> Self {
        Self::new(HookType::Validating)
    }

    fn ignore(mut self) -> Self {
        self.document.failure_policy = FailurePolicy::Ignore;
        self
    }

    fn params(mut self) -> Self {
        self.document.param_kind = Some(ParamKind { api_version: "v1".into(), kind: "ConfigMap".into() });
        self
    }

    fn condition(mut self, expression: &str) -> Self {
        let name = format!("c{}", self.document.match_conditions.len()).into();
        self.document.match_conditions.push(NamedExpression { name, expression: expression.into() });
        self
    }

    fn variable(mut self, name: &str, expression: &str) -> Self {
        self.document.variables.push(NamedExpression { name: name.into(), expression: expression.into() });
        self
    }

    fn validation(self, expression: &str) -> Self {
        self.says(expression, "", "", None)
    }

    /// Adds a validation with a message, an expression for it, and a reason.
    fn says(mut self, expression: &str, message: &str, message_expression: &str, reason: Option<&str>) -> Self {
        self.document.validations.push(ValidationDocument {
            expression: expression.into(),
            message: message.into(),
            message_expression: message_expression.into(),
            reason: reason.map(Box::from),
        });
        self
    }

    fn annotation(mut self, key: &str, value_expression: &str) -> Self {
        let annotation = AuditAnnotationDocument { key: key.into(), value_expression: value_expression.into() };
        self.document.audit_annotations.push(annotation);
        self
    }

    fn json_patch(mut self, expression: &str) -> Self {
        self.document.mutations.push(MutationDocument::JsonPatch(expression.into()));
        self
    }

    fn apply(mut self, expression: &str) -> Self {
        self.document.mutations.push(MutationDocument::ApplyConfiguration(expression.into()));
        self
    }

    fn actions(self, actions: &[Actions]) -> Self {
        Self { actions: actions.to_vec(), ..self }
    }

    fn compile(self) -> Result<Policy, Vec<Fault>> {
        let hook_type = self.document.hook_type;
        let definition = Definition::compile(self.document)?;
        let binding = |(at, actions): (usize, &Actions)| {
            let document = BindingDocument {
                name: format!("b{at}").into(),
                hook_type,
                policy_name: "p".into(),
                param_ref: None,
                match_resources: None,
                actions: if hook_type == HookType::Validating { *actions } else { Actions::default() },
            };
            Ok(Arc::new(Binding::checked(document)?))
        };
        let bindings = self.actions.iter().enumerate().map(binding).collect::<Result<_, Vec<Fault>>>()?;
        Ok(Policy {
            definition: Arc::new(definition),
            bindings,
            fails_open: false,
            enforcement: Default::default(),
            schemas: Arc::default(),
        })
    }

    fn faults(self) -> Vec<String> {
        let faults = self.compile().unwrap_err();
        faults.into_iter().map(|Fault { path, what, .. }| format!("{path}: {what}")).collect()
    }
}

fn json(text: &str) -> JsonDocument<'_> {
    JsonDocument::new(text.as_bytes().into())
}

fn input(object: &str) -> Input<'_> {
    Input {
        request: Request::new(|| Ok(User::default())),
        object: Some(json(object)),
        old_object: None,
        namespace: None,
        decisions: AccessDecisions::default(),
    }
}

/// Evaluates the policy for each binding, with the params of all.
fn decide_with(policy: &Policy, params: &[Option<&str>], input: &Input<'_>) -> Result<Outcome, Suspended> {
    let params: Vec<Option<JsonDocument<'_>>> = params.iter().map(|param| param.map(json)).collect();
    let bound = policy.bindings.iter().map(|binding| Bound { binding, params: Ok(&params) });
    let steps = Cell::new(100_000_000);
    crate::decide(policy, bound, input, &Allowance { steps: &steps, over: &|| false })
}

fn decide(draft: Draft, object: &str) -> Outcome {
    decide_with(&draft.compile().unwrap(), &[None], &input(object)).unwrap()
}

/// Returns the messages of the denials, without the names of policy and binding.
fn messages(outcome: &Outcome) -> Vec<&str> {
    let inner = |message: &str| message.find("denied request: ").map(|at| at + "denied request: ".len());
    outcome.denials.iter().map(|denial| &denial.message[inner(&denial.message).unwrap()..]).collect()
}
