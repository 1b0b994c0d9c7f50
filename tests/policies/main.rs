//! Policies decide as in kube-apiserver: every case of this folder, by the answers of its own code.
//!
//! Each case goes through the whole decision: documents are loaded as configuration, params and namespaces come from a
//! cluster that this test plays, and the verdict is compared field by field.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

mod left_out;
mod pod_security;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use gatepost::{
    live::{
        Authorizer, ClusterObjects, Current, Discovery, Generation,
        authorizer::AccessRequest,
        cluster_objects::{ClusterRead, ObjectQuery, ObjectsError, ParamSelection},
    },
    review::{AdmissionDeps, Caller, decide},
    telemetry::Metrics,
};
use gatepost_api::{Deadline, Labels, Phase, Rope, Selector, Served, Verdict};
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_cel::{AccessDecision, AccessTarget};
use gatepost_config::{Snapshot, SourceFile};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_wire::json_view;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::left_out::LEFT_OUT;

/// Long enough on a busy machine: nothing waits.
const LONG: Duration = Duration::from_secs(600);

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policies"))
}

fn answers() -> BTreeMap<String, Value> {
    let text = std::fs::read(folder().join("answers.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Returns the definitions of the custom resources of a case.
fn definitions(answer: &Value) -> Vec<Value> {
    let mut versions = BTreeMap::<_, Vec<Value>>::new();
    for served in answer["resources"].as_array().into_iter().flatten() {
        let name: Vec<_> = served["kind"].as_str().into_iter().flat_map(|name| name.split('/')).collect();
        let resource = served["resource"].as_str().and_then(|name| name.rsplit_once('/'));
        let ([group, version, kind], Some((_, resource))) = (&name[..], resource) else { continue };
        if !group.contains('.') || served["withoutSchema"] == true {
            continue;
        }
        let any = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = Some(served["schema"].clone()).filter(Value::is_object).unwrap_or_else(any);
        let version = json!({"name": version, "served": true, "schema": {"openAPIV3Schema": schema}});
        versions.entry((*group, resource, *kind)).or_default().push(version);
    }
    let definition = |((group, resource, kind), versions): ((&str, &str, &str), Vec<Value>)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{resource}.{group}")},
            "spec": {"group": group, "names": {"plural": resource, "kind": kind}, "versions": versions},
        })
    };
    versions.into_iter().map(definition).collect()
}

/// Returns the documents of a case that are configuration.
fn configuration(name: &str) -> SourceFile {
    let text = std::fs::read_to_string(folder().join("cases").join(format!("{name}.yaml"))).unwrap();
    let is_policy =
        |document: &&str| document.lines().any(|line| line.starts_with("kind: ") && line.contains("AdmissionPolicy"));
    let documents: Vec<_> = text.split("\n---\n").filter(is_policy).collect();
    SourceFile { name: "case.yaml".into(), bytes: documents.join("\n---\n").into() }
}

