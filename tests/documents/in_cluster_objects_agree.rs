//! `deploy/kubernetes/in-cluster` grants what its siblings grant, and its objects name each other.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

const FOLDER: &str = "deploy/kubernetes/in-cluster";

fn objects(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(path).expect(path)).expect(path)
}

fn object(file: &str, kind: &str) -> Value {
    let mut all = objects(&format!("{FOLDER}/{file}")).into_iter();
    all.find(|object| object["kind"] == kind).expect(kind)
}

/// Rules of the ClusterRoles in that file, by name.
fn roles(path: &str) -> BTreeMap<String, Value> {
    let roles = objects(path).into_iter().filter(|object| object["kind"] == "ClusterRole");
    roles.map(|role| (role["metadata"]["name"].as_str().expect("a name").to_owned(), role["rules"].clone())).collect()
}

#[test]
fn its_roles_are_those_of_the_files_for_other_places() {
    let siblings = ["beside", "registration", "services", "source", "source-drain"];
    let known: BTreeMap<_, _> =
        siblings.into_iter().flat_map(|name| roles(&format!("deploy/kubernetes/{name}.yaml"))).collect();
    let here = roles(&format!("{FOLDER}/rights.yaml"));
    assert_eq!(here.len(), 5);
    for (name, rules) in &here {
        assert_eq!(Some(rules), known.get(name), "{name}");
    }
    let bindings = objects(&format!("{FOLDER}/rights.yaml"));
    let bound = bindings.iter().filter(|object| object["kind"] == "ClusterRoleBinding");
    let bound: Vec<_> = bound.map(|binding| binding["roleRef"]["name"].as_str().expect("a role").to_owned()).collect();
    assert_eq!(bound.len(), here.len());
    assert!(bound.iter().all(|name| here.contains_key(name)), "{bound:?}");
}

#[test]
fn every_file_is_in_the_base_except_one() {
    let mut there: Vec<_> = fs::read_dir(FOLDER)
        .expect(FOLDER)
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| !["kustomization.yaml", "network-policy.yaml", "adopt"].contains(&name.as_str()))
        .collect();
    there.sort_unstable();
    let base = objects(&format!("{FOLDER}/kustomization.yaml")).remove(0);
    let mut listed: Vec<_> = base["resources"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|name| name.as_str().expect("text").to_owned())
        .collect();
    listed.sort_unstable();
    assert_eq!(there, listed);
}

#[test]
fn adoption_component_grants_equal_its_sibling() {
    let of_kind = |path: &str, kind: &str| {
        let all = objects(path).into_iter().filter(|object| object["kind"] == kind);
        all.map(|object| (object["metadata"]["namespace"].clone(), object["rules"].clone())).collect::<Vec<_>>()
    };
    let (here, sibling) = (format!("{FOLDER}/adopt/rights.yaml"), "deploy/kubernetes/adopt.yaml");
    for kind in ["ClusterRole", "Role"] {
        let granted = of_kind(&here, kind);
        assert!(!granted.is_empty() && granted == of_kind(sibling, kind), "{kind}");
    }
    let bindings = objects(&here).into_iter().filter(|object| !object["subjects"].is_null());
    let subjects: Vec<_> = bindings.map(|binding| binding["subjects"].clone()).collect();
    let only = serde_json::json!([{"kind": "ServiceAccount", "name": "gatepost", "namespace": "gatepost"}]);
    assert!(subjects.len() == 4 && subjects.iter().all(|subjects| *subjects == only), "{subjects:?}");
}

#[test]
fn service_pods_certificates_and_budget_mean_the_same_pods() {
    let (deployment, service) = (object("deployment.yaml", "Deployment"), object("service.yaml", "Service"));
    let (template, selector) = (&deployment["spec"]["template"], &service["spec"]["selector"]);
    assert_eq!(template["metadata"]["labels"], *selector);
    assert_eq!(object("disruption.yaml", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], *selector);
    for spread in template["spec"]["topologySpreadConstraints"].as_array().expect("a list") {
        assert_eq!(spread["labelSelector"]["matchLabels"], *selector);
    }
    let port = &service["spec"]["ports"][0];
    // `gatepost certificates` looks at the port of that name.
    assert_eq!((&port["name"], &port["targetPort"]), (&"https".into(), &"https".into()));
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["name"], "https");
    let secret = object("certificates.yaml", "Secret");
    assert_eq!(template["spec"]["volumes"][0]["secret"]["secretName"], secret["metadata"]["name"]);
    assert_eq!(secret.get("data"), None, "applying the base again must not empty it");

    // The pause before SIGTERM, the longest review, half a second of margin and the end of the process.
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().expect("seconds");
    let grace = template["spec"]["terminationGracePeriodSeconds"].as_u64().expect("seconds");
    assert!(grace >= pause + gatepost::runtime::Settings::MAX_DEADLINE.as_secs() + 5, "{grace} s");
}
