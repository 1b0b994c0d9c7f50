//! New bindings of policies wait for their params.

use tokio::sync::mpsc;

use super::*;
use crate::live::{
    ClusterObjects,
    cluster_objects::{ClusterRead, ObjectQuery, ObjectsError, ObjectsResult, ParamSelection},
};

/// A policy with bindings: the name of each, and that of its param.
fn policy(bindings: &[(&str, &str)]) -> Contents {
    let mut yaml = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
                    metadata: {name: p}\nspec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints: \
                    {resourceRules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}\n  \
                    validations: [{expression: 'params != null'}]\n"
        .to_owned();
    for (name, param) in bindings {
        yaml.push_str(&format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
             metadata: {{name: {name}}}\nspec:\n  policyName: p\n  validationActions: [Deny]\n  paramRef: \
             {{name: {param}, namespace: d, parameterNotFoundAction: Deny}}\n"
        ));
    }
    written(&yaml)
}

/// A rotator beside a cluster, and the reads that it sends there.
fn beside_a_cluster() -> (Rotator, mpsc::Receiver<ClusterRead>) {
    let (objects, reads) = ClusterObjects::new();
    let cache = CandidateCache::default().with_authorizer(true);
    (rotator_with(RotatorOptions { objects: Some(objects), cache, ..options() }), reads)
}

/// Answers the next read of that param, and applies its result. Earlier reads of others are no longer waited for.
async fn answer(rotator: &mut Rotator, reads: &mut mpsc::Receiver<ClusterRead>, param: &str, result: ObjectsResult) {
    let name = ParamSelection::Name(param.into());
    let is_of = |read: &ClusterRead| matches!(&read.query, ObjectQuery::Params { which, .. } if *which == name);
    let mut read = reads.recv().await.unwrap();
    while !is_of(&read) {
        read = reads.recv().await.unwrap();
    }
    read.answer.unwrap().send(result).unwrap();
    let reads = rotator.params.results().await.unwrap();
    rotator.on_params_read(reads);
}

/// Names of the bindings that are evaluated.
fn evaluated(rotator: &Rotator) -> Vec<String> {
    let generation = rotator.current.load();
    let [live] = &*generation.policies else { panic!("one policy") };
    let bindings = live.policy.bindings.iter().enumerate();
    let bindings = bindings.filter(|(index, _)| !live.awaits_params_of(*index));
    bindings.map(|(_, binding)| binding.name.to_string()).collect()
}

fn awaited(rotator: &Rotator) -> Vec<(String, Option<String>)> {
    let awaited = rotator.options.status.awaited_params.get();
    let bindings = awaited.iter().flat_map(|awaited| &awaited.bindings);
    bindings.map(|one| (one.binding.to_string(), one.last_failure.clone())).collect()
}

fn is_unready(rotator: &Rotator) -> bool {
    rotator.options.status.awaited_params.get().is_some_and(|awaited| awaited.unready_until.is_some())
}

