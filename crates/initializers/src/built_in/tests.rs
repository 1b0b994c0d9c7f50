use proptest::prelude::*;
use serde_json::json;

use super::*;
use gatepost_api::Rope;
use gatepost_base::offload::OFFLOAD_THRESHOLD;
use gatepost_json_patch::{self as patch, Document, PatchLimits};

fn shape(value: &Value) -> JsonTemplate {
    JsonTemplate::of(value).unwrap()
}

fn named(key: &str, values: &[Value]) -> Vec<(Box<str>, JsonTemplate)> {
    values.iter().map(|value| (value[key].as_str().unwrap().into(), shape(value))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn texts(pairs: &[(&str, &str)]) -> Vec<(Box<str>, Template)> {
    pairs.iter().map(|(key, value)| ((*key).into(), Template::parse(value).unwrap())).collect()
}

fn everything(place: PodPlace) -> ObjectAdditions {
    ObjectAdditions {
        labels: texts(&[("team", "${namespace.labels.team}"), ("app", "other"), ("gone", "${labels.none}")]),
        annotations: texts(&[("a.b/by~", "${user} in ${namespace}")]),
        pods: Some(PodAdditions {
            place,
            env: named("name", &[json!({"name": "NS", "value": "${namespace}"}), json!({"name": "A", "value": "1"})]),
            volumes: named("name", &[json!({"name": "v", "emptyDir": {}})]),
            volume_mounts: named("mountPath", &[json!({"name": "v", "mountPath": "/v"})]),
            containers: named("name", &[json!({"name": "side", "image": "s"})]),
            init_containers: named("name", &[json!({"name": "first", "image": "f"})]),
            requests: pairs(&[("cpu", "100m"), ("memory", "64Mi")]),
            limits: pairs(&[("memory", "128Mi")]),
            image_pull_policy: Some("Always".into()),
            active_deadline_seconds: Some(60),
            images: pairs(&[("web:1", "web@sha256:0")]),
        }),
    }
}

fn applied(additions: &ObjectAdditions, object: &Value) -> Value {
    let labels: Labels = [("team", "red")].into_iter().collect();
    let facts = TemplateFacts { namespace: "shop", name: "", user: "ann", namespace_labels: Some(&labels) };
    let text = object.to_string();
    let Some(operations) = patch(additions, text.as_bytes(), facts).unwrap() else { return object.clone() };
    let operations = patch::Patch::parse(operations).unwrap();
    let document =
        Document::new(Rope::new([text.into()])).unwrap().patched(&operations, PatchLimits::default()).unwrap();
    serde_json::from_slice(&document.rope().to_bytes()).unwrap()
}

#[test]
fn built_in_adds_missing_fields_and_keeps_existing_ones() {
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "web", "image": "web:1", "env": [{"name": "A", "value": "own"}], "resources": {}},
                {"name": "db", "image": "db", "volumeMounts": [{"name": "x", "mountPath": "/v"}],
                 "resources": {"limits": {"memory": "1Gi"}, "requests": null}},
            ],
        },
    });
    let env = json!({"name": "NS", "value": "shop"});
    let expect = json!({
        "metadata": {
            "name": "p",
            "labels": {"app": "web", "team": "red"},
            "annotations": {"a.b/by~": "ann in shop"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": 60,
            "initContainers": [{"name": "first", "image": "f"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {"name": "web", "image": "web@sha256:0", "imagePullPolicy": "Always",
                 "env": [{"name": "A", "value": "own"}, env],
                 "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                 "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}},
                {"name": "db", "image": "db", "imagePullPolicy": "Always",
                 "env": [env, {"name": "A", "value": "1"}],
                 "volumeMounts": [{"name": "x", "mountPath": "/v"}],
                 "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}},
                {"name": "side", "image": "s"},
            ],
        },
    });
    let patched = applied(&everything(PodPlace::Pod), &pod);
    assert_eq!(patched, expect);
}

#[test]
fn built_in_changes_pod_templates_of_workloads() {
    let spec = || json!({"containers": [{"name": "web", "image": "web:1"}]});
    let workload = json!({"metadata": {}, "spec": {"template": {"spec": spec()}}});
    let patched = applied(&everything(PodPlace::Template), &workload);
    assert_eq!(patched["spec"]["template"]["spec"]["containers"][0]["image"], "web@sha256:0");
    let schedule = json!({"metadata": {}, "spec": {"jobTemplate": {"spec": {"template": {"spec": spec()}}}}});
    let patched = applied(&everything(PodPlace::JobTemplate), &schedule);
    let pods = &patched["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pods["containers"][1]["name"], "side");
    assert_eq!(pods["activeDeadlineSeconds"], Value::Null, "it does not run once");
}

#[test]
fn built_in_error_quotes_nothing_of_the_object() {
    let additions = everything(PodPlace::Pod);
    for bad in [
        r#"{"secret":1"#,
        r#"{"spec":{}}"#,
        r#"{"metadata":{}}"#,
        r#"{"metadata":{},"spec":"secret"}"#,
        r#"{"metadata":{"labels":"secret"},"spec":{}}"#,
        r#"{"metadata":{},"spec":{"containers":{"secret":1}}}"#,
    ] {
        let error = patch(&additions, bad.as_bytes(), TemplateFacts::default()).unwrap_err();
        assert!(!error.contains("secret"), "{bad}: {error}");
    }
}

#[test]
fn built_in_adds_at_most_as_much_as_a_patch_may_have() {
    let mut additions = everything(PodPlace::Pod);
    let pod = |container: &str, many: usize| {
        format!(r#"{{"metadata":{{}},"spec":{{"containers":[{}]}}}}"#, vec![container; many].join(","))
    };
    let operations = |additions: &ObjectAdditions, pod: &str| {
        let patch = patch(additions, pod.as_bytes(), TemplateFacts::default())?.unwrap();
        Ok::<_, String>(patch::Patch::parse(patch).unwrap().len())
    };
    // For each container a variable, the mount, its resources and the policy; four more for the object.
    let listed = r#"{"env":[],"volumeMounts":[]}"#;
    assert_eq!(operations(&additions, &pod(listed, 1900)), Ok(4 * 1900 + 4));
    let error = operations(&additions, &pod(listed, 2500)).unwrap_err();
    assert!(error.contains("more than 10000 additions"), "{error}");
    assert!(operations(&additions, &pod("{}", 10_001)).unwrap_err().contains("cannot be read"));

    let pods = additions.pods.as_mut().unwrap();
    pods.env = named("name", &[json!({"name": "LONG", "value": "x".repeat(100 << 10)})]);
    assert!(operations(&additions, &pod("{}", 30)).is_ok());
    assert!(operations(&additions, &pod("{}", 60)).unwrap_err().contains("4 MiB"));
}

#[test]
fn built_in_work_counts_containers() {
    let additions = everything(PodPlace::Pod);
    let work = |object: &str| work(&additions, [object.as_bytes()].into_iter());
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}).to_string();
    assert!((BYTES_PER_OPERATION..OFFLOAD_THRESHOLD / 10).contains(&work(&pod)));
    assert!(work(&"{},".repeat(4000)) >= OFFLOAD_THRESHOLD);
    assert_eq!(super::work(&ObjectAdditions::default(), [&b"{}"[..]].into_iter()), 0);
}

#[test]
fn built_in_changes_a_container_that_shares_only_the_name_of_an_added_one() {
    let containers = |image: &str| json!({"metadata": {}, "spec": {"containers": [{"name": "side", "image": image}]}});
    let side = |image: &str| {
        let patched = applied(&everything(PodPlace::Pod), &containers(image));
        patched["spec"]["containers"][0].clone()
    };
    let own = side("web:1");
    assert_eq!((&own["image"], &own["imagePullPolicy"]), (&json!("web@sha256:0"), &json!("Always")));
    assert_eq!(side("s"), json!({"name": "side", "image": "s"}), "it is the one that is added");
}

fn name() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), "[a-dA]".prop_map(Value::from), Just("side".into()), Just("NS".into())]
}

