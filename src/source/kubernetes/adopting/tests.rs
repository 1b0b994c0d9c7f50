//! Each webhook is judged by itself, and only what is called is configuration.

use super::*;
use crate::source::Contents;
use gatepost_adopt::{AdoptionScope, Announcement, EntryKind, LEADER_LEASE, leader_lease, replica_lease};
use gatepost_config::Snapshot;

fn webhook(name: &str, more: &str) -> Value {
    let text = format!(
        "{{\"name\": \"{name}\", \"clientConfig\": {{\"url\": \"https://h.example.com/\"}}, \"sideEffects\": \"None\",
          \"admissionReviewVersions\": [\"v1\"], \"rules\": [{{\"operations\": [\"CREATE\"], \"apiGroups\": [\"\"],
          \"apiVersions\": [\"v1\"], \"resources\": [\"configmaps\"]}}]{more}}}"
    );
    serde_json::from_str(&text).unwrap()
}

fn object(name: &str, webhooks: Vec<Value>) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "uid": "u", "resourceVersion": "3", "managedFields": []}, "webhooks": webhooks})
}

fn registration() -> Value {
    let mut entry = webhook("gatepost.validate.gatepost.dev", "");
    entry["clientConfig"]["url"] = "https://127.0.0.1:9440/validate".into();
    object("gatepost", vec![entry])
}

fn adopt(scope: AdoptionScope) -> AdoptionSettings {
    let (namespace, replica) = ("gatepost".to_owned(), "r".to_owned());
    AdoptionSettings { scope, namespace, replica, registration: None }
}

fn summary(seen: &[AssessedEntry]) -> Vec<String> {
    let word = |seen: &AssessedEntry| {
        let reasons = [seen.wanted.as_ref().err(), seen.unservable.as_ref(), seen.reason_not_to_adopt.as_ref()];
        reasons.into_iter().flatten().next().map_or("ok", Reason::word)
    };
    seen.iter().map(|seen| format!("{} {}", seen.standing.key.name, word(seen))).collect()
}

#[test]
fn each_webhook_is_judged_by_itself() {
    let broken = ", \"matchConditions\": [{\"name\": \"c\", \"expression\": \"1 +\"}]";
    let mut other = webhook("other.x.y", "");
    other["rules"][0]["resources"] = json!(["secrets"]);
    let mut unsafe_ca = webhook("ca.x.y", "");
    unsafe_ca["clientConfig"]["caBundle"] = "aGk=".into();
    let others = object(
        "c",
        vec![
            webhook("good.x.y", ""),
            webhook("odd.x.y", broken),
            other,
            unsafe_ca,
            webhook("x.validate.gatepost.dev", ""),
        ],
    );
    let lists = [(Kind::Webhooks(HookType::Validating), vec![others.clone(), registration()])];
    assert_eq!(
        summary(&judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default())),
        [
            "good.x.y ok",
            "odd.x.y unservable",
            "other.x.y uncovered",
            "ca.x.y unservable",
            "x.validate.gatepost.dev named_like_ours"
        ]
    );
    let mut going = registration();
    going["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    for lists in [vec![others.clone()], vec![others, going]] {
        let seen = judged(
            &[(Kind::Webhooks(HookType::Validating), lists)],
            &adopt(AdoptionScope::Named),
            &AdoptionRequests::default(),
        );
        assert_eq!(seen[0].reason_not_to_adopt.as_ref().map(Reason::word), Some("uncovered"));
        assert_eq!(seen[0].wanted, Err(Reason::NotWanted));
    }
}

#[test]
fn webhook_that_judges_our_leases_is_a_hazard() {
    let on = |selector: &str, policy: &str| {
        let mut guard = webhook("guard.x.y", "");
        guard["rules"][0]["apiGroups"] = json!(["*"]);
        guard["rules"][0]["resources"] = json!(["*"]);
        guard["failurePolicy"] = policy.into();
        guard["namespaceSelector"] = serde_json::from_str(selector).unwrap();
        let lists = [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![guard])])];
        let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
        seen[0].reason_not_to_adopt.as_ref().map(Reason::word).unwrap()
    };
    let not = |name: &str| {
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": ["kube-system", "kube-node-lease", name]}]})
        .to_string()
    };
    assert_eq!(on(&not("other"), "Fail"), "hazard");
    assert_eq!(on(&not("gatepost"), "Fail"), "uncovered");
    assert_eq!(on(&not("other"), "Ignore"), "uncovered");
    assert_eq!(on("{\"matchLabels\": {\"opted\": \"in\"}}", "Fail"), "uncovered");
}

