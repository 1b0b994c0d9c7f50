//! Explains why expressions of a policy are not true. It is for tests of policies: an explanation shows contents of the
//! objects.

use gatepost_cel::{Allowance, Environment, Expected, Expression, Input, JsonDocument};

use crate::{
    decide::PolicyEvaluation,
    definition::{Definition, Policy},
    matching::ParamKind,
};

/// Explanation of one expression that is false or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Path of the expression below `spec`, such as `validations[0].expression`.
    pub path: String,
    /// Expression as it was written.
    pub expression: String,
    /// Parts of the expression that decided, each with its value or error.
    pub parts: Vec<(String, String)>,
}

/// Explains the validations of a policy that are not true for a request and a param. If a match condition is not true,
/// explains the match conditions instead: the validations are then not evaluated.
///
/// Returns nothing if the object or the param is a Secret.
pub fn explain(
    policy: &Policy,
    param: Option<&JsonDocument<'_>>,
    input: &Input<'_>,
    allowance: &Allowance<'_>,
) -> Vec<Explanation> {
    let definition = &*policy.definition;
    if is_secret(definition, input) {
        return Vec::new();
    }
    let evaluation = PolicyEvaluation { definition, input, param, allowance };
    let mut environment = Environment::policy(definition.param_kind.is_some()).of_version(definition.version);
    let evaluator = evaluation.evaluator().without_namespace();
    let conditions = definition.conditions.iter().enumerate().filter_map(|(index, condition)| {
        let expression = Expression::compile(&condition.expression, &environment, Expected::Bool).ok()?;
        let parts = expression.explain(&environment, &evaluator, allowance);
        explanation(format!("matchConditions[{index}].expression"), &condition.expression, parts)
    });
    let conditions: Vec<_> = conditions.collect();
    if !conditions.is_empty() {
        return conditions;
    }
    for (name, variable) in &definition.variables {
        // The policy was compiled with the same names.
        let _ = environment.declare(name, variable);
    }
    let evaluator = evaluation.evaluator();
    let validations = definition.validations.iter().enumerate().filter_map(|(index, validation)| {
        let parts = validation.expression.explain(&environment, &evaluator, allowance);
        explanation(format!("validations[{index}].expression"), validation.expression.text(), parts)
    });
    validations.collect()
}

/// Returns the explanation of an expression; `None` if it is true.
fn explanation(path: String, expression: &str, parts: Vec<(String, String)>) -> Option<Explanation> {
    let expression = expression.trim().to_owned();
    (!parts.is_empty()).then_some(Explanation { path, expression, parts })
}

/// Returns true if an explanation could show what a Secret holds.
fn is_secret(definition: &Definition, input: &Input<'_>) -> bool {
    let is_secret = |[group, _, kind]: [&str; 3]| group.is_empty() && kind == "Secret";
    let is_secret_param = |ParamKind { api_version, kind }: &ParamKind| **api_version == *"v1" && **kind == *"Secret";
    is_secret(input.request.kind)
        || is_secret(input.request.request_kind)
        || definition.param_kind.as_ref().is_some_and(is_secret_param)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use gatepost_api::{FailurePolicy, HookType};
    use gatepost_cel::{AccessDecisions, Request, User};

    use super::*;
    use crate::{
        MatchResources,
        document::{NamedExpression, PolicyDocument, Reinvocation, ValidationDocument},
    };

    fn named(name: &str, expression: &str) -> NamedExpression {
        NamedExpression { name: name.into(), expression: expression.into() }
    }

    fn policy(condition: &str) -> Policy {
        let rule = gatepost_api::Rule {
            operations: gatepost_api::Operation::ALL.into(),
            api_groups: vec!["*".into()],
            api_versions: vec!["*".into()],
            resources: vec!["*".into()],
            scope: gatepost_api::Scope::Any,
        };
        let rules = vec![crate::NamedRule { rule, resource_names: vec![] }];
        let validation = |expression: &str| ValidationDocument {
            expression: expression.into(),
            message: Box::default(),
            message_expression: Box::default(),
            reason: None,
        };
        let definition = Definition::compile(PolicyDocument {
            name: "p".into(),
            hook_type: HookType::Validating,
            failure_policy: FailurePolicy::Fail,
            match_constraints: MatchResources { rules, ..MatchResources::default() },
            match_conditions: vec![named("only", condition)],
            param_kind: None,
            variables: vec![named("most", "5")],
            validations: vec![validation("true"), validation("object.n <= variables.most && object.n > 0")],
            audit_annotations: vec![],
            mutations: vec![],
            reinvocation: Reinvocation::Never,
        });
        Policy {
            definition: Arc::new(definition.unwrap()),
            bindings: vec![],
            fails_open: false,
            enforcement: Default::default(),
            schemas: Arc::default(),
        }
    }

    fn explained(policy: &Policy, kind: &str, object: &str) -> Vec<String> {
        let mut request = Request::new(|| Ok(User::default()));
        request.kind = ["", "v1", kind];
        let object = Some(JsonDocument::new(object.as_bytes().into()));
        let input = Input { request, object, old_object: None, namespace: None, decisions: AccessDecisions::default() };
        let steps = Cell::new(u64::MAX);
        let allowance = Allowance { steps: &steps, over: &|| false };
        let shown = |of: Explanation| {
            of.parts.into_iter().map(|(part, value)| format!("{}: {part} = {value}", of.path)).collect::<Vec<_>>()
        };
        explain(policy, None, &input, &allowance).into_iter().flat_map(shown).collect()
    }

    #[test]
    fn explanation_has_the_false_parts_of_false_validations() {
        let parts = [
            "validations[1].expression: object.n <= variables.most = false",
            "validations[1].expression: object.n = 6",
            "validations[1].expression: variables.most = 5",
        ];
        assert_eq!(explained(&policy("true"), "Pod", r#"{"n":6}"#), parts);
        assert!(explained(&policy("true"), "Pod", r#"{"n":5}"#).is_empty());
    }

    #[test]
    fn explanation_of_an_excluded_request_is_that_of_the_condition() {
        let parts =
            ["matchConditions[0].expression: object.n != 6 = false", "matchConditions[0].expression: object.n = 6"];
        assert_eq!(explained(&policy("object.n != 6"), "Pod", r#"{"n":6}"#), parts);
    }

    #[test]
    fn secrets_are_not_explained() {
        assert!(explained(&policy("true"), "Secret", r#"{"n":6}"#).is_empty());
    }
}