/// Compiles the documents of a case. The error has every problem.
fn loaded(name: &str, answer: &Value) -> Result<Snapshot, Vec<String>> {
    let definitions = json!({"apiVersion": "v1", "kind": "List", "items": definitions(answer)});
    let mut files = vec![configuration(name)];
    if definitions["items"] != json!([]) {
        files.push(SourceFile { name: "definitions.json".into(), bytes: definitions.to_string().into() });
    }
    let loaded = gatepost_config::load(&files, &|_| Err(std::io::ErrorKind::NotFound.into()));
    loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// Answers reads of the cluster from the objects of a case.
async fn play_cluster(mut reads: mpsc::Receiver<ClusterRead>, answer: Value) {
    let all = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let (namespaces, params) = (all("namespaces"), all("params"));
    let served = all("resources");
    while let Some(ClusterRead { query, answer }) = reads.recv().await {
        let found: Result<Vec<Value>, ObjectsError> = match query {
            ObjectQuery::Namespace(name) => {
                Ok(namespaces.iter().filter(|object| object["metadata"]["name"] == *name).cloned().collect())
            }
            ObjectQuery::Params { api_version, kind, namespace, is_namespace_given, which } => {
                let is_kind = |object: &&Value| object["apiVersion"] == *api_version && object["kind"] == *kind;
                let full = format!("{api_version}/{kind}");
                let custom = served.iter().find(|resource| resource["kind"] == *full);
                let is_cluster_scoped = match custom {
                    Some(resource) => resource["namespaced"] != true,
                    None => matches!(&*kind, "Namespace" | "Node" | "ClusterRole" | "PersistentVolume"),
                };
                let is_known = custom.is_some() || matches!(&*full, "v1/ConfigMap" | "v1/Namespace" | "v1/Secret");
                let in_namespace = |object: &&Value| {
                    is_cluster_scoped || object["metadata"]["namespace"].as_str().unwrap_or_default() == &*namespace
                };
                let selected = |object: &&Value| match &which {
                    ParamSelection::Name(name) => object["metadata"]["name"] == **name,
                    ParamSelection::Selector(text) => {
                        let labels = object["metadata"]["labels"].as_object();
                        let pairs = labels.into_iter().flatten();
                        let labels: Labels =
                            pairs.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
                        selector(text).matches(&labels)
                    }
                };
                let is_namespaced = !is_cluster_scoped;
                match ObjectsError::check_namespace(is_namespaced, &namespace, is_namespace_given) {
                    _ if !is_known => Err(ObjectsError::unknown_kind(&api_version, &kind)),
                    Err(why) => Err(why),
                    Ok(()) => {
                        let params = params.iter().filter(is_kind).filter(in_namespace).filter(selected);
                        let mut params: Vec<_> = params.cloned().collect();
                        let place = |object: &Value| {
                            let part = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
                            (part("namespace"), part("name"))
                        };
                        params.sort_by_key(place);
                        Ok(params)
                    }
                }
            }
        };
        let found = found.map(|objects| objects.iter().map(|object| object.to_string().into()).collect());
        if let Some(answer) = answer {
            let _ = answer.send(found);
        }
    }
}

/// Reads a selector as [`Selector`] writes it.
fn selector(text: &str) -> Selector {
    use gatepost_api::selector::Requirement;
    let mut requirements = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().scan(0, |depth, (at, c)| {
            *depth += i32::from(c == '(') - i32::from(c == ')');
            Some((at, c, *depth))
        });
        let end = end.filter(|(_, c, depth)| *c == ',' && *depth == 0).map(|(at, ..)| at).next().unwrap_or(rest.len());
        let one = rest[..end].trim();
        rest = rest.get(end + 1..).unwrap_or_default();
        let list = |list: &str| list.trim_matches(['(', ')', ' ']).split(',').map(|v| Box::from(v.trim())).collect();
        requirements.push(if let Some((key, values)) = one.split_once(" notin ") {
            Requirement::NotIn(key.into(), list(values))
        } else if let Some((key, values)) = one.split_once(" in ") {
            Requirement::In(key.into(), list(values))
        } else if let Some((key, value)) = one.split_once('=') {
            Requirement::Is(key.into(), value.trim_start_matches('=').into())
        } else if let Some(key) = one.strip_prefix('!') {
            Requirement::DoesNotExist(key.into())
        } else {
            Requirement::Exists(one.into())
        });
    }
    Selector(requirements)
}

/// Answers access checks from the rules of a case.
async fn play_authorizer(mut requests: mpsc::Receiver<AccessRequest>, answer: Value) {
    let rules = answer["access"].as_array().cloned().unwrap_or_default();
    while let Some(AccessRequest { username, check, answer, .. }) = requests.recv().await {
        let subject = match &check.subject {
            gatepost_cel::Subject::Requester => username.to_string(),
            gatepost_cel::Subject::ServiceAccount { namespace, name } => {
                format!("system:serviceaccount:{namespace}:{name}")
            }
        };
        let mut attributes = vec![("user", subject), ("verb", check.verb.to_string())];
        match &check.target {
            AccessTarget::Path(path) => attributes.push(("path", path.to_string())),
            AccessTarget::Resource(of) => attributes.extend([
                ("group", of.group.to_string()),
                ("resource", of.resource.to_string()),
                ("subresource", of.sub_resource.to_string()),
                ("namespace", of.namespace.to_string()),
                ("name", of.name.to_string()),
            ]),
        }
        let fits = |rule: &&Value| {
            let is_outcome = |key: &str| matches!(key, "decision" | "reason" | "error");
            rule.as_object().into_iter().flatten().filter(|(key, _)| !is_outcome(key)).all(|(key, value)| {
                attributes.iter().any(|(name, own)| *name == key && *value == **own) || *value == json!("")
            })
        };
        let rule = rules.iter().find(fits);
        let text = |key: &str| rule.and_then(|rule| rule[key].as_str());
        let _ = answer.send(Ok(AccessDecision {
            allowed: text("decision") == Some("allow"),
            reason: text("reason").unwrap_or_default().into(),
            error: text("error").map(Box::from),
        }));
    }
}