#[test]
fn only_called_webhooks_become_documents() {
    let carried = ", \"matchConditions\": [{\"name\": \"gatepost.dev/served\", \"expression\": \"false\"}]";
    let mut object = object("c", vec![webhook("a.x.y", carried), webhook("b.x.y", "")]);
    object["metadata"]["annotations"] = json!({"gatepost.dev/enforcement": "Warn", "gatepost.dev/dispatch": "no such word", "gatepost.dev/canary": "5% of b.x.y"});
    let lists = [(Kind::Webhooks(HookType::Validating), vec![object, registration()])];
    let adopt = adopt(AdoptionScope::All);
    let mut adopting = EntryReader::default();
    let (files, view) = adopting.read((Duration::ZERO, &adopt, "r/1"), Vec::new(), &lists).unwrap();
    assert_eq!(files.len(), 1);
    let document: Value = serde_json::from_slice(&files[0].bytes).unwrap();
    assert_eq!(document["webhooks"], json!([webhook("a.x.y", "")]), "without the condition");
    let asked = &view.calls.entries[0];
    assert_eq!(document["metadata"]["annotations"][ENTRY_STATES], format!("a.x.y={}", asked.state));
    assert_eq!((&*files[0].name, view.seen.len()), ("validatingwebhookconfigurations/c", 2));
    let kept = |annotation: &str| document["metadata"]["annotations"].get(annotation).is_some();
    let annotations = ["gatepost.dev/enforcement", "gatepost.dev/dispatch", "gatepost.dev/canary"];
    assert_eq!(annotations.map(kept), [true, false, false], "no other word, and no canary");

    // A webhook that carries the condition waits for no probe; one that is announced is called as well.
    assert_eq!(document["metadata"]["annotations"][CALL_AT_ONCE], "a.x.y");
    let id = view.seen[1].standing.key.id();
    let announcement = Announcement { epoch: 1, ids: [id].into(), ..Announcement::default() };
    let mut lease = leader_lease("1", "q/1", "t", &announcement, &[], &Default::default());
    lease["metadata"]["name"] = LEADER_LEASE.into();
    let own = |holder: &str| Lease::of(&replica_lease(holder, "t", None)).unwrap();
    let leases = |holder: &str| vec![Lease::of(&lease).unwrap(), own(holder)];
    let (files, view) = adopting.read((Duration::from_secs(1), &adopt, "r/1"), leases("r/1"), &lists).unwrap();
    let document: Value = serde_json::from_slice(&files[0].bytes).unwrap();
    assert_eq!((document["webhooks"].as_array().unwrap().len(), view.calls.epoch), (2, 1));
    assert_eq!(document["metadata"]["annotations"][CALL_AT_ONCE], "a.x.y");
    // The leader does not wait for a replica without a lease of its own, which therefore waits for no probe.
    let (files, _) = adopting.read((Duration::from_secs(1), &adopt, "r/1"), leases("r/2"), &lists).unwrap();
    let document: Value = serde_json::from_slice(&files[0].bytes).unwrap();
    assert_eq!(document["metadata"]["annotations"][CALL_AT_ONCE], "a.x.y b.x.y");
}

#[test]
fn webhook_not_covered_by_the_registration_is_left() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut entry = registration();
        change(&mut entry["webhooks"][0]);
        let lists = [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![webhook("a.x.y", "")]), entry])];
        summary(&judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default())).remove(0)
    };
    assert_eq!(with(&|_| {}), "a.x.y ok");
    let left_out = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
        "values": ["kube-system"]}]});
    assert_eq!(with(&|entry| entry["namespaceSelector"] = left_out.clone()), "a.x.y uncovered");
    assert_eq!(with(&|entry| entry["failurePolicy"] = "Ignore".into()), "a.x.y uncovered");
}

/// A registration as `gatepost register --service` prints it.
fn by_service(excluded: &[&str]) -> Value {
    let mut own = registration();
    let service = json!({"namespace": "gatepost", "name": "gatepost", "path": "/validate"});
    own["webhooks"][0]["clientConfig"] = json!({ "service": service });
    own["webhooks"][0]["namespaceSelector"] = json!({"matchExpressions":
        [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}]});
    own
}

