use std::{borrow::Cow, cell::Cell};

use super::*;
use gatepost_api::StatusInfo;
use gatepost_cel::{
    AccessCheck, AccessDecision, AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument,
    Request, User, decide,
};
use gatepost_config::SourceFile;
use gatepost_initializers::{Initializers, marks::InitState};

fn of(entries: &str) -> Result<String, String> {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
         resourceInitializers: {entries}\n"
    );
    let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
    super::text(&gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap(), "gatepost")
}

#[test]
fn initializers_policy_covers_resources_stored_by_label() {
    let text = of("[{resource: configmaps, stored: Label, initializers: []}, \
                   {apiGroup: e.example, resource: widgets, stored: Label, initializers: []}, \
                   {resource: secrets, initializers: []}]")
    .unwrap();
    assert!(text.contains("in ['/configmaps', 'e.example/widgets'] &&"), "{text}");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let [policy, binding] = &*documents else { panic!("{documents:?}") };
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    assert_eq!(policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"], json!(["*/*"]));
    assert!(of("[{resource: secrets, initializers: []}]").unwrap_err().contains("stored: Label"));
}

/// The validations, with their variables written out, as an apiserver would evaluate them.
fn validations() -> Vec<Condition> {
    let policy = policy("p", &["/configmaps".to_owned()]);
    let mut variables: Vec<(String, String)> = Vec::new();
    let written_out = |variables: &[(String, String)], expression: &str| {
        // Longer names first: one begins with another.
        let mut sorted: Vec<_> = variables.iter().collect();
        sorted.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        sorted.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, &format!("({value})")))
    };
    for variable in policy["spec"]["variables"].as_array().unwrap() {
        let value = written_out(&variables, variable["expression"].as_str().unwrap());
        variables.push((format!("variables.{}", variable["name"].as_str().unwrap()), value));
    }
    let validations = policy["spec"]["validations"].as_array().unwrap().iter();
    let compiled = validations.map(|validation| {
        let text = written_out(&variables, validation["expression"].as_str().unwrap());
        Condition::compile("rule", &text).unwrap_or_else(|why| panic!("{why}: {text}"))
    });
    compiled.collect()
}

/// User who makes a request.
#[derive(Clone, Copy)]
struct By {
    name: &'static str,
    groups: &'static [&'static str],
    initializes: bool,
}

const ANN: By = By { name: "ann", groups: &["dev", "a\"b\\c"], initializes: false };
const OWNER: By = By { name: "owner", groups: &[], initializes: true };

/// Numbers of the rules that an update, or a CREATE, breaks.
fn broken(rules: &[Condition], by: By, old: Option<&Value>, new: &Value) -> Vec<usize> {
    let (old, new) = (old.map(Value::to_string), new.to_string());
    let document = |text: &str| JsonDocument::new(Cow::Owned(text.as_bytes().to_vec()));
    let mut decisions = AccessDecisions::default();
    let decision = || AccessDecision { allowed: by.initializes, ..AccessDecision::default() };
    for _ in 0..2 {
        let mut request = Request::new(|| {
            Ok(User { groups: by.groups.iter().map(|&group| group.into()).collect(), ..User::default() })
        });
        request.resource = ["", "v1", "configmaps"];
        (request.name, request.namespace, request.username) = ("n", "shop", by.name);
        let (object, old_object) = (Some(document(&new)), old.as_deref().map(document));
        let input = Input { request, object, old_object, namespace: None, decisions: decisions.clone() };
        let steps = Cell::new(u64::MAX);
        let allowance = Allowance { steps: &steps, over: &|| false };
        let mut asked: Option<AccessCheck> = None;
        let mut broken = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            match decide(std::slice::from_ref(rule), &input, &allowance) {
                ConditionsDecision::Matches => {}
                ConditionsDecision::Excluded(_) => broken.push(number + 1),
                ConditionsDecision::Undecided(check) => asked = Some((*check).clone()),
                other => panic!("rule {number}: {other:?}"),
            }
        }
        match asked {
            Some(check) => decisions.insert(check, Ok(decision())),
            None => return broken,
        }
    }
    panic!("what the user may do is asked again and again");
}

const LABEL: &str = "0123abcd";

fn object(label: Option<&str>, state: Option<&str>) -> Value {
    let mut object = json!({"metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {}}});
    if let Some(label) = label {
        object["metadata"]["labels"][PENDING_LABEL] = label.into();
    }
    if let Some(state) = state {
        object["metadata"]["annotations"][STATE_ANNOTATION] = state.into();
    }
    object
}

fn new_state(by: By) -> InitState {
    let creator = json!({"username": by.name, "uid": "", "groups": by.groups, "extra": {"k": ["v"]}});
    InitState::new(Initializers::of(["a.example.com", "b.example.com"]), creator, "2026-11-23T08:00:00Z")
}

const COMPLETED: &str = r#"{"state":"Completed","pending":[]}"#;

#[test]
fn initializers_policy_allows_marks_only_for_the_creator() {
    let rules = validations();
    let made = |by, label, state: Option<&str>| broken(&rules, by, None, &object(label, state));
    let text = new_state(ANN).write().unwrap();
    assert_eq!(made(ANN, Some(LABEL), Some(&text)), [0; 0]);
    let nobody = By { groups: &[], ..OWNER };
    assert_eq!(made(nobody, Some(LABEL), Some(&new_state(nobody).write().unwrap())), [0; 0]);
    for (what, by, label, state) in [
        ("of somebody else", OWNER, Some(LABEL), Some(&*text)),
        ("with other groups", By { groups: &["system:masters"], ..ANN }, Some(LABEL), Some(&text)),
        ("without the label", ANN, None, Some(&text)),
        ("without the annotation", ANN, Some(LABEL), None),
        ("that says Completed", ANN, Some(LABEL), Some(COMPLETED)),
        ("that says too little", ANN, Some(LABEL), Some(r#"{"state":"Pending"}"#)),
        ("with an empty list", ANN, Some(LABEL), Some(&text.replace(r#""a.example.com","b.example.com""#, ""))),
    ] {
        assert_eq!(made(by, label, state), [1], "{what}");
    }
    // The state that a finished object is left with says nothing.
    assert_eq!(made(ANN, None, Some(COMPLETED)), [0; 0]);
    let both = r#"{"state":"Completed","x":{"state":"Pending"}}"#;
    assert_eq!(made(ANN, None, Some(both)), [1]);
}

/// A state that the policy takes of a user can only be read as one of that user, or as none.
#[test]
fn initializers_policy_refuses_a_forged_creator() {
    let rules = validations();
    let text = new_state(ANN).write().unwrap();
    let forged = r#""creator":{"username":"admin"},"creator":{"#;
    for text in [
        format!("{text}{text}"),
        text.replacen(r#""creator":{"#, forged, 1),
        text.replacen(r#""creator":{"#, r#""creator":{"username":"admin"},"x":{"#, 1),
        text.replacen(r#""creator":{"#, r#""creator":{"username":"admin","groups":["system:masters"],"#, 1),
    ] {
        assert_eq!(broken(&rules, ANN, None, &object(Some(LABEL), Some(&text))), [0; 0], "{text}");
        if let Ok(state) = InitState::read(&text) {
            assert_eq!((state.username(), &state.creator["groups"]), (Some("ann"), &json!(ANN.groups)), "{text}");
        }
    }
}

#[test]
fn initializers_policy_keeps_marks_until_completed() {
    let rules = validations();
    let before = new_state(ANN);
    let text = before.write().unwrap();
    let old = object(Some(LABEL), Some(&text));
    let updated = |by, label, state: Option<&str>| broken(&rules, by, Some(&old), &object(label, state));
    let second = before.done("a.example.com", Vec::new()).unwrap().write().unwrap();
    let failed = before.failed(StatusInfo::default()).write().unwrap();
    let spaced = second.replace(r#"{"state":"Pending","#, r#"{"done": [], "state": "Pending", "#);
    for state in [&text, &second, &failed, &spaced] {
        assert_eq!(updated(OWNER, Some(LABEL), Some(state)), [0; 0], "{state}");
        assert_eq!(updated(ANN, Some(LABEL), Some(state)), [3], "{state}");
    }
    assert_eq!(updated(OWNER, None, Some(COMPLETED)), [0; 0]);
    for (what, label, state, rule) in [
        ("the annotation is gone", Some(LABEL), None, 4),
        ("both are gone", None, None, 4),
        ("the label is gone", None, Some(&*text), 4),
        ("it is completed with its label", Some(LABEL), Some(COMPLETED), 4),
        ("it says nothing", Some(LABEL), Some("{}"), 4),
        ("the label is another", Some("1"), Some(&text), 5),
    ] {
        assert_eq!(updated(OWNER, label, state), [rule], "{what}");
    }
    let old = object(Some(LABEL), Some(&failed));
    assert_eq!(broken(&rules, OWNER, Some(&old), &object(None, Some(COMPLETED))), [6]);
    // Marks that cannot be read are taken away, as the engine does.
    for lost in [None, Some("{}"), Some(r#"{"state":"Pending"}"#)] {
        let after = object(None, lost.map(|_| COMPLETED));
        assert_eq!(broken(&rules, OWNER, Some(&object(Some(LABEL), lost)), &after), [0; 0], "{lost:?}");
    }
    // A user who deletes it must not wait.
    let mut leaving = object(Some(LABEL), Some(&text));
    leaving["metadata"]["deletionTimestamp"] = "2026-11-23T08:00:00Z".into();
    assert_eq!(broken(&rules, ANN, Some(&leaving), &object(Some(LABEL), Some(&text))), [0; 0]);
}

#[test]
fn initializers_policy_refuses_new_marks_on_a_finished_object() {
    let rules = validations();
    let text = new_state(ANN).write().unwrap();
    for old in [object(None, None), object(None, Some(COMPLETED))] {
        for new in [object(None, None), object(None, Some(COMPLETED))] {
            assert_eq!(broken(&rules, ANN, Some(&old), &new), [0; 0], "{old} {new}");
        }
        for new in [object(Some(LABEL), Some(&text)), object(None, Some(&text)), object(Some(LABEL), None)] {
            assert_eq!(broken(&rules, OWNER, Some(&old), &new), [2], "{old} {new}");
        }
    }
}
