use gatepost_api::{HookType, Selector};

use super::*;
use crate::{ParamRef, ParamSelector};

fn mutating() -> Draft {
    Draft::new(HookType::Mutating)
}

/// `pkg/apis/admissionregistration/validation/validation_test.go` of kubernetes, TestValidateValidatingAdmissionPolicy:
/// what it refuses, other than shapes.
#[test]
fn faults_of_policies_are_those_of_kube_apiserver() {
    let valid = || Draft::validating().validation("object.spec.replicas < 5");
    let renamed = |name: &str| {
        let mut draft = valid().variable("v", "1");
        draft.document.variables[0].name = name.into();
        draft
    };
    let of_kind = |api_version: &str, kind: &str| {
        let mut draft = valid();
        draft.document.param_kind = Some(ParamKind { api_version: api_version.into(), kind: kind.into() });
        draft
    };
    let mut without_rules = valid();
    without_rules.document.match_constraints.rules.clear();
    let mut named = valid();
    named.document.match_constraints.rules[0].resource_names = vec!["a".into(), "a/b".into(), "a".into(), "..".into()];
    let mut conditions = valid().condition("true").condition("true").condition("");
    conditions.document.match_conditions[1].name = "c0".into();
    conditions.document.match_conditions[2].name = "not a name".into();
    for (draft, wanted) in [
        (Draft::validating(), vec!["validations: is empty"]),
        (without_rules, vec!["matchConstraints.resourceRules: is empty"]),
        (
            named,
            vec![
                "matchConstraints.resourceRules[0].resourceNames[1]: \"a/b\" is not a name",
                "matchConstraints.resourceRules[0].resourceNames[2]: \"a\" is listed twice",
                "matchConstraints.resourceRules[0].resourceNames[3]: \"..\" is not a name",
            ],
        ),
        (of_kind("example.com/v1", "ReplicaLimit"), vec![]),
        (of_kind("", "ConfigMap"), vec!["paramKind.apiVersion: \"\" is not a version"]),
        (of_kind("a/b/c", "ConfigMap"), vec!["paramKind.apiVersion: \"a/b/c\" is not a version"]),
        (of_kind("!/v1", "ConfigMap"), vec!["paramKind.apiVersion: \"!/v1\" is not a version"]),
        (of_kind("v1", "!"), vec!["paramKind.kind: \"!\" is not a kind"]),
        (
            conditions,
            vec![
                "matchConditions[1].name: \"c0\" is listed twice",
                "matchConditions[2].name: \"not a name\" is not a name",
                "matchConditions[2].expression: is empty",
            ],
        ),
        (Draft::validating().validation(" "), vec!["validations[0].expression: is empty"]),
        (valid().says("true", " ", "", None), vec!["validations[1].message: is empty"]),
        (valid().says("true", "a\nb", "", None), vec!["validations[1].message: has line breaks"]),
        (valid().says("true", "a\rb", "", None), vec!["validations[1].message: has line breaks"]),
        (valid().says("true", "\na\n", "", None), vec![]),
        (valid().says("true", "", " ", None), vec!["validations[1].messageExpression: is empty"]),
        (
            valid().says("true", "", "", Some("Unauthorized")),
            vec!["validations[1].reason: \"Unauthorized\" is not a reason"],
        ),
        (valid().annotation("a/b", "'x'"), vec!["auditAnnotations[0].key: \"a/b\" is not a name"]),
        (valid().annotation("a", "'x'").annotation("a", "'y'"), vec!["auditAnnotations[1].key: \"a\" is listed twice"]),
        (valid().annotation("a", ""), vec!["auditAnnotations[0].valueExpression: is empty"]),
        (
            valid().annotation("a", &format!("'{}'", "x".repeat(5120))),
            vec!["auditAnnotations[0].valueExpression: has more than 5120 bytes"],
        ),
        (renamed("v1"), vec![]),
        (valid().json_patch(SET), vec![]),
    ] {
        let found = draft.compile().map_or_else(
            |faults| faults.iter().map(|Fault { path, what, .. }| format!("{path}: {what}")).collect(),
            |_| Vec::new(),
        );
        assert_eq!(found, wanted);
    }
    for name in ["", "0a", "a-b", "true", "namespace", "while", "a__in__b"] {
        let faults = renamed(name).faults();
        assert!(faults.len() == 1 && faults[0].starts_with("variables[0].name: "), "{name}: {faults:?}");
    }
    let many = (0..21).fold(valid(), |draft, at| draft.annotation(&format!("k{at}"), "'x'"));
    assert_eq!(many.faults(), ["auditAnnotations: has 21 items; the limit is 20"]);
    let many = (0..65).fold(valid(), |draft, _| draft.condition("true"));
    assert_eq!(many.faults(), ["matchConditions: has 65 items; the limit is 64"]);
}

#[test]
fn faults_of_expressions_are_all_reported_once() {
    let draft = Draft::validating()
        .condition("variables.v")
        .condition("params.x")
        .variable("v", "nonsense")
        .variable("w", "variables.v + 1")
        .validation("variables.w == 2")
        .validation("1 + 1")
        .says("true", "", "authorizer.group('') == null ? 'a' : 'b'", None)
        .says("true", "", "true", None)
        .annotation("a", "1")
        .annotation("b", "variables.later");
    let faults = draft.faults();
    let paths: Vec<&str> = faults.iter().map(|fault| fault.split_once(": ").unwrap().0).collect();
    assert_eq!(
        paths,
        [
            "matchConditions[0].expression",
            "matchConditions[1].expression",
            "variables[0].expression",
            "validations[1].expression",
            "validations[2].messageExpression",
            "validations[3].messageExpression",
            "auditAnnotations[0].valueExpression",
            "auditAnnotations[1].valueExpression",
        ],
        "{faults:#?}"
    );
    assert!(faults[3].contains("must evaluate to bool"), "{faults:?}");
    assert!(faults[5].contains("must evaluate to string"), "{faults:?}");
    assert!(faults[6].contains("must evaluate to one of [string null_type]"), "{faults:?}");
}