#[test]
fn excluded_namespaces_stay_with_the_apiserver() {
    const EXCLUDED: [&str; 3] = ["gatepost", "kube-node-lease", "kube-system"];
    let with = |change: &dyn Fn(&mut Value), other: Value| {
        let mut own = by_service(&EXCLUDED);
        change(&mut own);
        let lists = [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![other]), own])];
        let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
        (summary(&seen).remove(0), seen[0].standing.clone())
    };
    let names = |standing: &ClusterEntry| standing.condition.namespaces().collect::<Vec<_>>().join(" ");
    let (word, standing) = with(&|_| {}, webhook("a.x.y", ""));
    assert_eq!((&*word, &*names(&standing)), ("a.x.y ok", "gatepost kube-node-lease kube-system"));
    // It follows what the registration leaves out, and nothing that another selector of it does.
    let carried = |standing: &ClusterEntry| {
        let condition = json!([{"name": "gatepost.dev/served", "expression": standing.condition.to_string()}]);
        webhook("a.x.y", &format!(", \"matchConditions\": {condition}"))
    };
    let (word, unchanged) = with(&|_| {}, carried(&standing));
    assert!(word == "a.x.y ok" && unchanged.carries && !unchanged.outdated, "{word}");
    let fewer = |own: &mut Value| *own = by_service(&["kube-system"]);
    let (word, changed) = with(&fewer, carried(&standing));
    assert_eq!((&*word, changed.outdated, &*names(&changed)), ("a.x.y ok", true, "kube-system"));
    let by_label = |own: &mut Value| {
        let selector = &mut own["webhooks"][0]["namespaceSelector"];
        let by_team = json!({"key": "team", "operator": "NotIn", "values": ["kube-system"]});
        selector["matchExpressions"].as_array_mut().unwrap().push(by_team);
    };
    assert_eq!(with(&by_label, webhook("a.x.y", "")).0, "a.x.y uncovered");
    let unfit = |own: &mut Value| *own = by_service(&["kube-system", "No-Name"]);
    assert_eq!(with(&unfit, webhook("a.x.y", "")).0, "a.x.y uncovered", "no namespace has that name");
    // Another entry sends something there: it would be judged twice.
    let second = |own: &mut Value| {
        let mut entry = webhook("gatepost-2.validate.gatepost.dev", "");
        entry["clientConfig"] = own["webhooks"][0]["clientConfig"].clone();
        entry["rules"][0]["resources"] = json!(["secrets"]);
        own["webhooks"].as_array_mut().unwrap().push(entry);
    };
    assert_eq!(with(&second, webhook("a.x.y", "")).0, "a.x.y uncovered");
    let url =
        |own: &mut Value| own["webhooks"][0]["clientConfig"] = registration()["webhooks"][0]["clientConfig"].clone();
    let (word, standing) = with(&url, carried(&standing));
    assert_eq!((&*word, standing.outdated, &*names(&standing)), ("a.x.y uncovered", true, ""));
    // Namespaces that only other hooks leave out are to be sent.
    let narrow = |own: &mut Value| {
        own["metadata"]["annotations"] = json!({"gatepost.dev/never-sent": "gatepost,kube-node-lease"})
    };
    assert_eq!(with(&narrow, webhook("a.x.y", "")).0, "a.x.y uncovered");
}

#[test]
fn unknown_registration_keeps_the_namespaces_condition() {
    let condition = gatepost_api::AdoptionCondition::default().in_namespaces(["kube-system"]).to_string();
    let condition = json!([{"name": "gatepost.dev/served", "expression": condition}]);
    let carries = webhook("a.x.y", &format!(", \"matchConditions\": {condition}"));
    let mut going = by_service(&["kube-system"]);
    going["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    let lists = [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![carries]), going])];
    let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
    let standing = &seen[0].standing;
    assert_eq!((summary(&seen).remove(0), standing.outdated), ("a.x.y uncovered".to_owned(), false));
    assert_eq!(standing.condition.namespaces().collect::<Vec<_>>(), ["kube-system"]);
}

#[test]
fn own_entry_with_foreign_condition_is_not_relied_on() {
    let with = |name: &str, expression: &str| {
        let mut entry = registration();
        entry["webhooks"][0]["matchConditions"] = json!([{"name": name, "expression": expression}]);
        let lists = [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![webhook("a.x.y", "")]), entry])];
        let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
        (summary(&seen).remove(0), seen[0].reason_not_to_adopt.as_ref().map(ToString::to_string).unwrap_or_default())
    };
    assert_eq!(with("sent-already-1", "!(request.operation == 'DELETE')").0, "a.x.y ok");
    for (name, expression) in
        [("mine", "!('system:nodes' in request.userInfo.groups)"), ("gatepost.dev/served", "false")]
    {
        let (summary, why) = with(name, expression);
        assert_eq!(summary, "a.x.y uncovered");
        assert!(why.contains(&format!("remove the match condition {name} from it")), "{why}");
    }
}