/// Decides the request of a case by its policies.
async fn decided(snapshot: Snapshot, answer: &Value) -> Verdict {
    let metrics = Arc::new(Metrics::new(1));
    let labels = |object: &Value| -> Labels {
        let labels = object["metadata"]["labels"].as_object();
        labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
    };
    let namespaces = answer["namespaces"].as_array().cloned().unwrap_or_default();
    let named = |object: &Value| Some((Box::from(object["metadata"]["name"].as_str()?), labels(object)));
    let snapshot = snapshot.with_namespaces(namespaces.iter().filter_map(named).collect::<Vec<_>>());
    let current = Arc::new(Current::new(Instant::now()));
    current.publish(Arc::new(Generation::of(Arc::new(snapshot), &metrics)));
    current.freshness().stamp_awake(Instant::now() + LONG);
    let (objects, reads) = ClusterObjects::new();
    let (authorizer, requests) = Authorizer::new();
    tokio::spawn(play_cluster(reads, answer.clone()));
    tokio::spawn(play_authorizer(requests, answer.clone()));
    let deps = AdmissionDeps {
        objects: Some(objects),
        discovery: Some(discovery(answer)),
        authorizer: Some(authorizer),
        ..AdmissionDeps::new(current, metrics)
    };
    let caller = Caller::new(Phase::Review, Deadline::after(Instant::now(), LONG));
    let review = json_view::view(answer["review"].to_string().into()).expect("a review");
    decide(&deps, &review, &caller).await
}

/// Returns what the apiserver of a case serves: built-in resources, and those of the case.
fn discovery(answer: &Value) -> Arc<Discovery> {
    const BUILT_IN: [&str; 13] = [
        "v1/pods",
        "v1/services",
        "v1/configmaps",
        "v1/secrets",
        "v1/namespaces",
        "v1/nodes",
        "v1/serviceaccounts",
        "v1/persistentvolumes",
        "apps/v1/deployments",
        "apps/v1/statefulsets",
        "apps/v1/daemonsets",
        "batch/v1/jobs",
        "rbac.authorization.k8s.io/v1/clusterroles",
    ];
    let own = answer["resources"].as_array().into_iter().flatten().filter_map(|own| own["resource"].as_str());
    let mut served = Served::default();
    for resource in BUILT_IN.into_iter().chain(own) {
        let parts: Vec<_> = resource.split('/').collect();
        match parts[..] {
            [version, resource] => served.add("", version, resource),
            [group, version, resource] => served.add(group, version, resource),
            _ => panic!("{resource}"),
        }
    }
    let discovery = Discovery::default();
    discovery.set(served, Moment::now(suspended_time));
    Arc::new(discovery)
}

/// Removes what Go's types leave out or fill in: null, empty lists and maps, and zeros.
fn pruned(value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| pruned(item).unwrap_or(Value::Null)).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(key, value)| Some((key.clone(), pruned(value)?)));
            let members: serde_json::Map<_, _> = members.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other.clone()),
    }
}

/// Returns the object of a request with the verdict's patch applied; `None` if there is no patch.
fn changed(verdict: &Verdict, answer: &Value) -> Option<Value> {
    let patch = Patch::parse(verdict.patch.clone()?).unwrap();
    let object = answer["review"]["request"]["object"].to_string();
    let object = Document::new(Rope::new([object.into()])).unwrap();
    let object = object.patched(&patch, PatchLimits::default()).unwrap();
    Some(serde_json::from_slice(&object.rope().to_bytes()).unwrap())
}

