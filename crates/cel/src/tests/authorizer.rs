//! Access checks: each ends the evaluation until it has a decision.

use crate::{
    AccessCheck, AccessDecision, AccessTarget, ResourceAccess, Subject, conditions, program::Program, tests::*,
};

/// Decision of the authorizer in `tests/cel/generate`: its reason repeats the check.
fn decided(check: &AccessCheck) -> AccessDecision {
    let who = match &check.subject {
        Subject::Requester => "alice,dev,ops".to_owned(),
        Subject::ServiceAccount { namespace, name } => format!(
            "system:serviceaccount:{namespace}:{name},system:serviceaccounts,system:serviceaccounts:{namespace}"
        ),
    };
    let what = match &check.target {
        AccessTarget::Path(path) => path.to_string(),
        AccessTarget::Resource(ResourceAccess { group, resource, sub_resource, namespace, name, .. }) => {
            [group, resource, sub_resource, namespace, name].map(|part| part.to_string()).join("|")
        }
    };
    AccessDecision {
        allowed: &*check.verb == "get",
        reason: [&who, &*check.verb, &what].join("|").into(),
        error: (&*check.verb == "fail").then(|| "made up".into()),
    }
}

/// A program's value and its cost, with every check decided on the way.
pub(super) fn evaluated(program: &Program, input: &mut Input<'_>) -> (Result<bool, Fault>, u64) {
    loop {
        let (value, cost) = with_steps(u64::MAX, |allowance| conditions::evaluated(program, input, allowance));
        match value {
            Err(Fault::Stop(Stop::Undecided(check))) => {
                let decision = decided(&check);
                input.decisions.insert(*check, Ok(decision));
            }
            value => return (value, cost),
        }
    }
}

#[test]
fn undecided_access_check_ends_the_evaluation() {
    let mut input = input("{}", "null");
    let conditions = [
        Condition::compile("a", "request.name == 'web'").unwrap(),
        Condition::compile("b", "!authorizer.requestResource.check('skip').allowed()").unwrap(),
    ];
    assert!(!conditions[0].uses_authorizer() && conditions[1].uses_authorizer());
    // No more steps than the texts take: the price of a check is not its time.
    let undecided = with_steps(200, |allowance| decide(&conditions, &input, allowance));
    let ConditionsDecision::Undecided(check) = undecided else { panic!("{undecided:?}") };
    let access = ResourceAccess {
        group: "apps".into(),
        resource: "deployments".into(),
        namespace: "default".into(),
        name: "web".into(),
        ..ResourceAccess::default()
    };
    let target = AccessTarget::Resource(access);
    assert_eq!(*check, AccessCheck { subject: Subject::Requester, verb: "skip".into(), target });
    let allowed = AccessDecision { allowed: true, ..AccessDecision::default() };
    input.decisions.insert((*check).clone(), Ok(allowed));
    assert_eq!(with_steps(200, |allowance| decide(&conditions, &input, allowance)), ConditionsDecision::Excluded("b"));
    input.decisions.insert(*check, Err("nobody is there".into()));
    let why = "expression '!authorizer.requestResource.check('skip').allowed()' resulted in error: the authorizer cannot \
               be asked: nobody is there";
    let failed = with_steps(200, |allowance| decide(&conditions, &input, allowance));
    assert_eq!(failed, ConditionsDecision::Failed(why.to_owned()));
}

#[test]
fn access_check_text_is_bounded() {
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(20_000));
    let input = input(&long, "null");
    let conditions = [Condition::compile("c", "authorizer.path(object.name).check('get').allowed()").unwrap()];
    match with_steps(u64::MAX, |allowance| decide(&conditions, &input, allowance)) {
        ConditionsDecision::Failed(why) => assert!(why.ends_with("is longer than 16 KiB"), "{why}"),
        other => panic!("{other:?}"),
    }
}