#[test]
fn our_label_alone_makes_no_registration_of_ours() {
    let carried = ", \"matchConditions\": [{\"name\": \"gatepost.dev/served\", \"expression\": \"false\"}]";
    let mut labelled = object("c", vec![webhook("a.x.y", carried)]);
    labelled["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "gatepost"});
    let lists = [(Kind::Webhooks(HookType::Validating), vec![labelled, registration()])];
    let adopt = adopt(AdoptionScope::All);
    let mut adopting = EntryReader::default();
    let (files, view) = adopting.read((Duration::ZERO, &adopt, "r/1"), Vec::new(), &lists).unwrap();
    assert_eq!(summary(&view.seen), ["a.x.y ok"], "and there is one registration");
    assert_eq!((files.len(), view.registrations.len()), (1, 1), "it is called");
}

#[test]
fn segmented_chain_adopts_no_mutating_webhook() {
    let with = |hook_type: HookType, path: &str| {
        let mut own = webhook("gatepost.mutate.gatepost.dev", "");
        own["clientConfig"]["url"] = format!("https://127.0.0.1:9440{path}").into();
        let of_type = |mut object: Value| {
            object["kind"] = hook_type.kind().into();
            object
        };
        let lists = vec![of_type(object("c", vec![webhook("a.x.y", "")])), of_type(object("gatepost", vec![own]))];
        summary(&judged(
            &[(Kind::Webhooks(hook_type), lists)],
            &adopt(AdoptionScope::All),
            &AdoptionRequests::default(),
        ))
        .remove(0)
    };
    assert_eq!(with(HookType::Mutating, "/mutate"), "a.x.y ok");
    assert_eq!(with(HookType::Mutating, "/mutate/segment/1/of/1"), "a.x.y ok");
    assert_eq!(with(HookType::Mutating, "/mutate/segment/1/of/2"), "a.x.y hazard");
}

#[test]
fn isolated_hook_prevents_adoption_of_mutating_webhooks() {
    let isolated = json!({"metadata": {"name": "own"}, "spec": {"hooks": [{"name": "h", "isolate": true}]}});
    // Read by read: nothing, the segments of the one hook, and those that upkeep once wrote.
    let read = |path: &str| {
        let mut own = webhook("gatepost.mutate.gatepost.dev", "");
        own["clientConfig"]["url"] = format!("https://127.0.0.1:9440{path}").into();
        let others = vec![object("c", vec![webhook("a.x.y", "")]), object("gatepost", vec![own])];
        let lists = [(Kind::Webhooks(HookType::Mutating), others), (Kind::Configuration, vec![isolated.clone()])];
        let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
        summary(&seen).remove(0)
    };
    for path in ["/mutate", "/mutate/segment/1/of/1", "/mutate/segment/1/of/2"] {
        assert_eq!(read(path), "a.x.y hazard", "{path}");
    }
}

#[test]
fn another_gatepost_s_registration_covers_nothing() {
    let mut other = registration();
    other["metadata"]["name"] = "other".into();
    let lists =
        [(Kind::Webhooks(HookType::Validating), vec![object("c", vec![webhook("a.x.y", "")]), registration(), other])];
    let on = |name: Option<&str>| {
        let adopt = AdoptionSettings { registration: name.map(str::to_owned), ..adopt(AdoptionScope::All) };
        summary(&judged(&lists, &adopt, &AdoptionRequests::default())).remove(0)
    };
    assert_eq!((on(None), on(Some("gatepost"))), ("a.x.y uncovered".to_owned(), "a.x.y ok".to_owned()));
    assert_eq!(on(Some("third")), "a.x.y uncovered");
}

#[test]
fn webhook_with_authorizer_conditions_is_marked() {
    let asking = ", \"matchConditions\": [{\"name\": \"c\", \"expression\": \
                  \"authorizer.requestResource.check('update').allowed()\"}]";
    let object = object("c", vec![webhook("a.x.y", asking), webhook("b.x.y", "")]);
    let seen = judged(
        &[(Kind::Webhooks(HookType::Validating), vec![object, registration()])],
        &adopt(AdoptionScope::All),
        &AdoptionRequests::default(),
    );
    assert_eq!(seen.iter().map(|seen| seen.uses_authorizer).collect::<Vec<_>>(), [true, false]);
    assert_eq!(summary(&seen), ["a.x.y ok", "b.x.y ok"]);
}

#[test]
fn mutating_webhooks_before_us_may_hold_back_a_request() {
    let own = |names: &[&str]| {
        let entries = names.iter().map(|name| webhook(&format!("{name}.mutate.gatepost.dev"), "")).collect();
        object("gatepost", entries)
    };
    let carried = ", \"matchConditions\": [{\"name\": \"gatepost.dev/served\", \"expression\": \"false\"}]";
    let held = |own: Value| {
        let timeout = ", \"timeoutSeconds\": 7";
        let before = object("a", vec![webhook("a.x.y", timeout), webhook("b.x.y", carried)]);
        let lists = [(Kind::Webhooks(HookType::Mutating), vec![before, object("z", vec![webhook("z.x.y", "")]), own])];
        let seen = judged(&lists, &adopt(AdoptionScope::All), &AdoptionRequests::default());
        seen.iter().map(|seen| seen.in_flight.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(held(own(&["gatepost"])), [0, 7, 7]);
    assert_eq!(held(own(&["gatepost", "gatepost-2"])), [10, 17, 17]);
    assert_eq!(held(object("none", vec![webhook("n.x.y", "")])), [0, 0, 0, 0]);
    let mut going = own(&["gatepost"]);
    going["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    assert_eq!(held(going), [0, 7, 7], "it is called while its finalizer keeps it");
}

#[test]
fn registration_is_widened_at_once_and_narrowed_later() {
    fn summary(snapshot: &Snapshot, item: &Value, _: HookType) -> Result<Vec<Value>, String> {
        let mut entry = item["webhooks"][0].clone();
        entry.as_object_mut().unwrap().remove("matchConditions");
        entry["rules"] = snapshot.hooks.iter().map(|hook| json!({"operations": ["CREATE"], "apiGroups": [""],
            "apiVersions": ["v1"], "resources": hook.rules[0].resources.iter().map(ToString::to_string).collect::<Vec<_>>()})).collect();
        Ok(vec![entry])
    }
    let mut secrets = webhook("s.x.y", "");
    secrets["rules"][0]["resources"] = json!(["secrets"]);
    let adopt = adopt(AdoptionScope::All);
    let mut adopting = EntryReader::default();
    let mut due = |second, others: Vec<Value>, own: Value| {
        let lists = vec![(Kind::Webhooks(HookType::Validating), vec![object("c", others), own])];
        let (files, view) = adopting.read((Duration::from_secs(second), &adopt, "r/1"), Vec::new(), &lists).unwrap();
        let contents = Contents::new(files, Default::default());
        adopting
            .upkeep
            .updates((&adopt, summary), &lists, (&contents, &view))
            .into_iter()
            .map(|update| update.webhooks)
            .next()
    };
    let both = || vec![webhook("a.x.y", ""), secrets.clone()];
    let widened = due(0, both(), registration()).expect("secrets are not sent");
    assert_eq!(widened[0]["rules"].as_array().unwrap().len(), 2);
    let mut wide = registration();
    wide["webhooks"] = widened.into();
    assert_eq!(due(1, both(), wide.clone()), None);
    let mut narrowed = wide.clone();
    narrowed["webhooks"][0]["matchConditions"] = json!([{"name": "mine", "expression": "false"}]);
    assert!(due(1, both(), narrowed.clone()).is_some_and(|webhooks| webhooks[0].get("matchConditions").is_none()));
    assert_eq!(due(1, both(), wide.clone()), None);
    assert_eq!(due(2, vec![webhook("a.x.y", "")], wide.clone()), None);
    assert_eq!(due(61, vec![webhook("a.x.y", "")], wide.clone()), None);
    assert_eq!(due(62, vec![webhook("a.x.y", "")], wide).map(Value::from), Some(registration()["webhooks"].clone()));
    assert_eq!(due(200, Vec::new(), registration()), None, "there is nothing that it should send");

    // Namespaces that are never sent make no haste.
    let mut wide = by_service(&["kube-system"]);
    let secrets = {
        let mut rule = wide["webhooks"][0]["rules"][0].clone();
        rule["resources"] = json!(["secrets"]);
        rule
    };
    wide["webhooks"][0]["rules"].as_array_mut().unwrap().push(secrets);
    assert_eq!(due(300, vec![webhook("a.x.y", "")], wide.clone()), None);
    assert!(due(360, vec![webhook("a.x.y", "")], wide).is_some());
}

#[test]
fn unsent_webhook_and_foreign_condition_are_reported() {
    let ours = ", \"matchConditions\": [{\"name\": \"gatepost.dev/served\", \"expression\": \"false\"}]";
    let odd = ", \"matchConditions\": [{\"name\": \"gatepost.dev/served\", \"expression\": \"1 == 2\"}]";
    let others = object("c", vec![webhook("good.x.y", ours), webhook("odd.x.y", odd)]);
    let seen = |registered: Vec<Value>| {
        let items = [vec![others.clone()], registered].concat();
        judged(
            &[(Kind::Webhooks(HookType::Validating), items)],
            &adopt(AdoptionScope::Named),
            &AdoptionRequests::default(),
        )
    };
    let all = seen(vec![registration()]);
    assert_eq!((all[0].standing.carries, all[0].unsent), (true, false));
    assert_eq!(all[1].against().map(Reason::word), Some("foreign_condition"), "although nobody wants it");
    let mut narrow = registration();
    narrow["webhooks"][0]["rules"][0]["resources"] = json!(["secrets"]);
    assert!(seen(vec![narrow])[0].unsent);
    assert!(seen(Vec::new())[0].unsent);
    let mut going = registration();
    going["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
    assert_eq!(summary(&seen(vec![going.clone()]))[0], "good.x.y not_wanted");
    assert!(!seen(vec![going])[0].unsent, "an apiserver sends it still");
}

const V: HookType = HookType::Validating;

/// A policy for config maps and a binding of it, with these changes.
fn policy(change: impl Fn(&mut Value, &mut Value)) -> [(Kind, Vec<Value>); 2] {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        "scope": "*"});
    let mut policy = json!({"metadata": {"name": "p", "uid": "pu", "resourceVersion": "4"}, "spec": {
        "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule], "matchPolicy": "Equivalent",
            "namespaceSelector": {}, "objectSelector": {}},
        "validations": [{"expression": "has(object.data)"}]}});
    let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    let mut binding = json!({"metadata": {"name": "b", "uid": "bu", "resourceVersion": "5"}, "spec": spec});
    change(&mut policy, &mut binding);
    [(Kind::Policies(V), vec![policy]), (Kind::Bindings(V), vec![binding])]
}

fn with_registration(policy: [(Kind, Vec<Value>); 2]) -> Vec<(Kind, Vec<Value>)> {
    [vec![(Kind::Webhooks(V), vec![registration()])], policy.into()].concat()
}

fn judged_policy(lists: &[(Kind, Vec<Value>)]) -> AssessedEntry {
    judged(lists, &adopt(AdoptionScope::All), &AdoptionRequests::default()).remove(0)
}

fn word_of(lists: &[(Kind, Vec<Value>)]) -> &'static str {
    judged_policy(lists).against().map_or("ok", Reason::word)
}

#[test]
fn binding_is_adopted_only_if_fully_evaluable() {
    let with = |change: &dyn Fn(&mut Value, &mut Value)| word_of(&with_registration(policy(change)));
    assert_eq!(with(&|_, _| {}), "ok");
    assert_eq!(with(&|policy, _| policy["spec"]["validations"][0]["expression"] = "1 +".into()), "unservable");
    assert_eq!(with(&|_, binding| binding["spec"]["policyName"] = "q".into()), "unservable");
    let by_hand = |_: &mut Value, binding: &mut Value| binding["spec"]["policyName"] = "p.parked.gatepost.dev".into();
    assert_eq!(with(&by_hand), "unservable", "its params may be lost");
    let secrets = |policy: &mut Value, _: &mut Value| {
        policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["secrets"]);
    };
    assert_eq!(with(&secrets), "uncovered");
    assert_eq!(
        word_of(&policy(|_, _| {}).into_iter().chain([(Kind::Webhooks(V), vec![])]).collect::<Vec<_>>()),
        "uncovered",
        "nothing is registered"
    );
    let long = "p".repeat(240);
    let rename = |policy: &mut Value, binding: &mut Value| {
        policy["metadata"]["name"] = long.as_str().into();
        binding["spec"]["policyName"] = long.as_str().into();
    };
    assert_eq!(with(&rename), "unservable", "no room for the suffix");
}