#[test]
fn mutating_policies_have_mutations_and_patch_types() {
    assert_eq!(mutating().faults(), ["mutations: is empty"]);
    assert_eq!(mutating().json_patch(" ").faults(), ["mutations[0].jsonPatch.expression: is empty"]);
    let faults = mutating().json_patch("'x'").apply("[1]").faults();
    assert!(faults[0].starts_with("mutations[0].jsonPatch.expression: cannot be evaluated"), "{faults:?}");
    assert!(faults[1].starts_with("mutations[1].applyConfiguration.expression: cannot be evaluated"), "{faults:?}");
    let patch = "[JSONPatch{op: 'add', path: '/x', value: 1}]";
    assert!(mutating().json_patch(patch).apply("Object{spec: Object.spec{replicas: 1}}").compile().is_ok());
    assert!(Draft::validating().validation(&format!("{patch} != []")).compile().is_err());
}

#[test]
fn mutating_rules_name_no_delete() {
    let with = |operations: &[Operation]| {
        let mut draft = mutating().json_patch(SET);
        draft.document.match_constraints.rules[0].rule.operations = operations.to_vec();
        draft
    };
    assert_eq!(
        with(&[Operation::Create, Operation::Delete]).faults(),
        ["matchConstraints.resourceRules[0].operations: names DELETE"]
    );
    assert!(with(&[Operation::Create, Operation::Update, Operation::Connect]).compile().is_ok());
    assert!(with(&Operation::ALL).compile().is_ok(), "it may have been written as *");
}

#[test]
fn bindings_are_checked() {
    let document = BindingDocument {
        name: "b".into(),
        hook_type: HookType::Validating,
        policy_name: "p".into(),
        param_ref: None,
        match_resources: None,
        actions: DENY,
    };
    let of = |document: BindingDocument| match Binding::checked(document) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| format!("{}: {}", fault.path, fault.what)).collect(),
    };
    let named =
        |name: &str| ParamRef { which: ParamSelector::Name(name.into()), namespace: None, deny_if_not_found: true };
    assert_eq!(of(document.clone()), [""; 0]);
    let policy_name = "Not A Name".into();
    assert_eq!(of(BindingDocument { policy_name, ..document.clone() }), ["policyName: \"Not A Name\" is not a name"]);
    let param_ref = Some(named("a/b"));
    assert_eq!(of(BindingDocument { param_ref, ..document.clone() }), ["paramRef.name: \"a/b\" is not a name"]);
    let which = ParamSelector::Labels(Selector::default());
    let param_ref = Some(ParamRef { which, ..named("") });
    assert_eq!(of(BindingDocument { param_ref, ..document.clone() }), [""; 0]);
    let actions = Actions::default();
    assert_eq!(of(BindingDocument { actions, ..document.clone() }), ["validationActions: is empty"]);
    let hook_type = HookType::Mutating;
    assert_eq!(of(BindingDocument { actions, hook_type, ..document.clone() }), [""; 0]);
    let actions = Actions { warn: true, ..DENY };
    assert_eq!(of(BindingDocument { actions, ..document.clone() }), ["validationActions: holds Deny and Warn"]);
    let mut rules = vec![rule(&["*"], &["*"], &["*"])];
    rules[0].rule.operations = vec![Operation::Delete];
    let match_resources = Some(MatchResources { rules, ..MatchResources::default() });
    let mutates = BindingDocument { match_resources, hook_type, actions: Actions::default(), ..document };
    assert_eq!(of(mutates), ["matchResources.resourceRules[0].operations: names DELETE"]);
}

#[test]
fn definition_knows_what_its_expressions_use() {
    let of = |draft: Draft| {
        let definition = draft.compile().unwrap().definition;
        let uses = [
            (definition.reads_objects(), "objects"),
            (definition.uses_authorizer(), "authorizer"),
            (definition.uses_namespace(), "namespace"),
            (definition.uses_params(), "params"),
        ];
        uses.into_iter().filter_map(|(is_used, name)| is_used.then_some(name)).collect::<Vec<_>>().join(" ")
    };
    let valid = || Draft::validating().validation("true");
    assert_eq!(of(valid()), "");
    assert_eq!(of(valid().condition("oldObject == null")), "objects");
    assert_eq!(of(valid().condition("namespaceObject == null")), "", "there it is null");
    assert_eq!(of(valid().variable("v", "namespaceObject")), "", "nothing uses the variable");
    assert_eq!(
        of(valid().variable("v", "namespaceObject").annotation("a", "variables.v == null ? 'x' : 'y'")),
        "namespace"
    );
    assert_eq!(of(valid().params().says("true", "", "string(params.x)", None)), "params");
    assert_eq!(of(valid().params().condition("params == null")), "params");
    assert_eq!(of(valid().validation("authorizer.path('/x').check('get').allowed()")), "authorizer");
    assert_eq!(of(mutating().json_patch("[JSONPatch{op: 'add', path: '/x', value: object.y}]")), "objects");
}