fn unread() -> ObjectsResult {
    Err(ObjectsError::Unread("down".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn new_binding_is_evaluated_once_its_params_were_read() {
    let (mut rotator, mut reads) = beside_a_cluster();
    read(&mut rotator, contents(&[])).await;
    read(&mut rotator, contents(&[])).await;
    read(&mut rotator, policy(&[("a", "x")])).await;
    assert_eq!(evaluated(&rotator), [""; 0]);
    assert_eq!(awaited(&rotator), [("a".to_owned(), None)]);
    assert!(!is_unready(&rotator), "others are served meanwhile");

    answer(&mut rotator, &mut reads, "x", unread()).await;
    assert_eq!(awaited(&rotator), [("a".to_owned(), Some("down".to_owned()))]);
    let unknown = ObjectsError::unknown_kind("v1", "ConfigMap");
    answer(&mut rotator, &mut reads, "x", Err(unknown.clone())).await;
    assert_eq!(awaited(&rotator), [("a".to_owned(), Some(unknown.to_string()))]);
    assert_eq!(evaluated(&rotator), [""; 0]);

    // No object is a result: then `parameterNotFoundAction` decides.
    answer(&mut rotator, &mut reads, "x", Ok(Arc::default())).await;
    assert_eq!((evaluated(&rotator), awaited(&rotator)), (vec!["a".to_owned()], Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn binding_that_is_evaluated_stays_so_with_other_params() {
    let (mut rotator, mut reads) = beside_a_cluster();
    for _ in 0..2 {
        read(&mut rotator, policy(&[("a", "x")])).await;
    }
    answer(&mut rotator, &mut reads, "x", Ok(Arc::default())).await;
    read(&mut rotator, policy(&[("a", "y"), ("b", "y")])).await;
    assert_eq!(evaluated(&rotator), ["a"], "b is new");
    // It is the same one, and waits as before.
    read(&mut rotator, policy(&[("a", "y"), ("b", "z")])).await;
    assert_eq!(evaluated(&rotator), ["a"]);
    answer(&mut rotator, &mut reads, "z", Ok(Arc::default())).await;
    assert_eq!(evaluated(&rotator), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn first_configuration_without_params_delays_readiness() {
    let (mut rotator, mut reads) = beside_a_cluster();
    read(&mut rotator, policy(&[("a", "x")])).await;
    assert_eq!(evaluated(&rotator), ["a"], "a restart enforces no less");
    assert!(is_unready(&rotator));
    answer(&mut rotator, &mut reads, "x", unread()).await;
    assert!(is_unready(&rotator));
    answer(&mut rotator, &mut reads, "x", Ok(Arc::default())).await;
    assert!(!is_unready(&rotator));
}

#[tokio::test(start_paused = true)]
async fn wait_for_params_of_first_configuration_is_bounded() {
    let (mut rotator, mut reads) = beside_a_cluster();
    for _ in 0..2 {
        read(&mut rotator, policy(&[("a", "x")])).await;
    }
    read(&mut rotator, policy(&[("a", "x"), ("b", "x")])).await;
    assert_eq!(evaluated(&rotator), ["a"]);
    answer(&mut rotator, &mut reads, "x", Ok(Arc::default())).await;
    assert_eq!(evaluated(&rotator), ["a", "b"]);
}

/// Bindings of two enforcements are two policies, of the same name.
#[tokio::test(start_paused = true)]
async fn bindings_of_two_enforcements_stay_evaluated() {
    let both = || {
        let text = policy(&[("a", "x"), ("b", "x")]).files[0].bytes.clone();
        let text = String::from_utf8(text.to_vec()).unwrap();
        text.replace("{name: b}", "{name: b, annotations: {gatepost.dev/enforcement: Shadow}}")
    };
    let (mut rotator, mut reads) = beside_a_cluster();
    for _ in 0..2 {
        read(&mut rotator, written(&both())).await;
    }
    answer(&mut rotator, &mut reads, "x", Ok(Arc::default())).await;
    read(&mut rotator, written(&(both() + "---\n" + &empty()))).await;
    let in_force = rotator.current.load();
    assert_eq!(in_force.policies.len(), 2);
    assert!(in_force.policies.iter().all(|live| live.awaiting_params.is_empty()), "{:?}", in_force.policies);
    rotator.publish_again(&in_force, in_force.revision.clone(), Vec::new());
    assert_eq!(awaited(&rotator), []);
}

fn empty() -> String {
    String::from_utf8(contents(&[]).files[0].bytes.to_vec()).unwrap()
}

/// Else whoever adds params to a policy would open it.
#[tokio::test(start_paused = true)]
async fn policy_that_gets_params_stays_evaluated() {
    let (mut rotator, _reads) = beside_a_cluster();
    let with = policy(&[("a", "x")]).files[0].bytes.clone();
    let with = String::from_utf8(with.to_vec()).unwrap();
    let without = with.replace("paramKind: {apiVersion: v1, kind: ConfigMap}", "failurePolicy: Fail");
    let without = without
        .replace("params != null", "true")
        .replace("paramRef: {name: x, namespace: d, parameterNotFoundAction: Deny}", "");
    for _ in 0..2 {
        read(&mut rotator, written(&without)).await;
    }
    assert_eq!(evaluated(&rotator), ["a"]);
    read(&mut rotator, written(&with)).await;
    assert_eq!(evaluated(&rotator), ["a"]);
}

/// Four reads at a time are never answered; others are read once these were given up, before they are tried again.
#[tokio::test(start_paused = true)]
async fn params_that_cannot_be_read_do_not_hold_up_others() {
    let (mut rotator, mut reads) = beside_a_cluster();
    for _ in 0..2 {
        read(&mut rotator, contents(&[])).await;
    }
    let hang: Vec<_> = (0..8).map(|n| (format!("h{n}"), format!("hangs-{n}"))).collect();
    let mut bindings: Vec<_> = hang.iter().map(|(name, param)| (&**name, &**param)).collect();
    read(&mut rotator, policy(&bindings)).await;
    let reads_that_hang = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let one = reads.recv().await.unwrap();
            let ObjectQuery::Params { which, .. } = &one.query else { panic!("params") };
            if *which == ParamSelection::Name("x".into()) {
                one.answer.unwrap().send(Ok(Arc::default())).unwrap();
            } else {
                held.push(one);
            }
        }
    });
    bindings.push(("a", "x"));
    read(&mut rotator, policy(&bindings)).await;
    let began = Instant::now();
    while evaluated(&rotator).is_empty() {
        let results = rotator.params.results().await.unwrap();
        rotator.on_params_read(results);
    }
    assert_eq!(evaluated(&rotator), ["a"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    reads_that_hang.abort();
}