#[test]
fn binding_with_params_of_a_built_in_kind_is_left() {
    let with = |params: Value| {
        judged_policy(&with_registration(policy(|policy, _| policy["spec"]["paramKind"] = params.clone())))
    };
    for api_version in ["v1", "apps/v1", "networking.k8s.io/v1", "gateway.networking.k8s.io/v1"] {
        let seen = with(json!({"apiVersion": api_version, "kind": "Limit"}));
        assert_eq!(seen.unservable, None, "what is parked is evaluated until it is given back");
        assert_eq!(seen.against().map(Reason::word), Some("unservable"), "{api_version}");
        let why = seen.against().map(ToString::to_string).unwrap_or_default();
        assert!(why.contains(&format!("of {api_version}, which may be a group of kube-apiserver itself")), "{why}");
    }
    for api_version in ["example.com/v1", "cluster.x-k8s.io/v1beta1", "k8s.io.example.com/v1"] {
        assert_eq!(with(json!({"apiVersion": api_version, "kind": "Limit"})).against(), None, "{api_version}");
    }
    assert_eq!(with(Value::Null).against(), None);
}

#[test]
fn binding_that_matches_requests_without_policies_is_left() {
    let everything = |excluded: Value| {
        let seen = judged_policy(&with_registration(policy(|policy, _| {
            let constraints = &mut policy["spec"]["matchConstraints"];
            constraints["resourceRules"][0]["apiGroups"] = json!(["*"]);
            constraints["resourceRules"][0]["resources"] = json!(["*"]);
            constraints["excludeResourceRules"] = excluded.clone();
        })));
        seen.against().map(ToString::to_string).unwrap_or_default()
    };
    assert!(everything(json!([])).starts_with("Gatepost lets requests past it: it matches admissioncontrolconfig"));
    let rule = |groups: Value, versions: Value| json!([{"operations": ["*"], "apiGroups": groups, "apiVersions": versions, "resources": ["*"]}]);
    let virtual_groups = json!(["gatepost.dev", "authentication.k8s.io", "authorization.k8s.io"]);
    let why = everything(rule(virtual_groups, json!(["*"])));
    assert!(why.contains("it matches validatingwebhookconfigurations"), "no webhook is sent these: {why}");
    let virtual_groups =
        json!(["gatepost.dev", "authentication.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io"]);
    let why = everything(rule(virtual_groups.clone(), json!(["*"])));
    assert!(why.starts_with("Gatepost's registration does not cover"), "only what is sent counts then: {why}");
    assert!(everything(rule(virtual_groups, json!(["v1"]))).contains("lets requests past it"), "not in all versions");
}

