use gatepost_api::HookType;
use gatepost_cel::{Allowance, OUT_OF_BUDGET};

use super::*;
use crate::{AuditedFailure, Reason, failed};

const OBJECT: &str = r#"{"metadata":{"name":"a"},"spec":{"replicas":6}}"#;

/// Expression that is an error.
const ERROR: &str = "object.missing == 1";
const ERROR_TEXT: &str = "expression 'object.missing == 1' resulted in error: no such key: missing";

/// Returns an expression that is true and costs half a million, and the object that it needs.
fn costly() -> (String, String) {
    let object = format!(r#"{{"text":"{}"}}"#, "a".repeat(10_000));
    (format!("!object.text.matches('{}')", "b".repeat(2000)), object)
}

/// Policies of `validating/validator_test.go`, TestValidate: failure policies and errors.
#[test]
fn failure_policy_decides_about_errors() {
    for (draft, wanted, failed_open) in [
        (Draft::validating().validation("true"), vec![], 0),
        (Draft::validating().validation("true").validation("true"), vec![], 0),
        (Draft::validating().validation(ERROR).ignore(), vec![], 1),
        (Draft::validating().validation(ERROR), vec![ERROR_TEXT], 0),
        (Draft::validating().validation("true").validation(ERROR).ignore(), vec![], 1),
        (Draft::validating().validation("true").validation(ERROR), vec![ERROR_TEXT], 0),
        (Draft::validating().validation(ERROR).validation(ERROR).ignore(), vec![], 2),
        (Draft::validating().validation(ERROR).validation(ERROR), vec![ERROR_TEXT, ERROR_TEXT], 0),
        (Draft::validating().validation("false").ignore(), vec!["failed expression: false"], 0),
    ] {
        let outcome = decide(draft, OBJECT);
        assert_eq!((messages(&outcome), outcome.failed_open), (wanted, failed_open));
        assert!(!outcome.is_excluded);
    }
}

/// Reasons of the same table.
#[test]
fn reason_decides_the_code() {
    let expression = "object.spec.replicas <= 5";
    let reasons = [
        (None, Reason::Invalid, 422),
        (Some("Invalid"), Reason::Invalid, 422),
        (Some("Forbidden"), Reason::Forbidden, 403),
        (Some("RequestEntityTooLarge"), Reason::RequestEntityTooLarge, 413),
    ];
    for (written, reason, code) in reasons {
        let outcome = decide(Draft::validating().says(expression, "", "", written), OBJECT);
        let [denial] = &*outcome.denials else { panic!("{outcome:?}") };
        assert_eq!((denial.reason, denial.code, denial.is_error), (reason, code, false));
        assert_eq!(
            denial.message,
            "ValidatingAdmissionPolicy 'p' with binding 'b0' denied request: \
             failed expression: object.spec.replicas <= 5"
        );
        assert_eq!(denial.binding.as_deref(), Some("b0"));
    }
    let denial = decide(Draft::validating().says(ERROR, "", "", Some("Forbidden")), OBJECT).denials.remove(0);
    assert_eq!((denial.reason, denial.code, denial.is_error), (Reason::Invalid, 422, true), "an error has no reason");
}

/// Messages of the same table.
#[test]
fn unusable_message_expression_gives_way_to_the_message_and_then_to_the_expression() {
    let long = format!("'{}'", "x".repeat(5 * 1024 + 1));
    let longest = format!("'{}'", "x".repeat(5 * 1024));
    for (message, message_expression, wanted) in [
        ("test", "", "test"),
        (" test ", "", "test"),
        ("", "'evaluated message'", "evaluated message"),
        ("I am overwritten", "'evaluated message'", "evaluated message"),
        ("test1", "'a' + string(object.missing)", "test1"),
        ("test1", "' '", "test1"),
        ("test1", "'hello\\nthere'", "test1"),
        ("", "'\\n hello \\n'", "hello"),
        ("test1", "'hello\\rthere'", "hello\rthere"),
        ("test1", &long, "test1"),
        ("test1", &longest, &longest[1..longest.len() - 1]),
        ("", "''", "failed expression: 1 == 2"),
    ] {
        let outcome = decide(Draft::validating().says(" 1 == 2\n", message, message_expression, None), OBJECT);
        assert_eq!(messages(&outcome), [wanted], "{message:?}, {:.20}", message_expression);
    }
    let both = Draft::validating().says("false", "I am not overwritten", "", None).says(
        "false",
        "I am overwritten",
        "'evaluated message'",
        None,
    );
    assert_eq!(messages(&decide(both, OBJECT)), ["I am not overwritten", "evaluated message"]);
}

#[test]
fn conditions_exclude_before_they_fail() {
    let validated = || Draft::validating().validation("false");
    let excluded = decide(validated().condition(ERROR).condition("object.spec.replicas == 1"), OBJECT);
    assert!(excluded.is_excluded && excluded.denials.is_empty());
    let matched = decide(validated().condition("object.spec.replicas == 6").condition("true"), OBJECT);
    assert!(!matched.is_excluded);
    assert_eq!(messages(&matched), ["failed expression: false"]);
    let failed = decide(validated().condition(ERROR).condition("true"), OBJECT);
    assert_eq!((messages(&failed), failed.is_excluded), (vec![ERROR_TEXT], false));
    assert!(failed.denials[0].is_error);
    let failed = decide(validated().condition(ERROR).condition("object.other == 1"), OBJECT);
    assert_eq!(
        messages(&failed),
        [format!("[{ERROR_TEXT}, expression 'object.other == 1' resulted in error: no such key: other]")]
    );
    let ignored = decide(validated().condition(ERROR).ignore(), OBJECT);
    assert_eq!((ignored.denials.len(), ignored.failed_open, ignored.is_excluded), (0, 1, false));
}

#[test]
fn failed_conditions_have_the_effects_of_the_binding() {
    let audit = Actions { audit: true, ..Actions::default() };
    let outcome = decide(Draft::validating().condition(ERROR).validation("true").actions(&[audit]), OBJECT);
    assert!(outcome.denials.is_empty() && !outcome.is_excluded);
    assert_eq!((outcome.failures.len(), outcome.failures[0].expression_index), (1, 0));
    assert_eq!(outcome.failures[0].message, ERROR_TEXT);
}

#[test]
fn conditions_with_params_are_decided_for_each_param() {
    let draft = Draft::validating().params().condition("params.data.use == 'yes'").validation("false");
    let params = [Some(r#"{"data":{"use":"yes"}}"#), Some(r#"{"data":{"use":"no"}}"#)];
    let outcome = decide_with(&draft.compile().unwrap(), &params, &input(OBJECT)).unwrap();
    assert_eq!((outcome.denials.len(), outcome.is_excluded), (1, false));
}

#[test]
fn namespace_object_is_null_in_conditions_only() {
    let namespace = r#"{"metadata":{"name":"n"}}"#;
    let draft = Draft::validating().condition("namespaceObject == null").says(
        "namespaceObject == null",
        "",
        "'in ' + namespaceObject.metadata.name",
        None,
    );
    let input = Input { namespace: Some(json(namespace)), ..input(OBJECT) };
    assert_eq!(messages(&decide_with(&draft.compile().unwrap(), &[None], &input).unwrap()), ["in n"]);
}

#[test]
fn variables_are_evaluated_once_for_each_kind_of_expression() {
    let one = decide(Draft::validating().variable("v", "object.spec.replicas > 5").validation("variables.v"), OBJECT);
    let two = Draft::validating().variable("v", "object.spec.replicas > 5").validation("variables.v");
    let two = decide(two.validation("variables.v"), OBJECT);
    let plain = decide(Draft::validating().validation("object.spec.replicas > 5"), OBJECT);
    // A use of a variable costs two, as upstream counts it.
    let use_cost = one.cost - plain.cost;
    assert_eq!(two.cost, plain.cost + 2 * use_cost);
    let said = Draft::validating().variable("v", "object.spec.replicas > 5");
    let said = decide(said.says("variables.v", "", "string(variables.v)", None), OBJECT);
    assert!(said.cost > one.cost + plain.cost, "a message evaluates it again");
}

#[test]
fn variable_at_fault_is_an_error_of_what_uses_it() {
    let draft = Draft::validating().variable("v", "object.missing").validation("true").validation("variables.v == 1");
    assert_eq!(
        messages(&decide(draft, OBJECT)),
        ["expression 'variables.v == 1' resulted in error: \
          composited variable \"v\" fails to evaluate: no such key: missing"]
    );
}

#[test]
fn each_param_is_validated_and_a_missing_one_is_null() {
    let limit = "object.spec.replicas <= (params == null ? 5 : int(params.data.max))";
    let policy = Draft::validating().params().says(limit, "", "'max ' + string(params.data.max)", None).compile();
    let policy = policy.unwrap();
    let (ten, two) = (r#"{"data":{"max":"10"}}"#, r#"{"data":{"max":"2"}}"#);
    let outcome = |params: &[Option<&str>]| decide_with(&policy, params, &input(OBJECT)).unwrap();
    assert_eq!(messages(&outcome(&[Some(ten)])), [""; 0]);
    assert_eq!(messages(&outcome(&[Some(ten), Some(two), Some(two)])), ["max 2", "max 2"]);
    assert_eq!(messages(&outcome(&[None])), [format!("failed expression: {limit}")]);
    assert_eq!(outcome(&[]), Outcome::default());
}

/// Actions of `validating/admission_test.go`: TestAuditValidationAction, TestWarnValidationAction and
/// TestAllValidationActions.
#[test]
fn actions_of_each_binding_take_effect() {
    let audit = Actions { audit: true, ..Actions::default() };
    let warn_and_audit = Actions { warn: true, audit: true, audit_first: true, ..Actions::default() };
    let draft = Draft::validating().validation("true").says("false", "I'm sorry Dave", "", None);
    let outcome = decide(draft.actions(&[audit, warn_and_audit, DENY]), OBJECT);
    assert_eq!(
        outcome.denials.iter().map(|denial| &*denial.message).collect::<Vec<_>>(),
        ["ValidatingAdmissionPolicy 'p' with binding 'b2' denied request: I'm sorry Dave"]
    );
    assert_eq!(
        outcome.warnings,
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b1': I'm sorry Dave"]
    );
    assert_eq!(
        AuditedFailure::annotation(&outcome.failures).unwrap(),
        concat!(
            r#"[{"message":"I'm sorry Dave","policy":"p","binding":"b0","#,
            r#""expressionIndex":1,"validationActions":["Audit"]},"#,
            r#"{"message":"I'm sorry Dave","policy":"p","binding":"b1","#,
            r#""expressionIndex":1,"validationActions":["Audit","Warn"]}]"#
        )
    );
}

#[test]
fn annotation_of_failures_is_written_as_in_go_and_bounded() {
    assert_eq!(AuditedFailure::annotation(&[]), None);
    let failure = AuditedFailure {
        message: "a < b && \"c\" > \u{2028}\u{1}é".to_owned(),
        policy: "p".to_owned(),
        binding: "b".to_owned(),
        expression_index: 0,
        validation_actions: Actions { audit: true, ..DENY },
    };
    assert_eq!(
        AuditedFailure::annotation(std::slice::from_ref(&failure)).unwrap(),
        concat!(
            r#"[{"message":"a \u003c b \u0026\u0026 \"c\" \u003e \u2028\u0001é","policy":"p","binding":"b","#,
            r#""expressionIndex":0,"validationActions":["Deny","Audit"]}]"#
        )
    );
    let many = AuditedFailure::annotation(&vec![failure; 51]).unwrap();
    assert_eq!(many.matches("expressionIndex").count(), 50);
}

/// Audit annotations of `validating/validator_test.go`, TestValidate.
#[test]
fn audit_annotations_are_published_unless_null_or_blank() {
    let draft = Draft::validating()
        .annotation("text", "' string value '")
        .annotation("none", "null")
        .annotation("blank", "' '")
        .annotation("choice", "object.spec.replicas > 5 ? 'many' : 'few'");
    let outcome = decide(draft, OBJECT);
    let annotations: Vec<(&str, &str)> =
        outcome.audit_annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(annotations, [("text", "string value"), ("choice", "many")]);
    assert!(outcome.denials.is_empty());
}

#[test]
fn audit_annotation_at_fault_denies_whatever_the_actions_are() {
    let draft = || Draft::validating().annotation("bad", "object.missing.text + ''").annotation("good", "'x'");
    let warn = Actions { warn: true, ..Actions::default() };
    let outcome = decide(draft().actions(&[warn]), OBJECT);
    assert_eq!(messages(&outcome), ["expression 'object.missing.text + ''' resulted in error: no such key: missing"]);
    assert!(outcome.denials[0].is_error && outcome.warnings.is_empty());
    assert_eq!(outcome.audit_annotations.len(), 1);
    let ignored = decide(draft().ignore(), OBJECT);
    assert_eq!((ignored.denials.len(), ignored.failed_open, ignored.audit_annotations.len()), (0, 1, 1));
}

/// `validating/admission_test.go`, TestAuditAnnotations.
#[test]
fn audit_annotations_of_several_params_are_joined_and_not_repeated() {
    let policy = Draft::validating().params().annotation("value", "string(params.v)").actions(&[DENY, DENY]);
    let policy = policy.compile().unwrap();
    let params = [Some(r#"{"v":"one"}"#), Some(r#"{"v":"two"}"#), Some(r#"{"v":"one"}"#)];
    let outcome = decide_with(&policy, &params, &input(OBJECT)).unwrap();
    assert_eq!(outcome.audit_annotations, [("value".to_owned(), "one, two".to_owned())]);
}

#[test]
fn long_audit_annotation_is_cut_at_a_byte() {
    let object = format!(r#"{{"a":"{}","b":"x{}"}}"#, "é".repeat(6000), "é".repeat(6000));
    let outcome =
        decide(Draft::validating().annotation("a", "string(object.a)").annotation("b", "string(object.b)"), &object);
    assert_eq!(outcome.audit_annotations[0].1, "é".repeat(5120));
    assert_eq!(outcome.audit_annotations[1].1, format!("x{}\u{fffd}", "é".repeat(5119)));
}

#[test]
fn one_policy_keeps_a_bounded_number_of_denials_warnings_and_values() {
    let all = Actions { warn: true, audit: true, ..Actions::default() };
    let draft = Draft::validating().params().validation("false").annotation("v", "string(params.v)");
    let policy = draft.actions(&[DENY, all]).compile().unwrap();
    let texts: Vec<String> = (0..200).map(|number| format!(r#"{{"v":"{number}"}}"#)).collect();
    let params: Vec<Option<&str>> = texts.iter().map(|text| Some(&**text)).collect();
    let outcome = decide_with(&policy, &params, &input(OBJECT)).unwrap();
    assert_eq!((outcome.denials.len(), outcome.warnings.len(), outcome.failures.len()), (64, 64, 50));
    assert_eq!(outcome.audit_annotations[0].1.split(", ").count(), 64);
}

#[test]
fn validations_over_the_budget_fail_as_a_whole() {
    let (expression, object) = costly();
    let many = |many| (0..many).fold(Draft::validating().validation("false"), |draft, _| draft.validation(&expression));
    assert_eq!(messages(&decide(many(19), &object)), ["failed expression: false"]);
    let outcome = decide(many(20), &object);
    assert_eq!(messages(&outcome), [OUT_OF_BUDGET]);
    assert!(outcome.denials[0].is_error);
    let ignored = decide(many(20).ignore(), &object);
    assert_eq!((ignored.denials.len(), ignored.failed_open), (0, 1));
}

/// `validating/validator_test.go`: "messageExpression out of budget after successful eval of expression".
#[test]
fn messages_share_the_budget_of_the_validations_and_fail_those_that_are_true() {
    let (expression, object) = costly();
    let said = format!("{expression} ? 'a' : 'b'");
    let draft = Draft::validating().validation("true");
    let draft = (0..11).fold(draft, |draft, _| draft.says(&expression, "", &said, None));
    let outcome = decide(draft.validation(ERROR), &object);
    let wanted = format!("failed messageExpression: {OUT_OF_BUDGET}");
    let all = messages(&outcome);
    assert_eq!(all.len(), 13);
    assert!(all[..12].iter().all(|message| *message == wanted), "{all:?}");
    assert_eq!(all[12], ERROR_TEXT);
}

#[test]
fn audit_annotations_have_a_budget_of_their_own_and_replace_decisions_beyond_it() {
    let (expression, object) = costly();
    let value = format!("{expression} ? 'a' : 'b'");
    let few = (0..15).fold(Draft::validating(), |draft, _| draft.validation(&expression));
    let outcome = decide((0..10).fold(few, |draft, at| draft.annotation(&format!("k{at}"), &value)), &object);
    assert_eq!((outcome.denials.len(), outcome.audit_annotations.len()), (0, 10));
    let many =
        (0..20).fold(Draft::validating().validation("false"), |draft, at| draft.annotation(&format!("k{at}"), &value));
    let outcome = decide(many, &object);
    assert_eq!((messages(&outcome), outcome.audit_annotations.len()), (vec![OUT_OF_BUDGET], 0));
}

#[test]
fn authorizer_is_missing_in_audit_annotations() {
    let check = "authorizer.group('').resource('pods').check('get').allowed()";
    let outcome = decide(Draft::validating().annotation("a", &format!("{check} ? 'a' : 'b'")), OBJECT);
    let all = messages(&outcome);
    assert!(all[0].contains("authorizer"), "{all:?}");
}

#[test]
fn access_check_suspends_until_it_is_decided() {
    let check = "authorizer.group('').resource('pods').check('get').allowed()";
    let policy = Draft::validating().variable("may", check).validation("variables.may").compile().unwrap();
    let mut asked = input(OBJECT);
    let Err(Suspended::Undecided(check)) = decide_with(&policy, &[None], &asked) else { panic!("it is decided") };
    let decision = gatepost_cel::AccessDecision { allowed: true, ..Default::default() };
    asked.decisions.insert(*check, Ok(decision));
    assert_eq!(messages(&decide_with(&policy, &[None], &asked).unwrap()), [""; 0]);
}

#[test]
fn too_few_steps_and_a_past_deadline_suspend() {
    let (expression, object) = costly();
    let on = |draft: Draft, many: u64, is_over: bool| {
        let policy = draft.compile().unwrap();
        let bound = [Bound { binding: &policy.bindings[0], params: Ok(&[None]) }];
        let input = input(&object);
        let steps = Cell::new(many);
        crate::decide(&policy, bound, &input, &Allowance { steps: &steps, over: &|| is_over })
    };
    assert_eq!(on(Draft::validating().validation(&expression), 1000, false), Err(Suspended::TooLong));
    assert_eq!(on(Draft::validating().validation(&expression), u64::MAX, true), Err(Suspended::Deadline));
    assert_eq!(on(Draft::validating().condition(&expression).validation("true"), 1000, false), Err(Suspended::TooLong));
    assert_eq!(
        on(Draft::validating().condition(&expression).validation("true"), u64::MAX, true),
        Err(Suspended::Deadline)
    );
    assert_eq!(on(Draft::validating().validation("true"), 1000, true), Ok(Outcome { cost: 0, ..Outcome::default() }));
}

#[test]
fn unknown_params_deny_as_a_failure_of_the_binding() {
    let outcome = |draft: Draft| {
        let policy = draft.compile().unwrap();
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        let known = Bound { binding: &policy.bindings[1], params: Ok(&[None]) };
        let bound = [Bound { binding: &policy.bindings[0], params: Err(why) }, known];
        let steps = Cell::new(10_000);
        let input = input(OBJECT);
        crate::decide(&policy, bound, &input, &Allowance { steps: &steps, over: &|| false }).unwrap()
    };
    // As upstream, whatever the actions of the binding are.
    let warn = Actions { warn: true, ..Actions::default() };
    let draft = || Draft::validating().validation("false").actions(&[warn, DENY]);
    let denied = outcome(draft());
    assert_eq!(
        denied.denials[0].message,
        "ValidatingAdmissionPolicy 'p' with binding 'b0' denied request: failed to configure binding: \
         no params found for policy binding with `Deny` parameterNotFoundAction"
    );
    assert_eq!((denied.denials.len(), denied.denials[0].code, denied.denials[0].is_error), (2, 422, true));
    let ignored = outcome(draft().ignore());
    assert_eq!((ignored.denials.len(), ignored.failed_open), (1, 1));
}

#[test]
fn policy_that_cannot_be_evaluated_denies_or_is_ignored() {
    let of = |draft: Draft| failed(&draft.compile().unwrap(), "why");
    let outcome = of(Draft::validating().validation("true"));
    assert_eq!(
        outcome.denials[0].message,
        "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: why"
    );
    assert_eq!((outcome.denials[0].code, outcome.denials[0].reason), (422, Reason::Invalid));
    let ignored = of(Draft::validating().validation("true").ignore());
    assert_eq!((ignored.denials.len(), ignored.failed_open), (0, 1));
    let mutating = of(Draft::new(HookType::Mutating).json_patch(SET));
    assert_eq!(mutating.denials[0].message, "policy \"p\" denied request: failed to configure policy: why");
    assert_eq!((mutating.denials[0].code, mutating.denials[0].reason), (403, Reason::Forbidden));
}