/// Returns the verdict in the form of an answer.
fn written(verdict: &Verdict, answer: &Value) -> Value {
    let mut decision = json!({"allowed": verdict.allowed()});
    if let Some(refusal) = &verdict.refusal {
        let causes: Vec<_> = refusal.causes.iter().map(|cause| json!({"message": cause.message})).collect();
        decision["status"] = json!({
            "code": refusal.code, "reason": refusal.reason, "message": refusal.message, "causes": causes,
        });
    }
    if !verdict.warnings.is_empty() {
        decision["warnings"] = json!(verdict.warnings);
    }
    let ours = |key: &str| key.starts_with("gatepost.dev/");
    let annotations = verdict.audit_annotations.iter().filter(|(key, _)| !ours(key));
    let annotations: BTreeMap<_, _> = annotations.map(|(key, value)| (key, value)).collect();
    if !annotations.is_empty() {
        decision["auditAnnotations"] = json!(annotations);
    }
    if let Some(object) = changed(verdict, answer).as_ref().and_then(pruned) {
        decision["object"] = object;
    }
    // The change may be one that Go's types do not show.
    if decision.get("object") == pruned(&answer["review"]["request"]["object"]).as_ref() {
        decision.as_object_mut().map(|decision| decision.remove("object"));
    }
    decision
}

/// Returns an answer without what a verdict does not have: the details of a status but for its causes, and the checks.
fn comparable(decision: &Value, before: &Value) -> Value {
    let mut decision = decision.clone();
    if let Some(decision) = decision.as_object_mut() {
        decision.remove("checks");
        if let Some(object) = decision.remove("object") {
            let object = pruned(&object).unwrap_or_default();
            if Some(&object) != pruned(before).as_ref() {
                decision.insert("object".to_owned(), object);
            }
        }
        if let Some(status) = decision.get_mut("status").and_then(Value::as_object_mut) {
            let details = status.remove("details").unwrap_or_default();
            let causes: Vec<_> = details["causes"].as_array().cloned().unwrap_or_default();
            status.insert("causes".to_owned(), json!(causes));
        }
        if let Some(warnings) = decision.get_mut("warnings").and_then(Value::as_array_mut) {
            // The apiserver drops repeated ones, and so does a verdict.
            let mut seen = BTreeSet::new();
            warnings.retain(|warning| seen.insert(warning.to_string()));
        }
    }
    decision
}

/// Returns the difference of a case to its answer; `None` if there is none.
async fn difference(name: &str, answer: &Value) -> Option<String> {
    let is_refused = answer.get("refused").is_some();
    let snapshot = match loaded(name, answer) {
        Ok(_) if is_refused && answer.get("decision").is_none() => {
            return Some(format!("is accepted; refused for {}", answer["refused"]));
        }
        Ok(snapshot) => snapshot,
        // Documents that kube-apiserver would not create are not read here either, where it decides by stored ones.
        Err(_) if is_refused => return None,
        Err(problems) => return Some(format!("is refused: {}", problems.join("; "))),
    };
    let verdict = decided(snapshot, answer).await;
    let before = &answer["review"]["request"]["object"];
    let (own, wanted) = (written(&verdict, answer), comparable(&answer["decision"], before));
    let reversed = answer.get("reversed").map(|decision| comparable(decision, before));
    (own != wanted && reversed.as_ref() != Some(&own)).then(|| format!("\n  got    {own}\n  wanted {wanted}"))
}

#[tokio::test]
async fn policies_decide_as_in_kube_apiserver() {
    let answers = answers();
    let (mut differences, mut passed) = (Vec::new(), 0);
    let classes = LEFT_OUT.iter().flat_map(|(why, names)| names.iter().map(move |name| (*name, *why)));
    let mut left: BTreeMap<&str, &str> = classes.collect();
    let left_out = left.len();
    for (name, answer) in &answers {
        let difference = difference(name, answer).await;
        match (left.remove(&**name), difference) {
            (None, None) => passed += 1,
            (None, Some(difference)) => differences.push(format!("{name}: {difference}")),
            (Some(_), Some(_)) => {}
            (Some(why), None) => differences.push(format!("{name}: passes, and is left out ({why})")),
        }
    }
    differences.extend(left.keys().map(|name| format!("{name}: is left out, and there is no such case")));
    println!("{passed}/{} cases of kube-apiserver v0.37.2; {} left out with a reason", answers.len(), left_out);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn every_case_has_an_answer() {
    let answers = answers();
    let files = std::fs::read_dir(folder().join("cases")).unwrap().map(|file| file.unwrap().file_name());
    let names: BTreeSet<_> = files.map(|name| name.to_string_lossy().trim_end_matches(".yaml").to_owned()).collect();
    assert_eq!(names, answers.keys().cloned().collect());
}