fn list(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 3 => proptest::collection::vec(item, 0..3).prop_map(Value::from)]
}

fn map() -> impl Strategy<Value = Value> {
    let key = prop_oneof![Just("cpu"), Just("memory"), Just("team"), Just("app")];
    let some = proptest::collection::btree_map(key, "[a-z]{0,2}", 0..3);
    prop_oneof![1 => Just(Value::Null), 3 => some.prop_map(|map| json!(map))]
}

prop_compose! {
    fn container()(
        name in name(), image in prop_oneof![Just("web:1"), Just("db")], env in list(name().prop_map(|n| json!({"name": n}))),
        mounts in list(name().prop_map(|n| json!({"mountPath": n}))), requests in map(), limits in map(), some in any::<bool>(),
    ) -> Value {
        let resources = if some { json!({"requests": requests, "limits": limits}) } else { Value::Null };
        json!({"name": name, "image": image, "env": env, "volumeMounts": mounts, "resources": resources})
    }
}

proptest! {
    #[test]
    fn built_in_adds_once_when_run_twice(
        containers in list(container()), first in list(container()), volumes in list(name().prop_map(|n| json!({"name": n}))),
        labels in map(), annotations in map(), policy in name(),
    ) {
        let pod = json!({
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": containers, "initContainers": first, "volumes": volumes, "restartPolicy": policy},
        });
        let additions = everything(PodPlace::Pod);
        let once = applied(&additions, &pod);
        prop_assert_eq!(applied(&additions, &once), once);
    }
}