#[test]
fn binding_that_a_bypass_rule_may_be_about_is_left() {
    let with = |bypass: Value| {
        let own = json!({"metadata": {"name": "own"}, "externalAdmissionHooks": [], "bypass": [bypass]});
        let mut lists = with_registration(policy(|_, _| {}));
        lists.push((Kind::Configuration, vec![own]));
        word_of(&lists)
    };
    let resources = |resource: &str| json!([{"operations": ["*"], "apiGroups": [""], "resources": [resource]}]);
    assert_eq!(with(json!({"name": "n", "users": ["system:admin"]})), "let_past");
    assert_eq!(with(json!({"name": "n", "hooks": ["other.x.y"], "users": ["system:admin"]})), "ok");
    assert_eq!(with(json!({"name": "n", "hooks": ["p"], "resources": resources("configmaps")})), "let_past");
    assert_eq!(with(json!({"name": "n", "hooks": ["p"], "resources": resources("secrets")})), "ok");
}

#[test]
fn binding_names_the_objects_that_its_policy_reads() {
    let seen = judged_policy(&with_registration(policy(|policy, binding| {
        policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Limit"});
        policy["spec"]["validations"][0]["expression"] =
            "params != null && namespaceObject != null && authorizer.group('').resource('x').check('get').allowed()"
                .into();
        binding["spec"]["paramRef"] = json!({"name": "n", "namespace": "policies", "parameterNotFoundAction": "Deny"});
    })));
    assert_eq!(seen.against(), None);
    let reads = seen.reads.iter().map(|access| format!("{} {} {}", access.verb, access.kind, access.namespace));
    assert_eq!(reads.collect::<Vec<_>>(), ["get Limit policies", "get Namespace "]);
    assert!(seen.uses_authorizer && seen.in_flight == POLICY_LAG);
}

