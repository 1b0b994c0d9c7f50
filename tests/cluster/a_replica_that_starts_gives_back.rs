//! A replica that starts gives back what it cannot call before it decides anything, and says so.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;

use crate::cluster::{CONFIGURATIONS, Cluster, LEASES, Say, VALIDATING, configuration};
use gatepost::source::{KubernetesLocation, ReadError, Source, SourceLocation, kubernetes::ObjectSelection};
use gatepost_adopt::{AdoptionReads, AdoptionScope, AdoptionSettings};
use gatepost_kube_support::KubeAccess;
use serde_json::{Value, json};
use tempfile::TempDir;

/// One of its two webhooks that are taken over has a condition that cannot be compiled.
async fn started(cluster: &Cluster) -> (Source, AdoptionReads, TempDir) {
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let webhook = |name: &str, own: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [],
            "clientConfig": {"url": "https://127.0.0.1:1"},
            "matchConditions": [condition("own", own), condition("gatepost.dev/served", "false")]})
    };
    // Of the conditions of ours nobody else is an owner.
    let owned = |name: &str| {
        let condition = json!({"k:{\"name\":\"gatepost.dev/served\"}": {"f:name": {}}});
        (format!("k:{{\"name\":\"{name}\"}}"), json!({"f:matchConditions": condition}))
    };
    let fields: Value = [owned("broken.x.y"), owned("good.x.y")].into_iter().collect();
    let managed = json!([{"manager": "gatepost-adopt", "operation": "Apply", "fieldsV1": {"f:webhooks": fields}}]);
    let metadata = json!({"name": "c", "uid": "u", "managedFields": managed});
    let webhooks = [webhook("broken.x.y", "1 +"), webhook("good.x.y", "true")];
    cluster.has(VALIDATING, json!({"metadata": metadata, "webhooks": webhooks}));
    cluster.has(CONFIGURATIONS, configuration("a", "a.example.com"));
    cluster.knows(LEASES);
    let folder = tempfile::tempdir().unwrap();
    let (source, reads) = adopting(cluster, folder.path()).await;
    (source, reads, folder)
}

/// A replica that takes everything of this cluster over. Its kubeconfig is in that folder.
pub(crate) async fn adopting(cluster: &Cluster, folder: &Path) -> (Source, AdoptionReads) {
    let path = cluster.kubeconfig(folder, json!({"token": "t"}), None);
    let adopt = AdoptionSettings {
        scope: AdoptionScope::All,
        namespace: "gatepost".to_owned(),
        replica: "r".to_owned(),
        registration: None,
    };
    let place = KubernetesLocation {
        access: KubeAccess::Kubeconfig { path: Some(path), context: None },
        objects: ObjectSelection { configurations: true, webhooks: false },
        files: None,
        adopt: Some(adopt),
        upkeep: None,
    };
    let mut source = SourceLocation::Kubernetes(place).open().await.unwrap();
    let reads = source.adoption().unwrap();
    (source, reads)
}

fn conditions(cluster: &Cluster) -> Vec<usize> {
    let stored = cluster.stored(VALIDATING, "c").unwrap();
    stored["webhooks"].as_array().unwrap().iter().map(|one| one["matchConditions"].as_array().unwrap().len()).collect()
}

#[tokio::test]
async fn starting_replica_gives_back_unservable_webhooks() {
    let cluster = Cluster::start().await;
    let (mut source, mut reads, _folder) = started(&cluster).await;
    let error = source.read().await.unwrap_err();
    assert!(
        matches!(&error, ReadError::GivesBack { webhooks, .. } if webhooks == "validating/c/broken.x.y"),
        "{error}"
    );
    let names: Vec<_> = error.contents().unwrap().files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["validatingwebhookconfigurations/c", "admissioncontrolconfigurations/a"]);
    assert_eq!(conditions(&cluster), [1, 2], "of the other one nothing is touched");
    let given_back = reads.given_back.try_recv().unwrap();
    assert_eq!((given_back.key.to_string(), &*given_back.uid), ("validating/c/broken.x.y".to_owned(), "u"));
    assert_eq!(given_back.reason.word(), "unservable");
    let annotations = &cluster.stored(VALIDATING, "c").unwrap()["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"gatepost.dev/given-back": given_back.key.id()}));

    // Not every apiserver has heard of it yet.
    assert!(matches!(source.read().await, Err(ReadError::GivesBack { .. })));
    assert!(reads.given_back.try_recv().is_err(), "once is enough");
}

#[tokio::test]
async fn rejected_give_back_does_not_block_startup() {
    let cluster = Cluster::start().await;
    let (mut source, mut reads, _folder) = started(&cluster).await;
    cluster.says(&format!("{VALIDATING}/c"), Say::Status(403));
    for _ in 0..2 {
        assert!(matches!(source.read().await, Err(ReadError::GivesBack { .. })));
    }
    assert_eq!(source.read().await.unwrap().files.len(), 2);
    assert!(reads.given_back.try_recv().is_err());
    assert_eq!(conditions(&cluster), [2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_without_a_live_replica_gives_back_at_once() {
    let cluster = Cluster::start().await;
    let (_, _, folder) = started(&cluster).await;
    let renewed = "2026-01-01T00:00:00.000000Z";
    let lease =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": "a/1", "renewTime": renewed}});
    cluster.has(LEASES, lease("gatepost-adopt"));
    cluster.has(LEASES, lease("gatepost-adopt.0"));
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(["release", "--all", "--kubeconfig"]).arg(folder.path().join("kubeconfig"));
    // Not as long as the wait for a replica whose lease is fresh.
    let output = command.args(["--timeout", "4s"]).output().await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let said = "no replica with --adopt is alive: giving back 2 webhooks\n\
                given back; waiting 5s until every apiserver has heard of it\n";
    assert_eq!((&*stderr, conditions(&cluster)), (said, vec![1, 1]));
}