#[test]
fn mutating_binding_with_merges_of_unknown_kinds_is_left() {
    let with = |mutation: Value, (group, version, resource): (&str, &str, &str)| {
        let lists = policy(|policy, binding| {
            policy["spec"]["matchConstraints"]["resourceRules"] = json!([
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]},
            ]);
            let spec = policy["spec"].as_object_mut().unwrap();
            spec.remove("validations");
            spec.insert("mutations".to_owned(), json!([mutation]));
            spec.insert("reinvocationPolicy".to_owned(), "Never".into());
            binding["spec"].as_object_mut().unwrap().remove("validationActions");
        });
        let mut own = registration();
        own["kind"] = "MutatingWebhookConfiguration".into();
        own["webhooks"][0]["name"] = "gatepost.mutate.gatepost.dev".into();
        own["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:9440/mutate".into();
        own["webhooks"][0]["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*/*"], "scope": "*"}]);
        let kinds = [Kind::Policies(HookType::Mutating), Kind::Bindings(HookType::Mutating)];
        let lists = kinds.into_iter().zip(lists.map(|(_, items)| items));
        let lists: Vec<_> = [(Kind::Webhooks(HookType::Mutating), vec![own])].into_iter().chain(lists).collect();
        word_of(&lists)
    };
    let patch = "[JSONPatch{op: 'add', path: '/data', value: {}}]";
    let widgets = ("example.com", "v1", "widgets");
    assert_eq!(with(json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}), widgets), "ok");
    let merge = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}";
    let merge = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": merge}});
    assert_eq!(with(merge.clone(), ("apps", "v1", "deployments")), "ok");
    for unknown in [widgets, ("apps", "*", "deployments"), ("apps", "v1", "*"), ("", "v1", "pods/exec")] {
        assert_eq!(with(merge.clone(), unknown), "unservable", "{unknown:?}");
    }
}

/// Its spec, as its owner has written it, is the same.
#[test]
fn binding_parked_by_hand_is_judged_anew_once_it_is_given_back() {
    let mut reader = EntryReader::default();
    let mut word = |named: &'static str, annotations: Value| {
        let lists = with_registration(policy(|_, binding| {
            binding["spec"]["policyName"] = named.into();
            binding["metadata"]["annotations"] = annotations.clone();
        }));
        let none = (AdoptionRequests::default(), Announcement::default());
        let seen = reader.seen(&lists, &adopt(AdoptionScope::All), &none.0, &none.1).remove(0);
        seen.against().map_or("ok", Reason::word)
    };
    let kept = json!({"gatepost.dev/parked-param-ref": json!({"policyName": "p", "paramRef": null}).to_string()});
    assert_eq!(word("p.parked.gatepost.dev", json!({})), "unservable");
    assert_eq!(word("p", json!({})), "ok");
    assert_eq!(word("p.parked.gatepost.dev", kept), "ok");
    assert_eq!(word("p.parked.gatepost.dev", json!({})), "unservable", "the annotation is lost");
}

#[test]
fn only_parked_and_announced_bindings_become_documents() {
    let park = |named: &'static str| {
        with_registration(policy(|_, binding| {
            binding["spec"]["policyName"] = named.into();
            let kept = json!({"policyName": "p", "paramRef": null}).to_string();
            binding["metadata"]["annotations"] = json!({"gatepost.dev/parked-param-ref": kept});
        }))
    };
    let adopt = adopt(AdoptionScope::All);
    let mut adopting = EntryReader::default();
    let mut read = |second, leases: Vec<Lease>, lists: &[(Kind, Vec<Value>)]| {
        adopting.read((Duration::from_secs(second), &adopt, "r/1"), leases, lists).unwrap()
    };
    let (files, view) = read(0, Vec::new(), &park("p"));
    assert_eq!((files.len(), view.seen.len()), (0, 1), "the apiserver decides");
    let (files, view) = read(1, Vec::new(), &park("p.parked.gatepost.dev"));
    assert_eq!(files.len(), 1);
    assert_eq!(&*files[0].name, "validatingadmissionpolicies/p");
    let called = &view.calls.entries[0];
    let snapshot = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    assert_eq!(snapshot.policies()[0].bindings[0].policy_name.as_ref(), "p", "as its owner has written it");
    assert_eq!(snapshot.policy_place(0).unwrap().states()["b"], called.state);
    // Given back, it is still decided here until every apiserver has noticed.
    assert_eq!(read(2, Vec::new(), &park("p")).0.len(), 1);
    assert_eq!(read(5, Vec::new(), &park("p")).0.len(), 1);
    assert_eq!(read(9, Vec::new(), &park("p")).0.len(), 0);
    let announcement = Announcement { epoch: 1, ids: [view.seen[0].standing.id.clone()].into(), ..Default::default() };
    let mut lease = leader_lease("1", "q/1", "t", &announcement, &[], &Default::default());
    lease["metadata"]["name"] = LEADER_LEASE.into();
    assert_eq!(read(10, vec![Lease::of(&lease).unwrap()], &park("p")).0.len(), 1);
}

#[test]
fn announcement_is_unknown_if_policies_cannot_be_listed() {
    let lists = vec![(Kind::Webhooks(V), vec![object("c", vec![webhook("a.x.y", "")])])];
    let id = |kind: EntryKind, configuration: &str, name: &str| {
        EntryKey { kind, configuration: configuration.to_owned(), name: name.to_owned() }.id()
    };
    let knows = |id: String| {
        let announcement = Announcement { epoch: 1, ids: [id].into(), ..Default::default() };
        let mut lease = leader_lease("1", "q/1", "t", &announcement, &[], &Default::default());
        lease["metadata"]["name"] = LEADER_LEASE.into();
        knows_announced(&lists, &[Lease::of(&lease).unwrap()])
    };
    assert!(knows_announced(&lists, &[]));
    assert!(knows(id(EntryKind::Webhook(V), "c", "a.x.y")));
    assert!(!knows(id(EntryKind::Binding(V), "p", "b")));
}

/// The other group in which the same objects are served counts: a request by it is one that the policy matches.
#[test]
fn binding_is_left_if_a_bypass_names_the_other_group() {
    let with = |(group, resource): (&str, &str), (bypassed_group, bypassed): (&str, &str)| {
        let rule = |group: &str, resource: &str| json!({"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]});
        let bypass = json!({"name": "n", "hooks": ["p"], "resources": [rule(bypassed_group, bypassed)]});
        let own = json!({"metadata": {"name": "own"}, "externalAdmissionHooks": [], "bypass": [bypass]});
        let mut lists = with_registration(policy(|policy, _| {
            policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule(group, resource)]);
        }));
        lists.push((Kind::Configuration, vec![own]));
        word_of(&lists)
    };
    for (events, deployments) in [("events", "deployments"), ("*", "*")] {
        assert_eq!(with(("", "events"), ("events.k8s.io", events)), "let_past");
        assert_eq!(with(("events.k8s.io", events), ("", "events")), "let_past");
        assert_eq!(with(("apps", deployments), ("extensions", "deployments")), "let_past");
    }
    assert_eq!(with(("", "events"), ("events.k8s.io", "leases")), "uncovered");
    assert_eq!(with(("apps", "deployments"), ("events.k8s.io", "*")), "uncovered");
}

#[test]
fn only_bindings_that_are_wanted_or_evaluated_are_compiled() {
    let named = |named: &'static str| {
        with_registration(policy(|policy, binding| {
            policy["spec"]["validations"][0]["expression"] = "1 +".into();
            binding["spec"]["policyName"] = named.into();
        }))
    };
    let unservable = |reader: &mut EntryReader, lists: &[(Kind, Vec<Value>)], announcement: &Announcement| {
        let seen =
            reader.seen(lists, &adopt(AdoptionScope::Named), &AdoptionRequests::default(), announcement).remove(0);
        (seen.unservable.is_some(), seen.standing.id)
    };
    let (mut reader, nothing) = (EntryReader::default(), Announcement::default());
    let (is_judged, id) = unservable(&mut reader, &named("p"), &nothing);
    assert!(!is_judged, "nobody wants it");
    let announcement = Announcement { epoch: 1, ids: [id].into(), ..Default::default() };
    assert!(unservable(&mut EntryReader::default(), &named("p"), &announcement).0, "it is announced");
    assert!(unservable(&mut reader, &named("p.parked.gatepost.dev"), &nothing).0, "it is parked");
    assert!(unservable(&mut reader, &named("p"), &nothing).0, "replicas evaluate it for some seconds more");
    assert!(judged_policy(&named("p")).unservable.is_some(), "as the plan shows it");
}
