//! The condition that keeps an apiserver from calling a webhook: conditions_document, left out by the apiserver, and removed from an
//! object that has changed meanwhile.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::cluster::{Cluster, VALIDATING};
use gatepost_adopt::{EntryKey, EntryKind, Reason, Write, WriteOutcome, write};
use gatepost_api::HookType;
use gatepost_kube_support::{KubeAccess, KubeClient};
use serde_json::json;

async fn client(cluster: &Cluster) -> KubeClient {
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    KubeClient::open(&KubeAccess::Kubeconfig { path: Some(path), context: None }).await.unwrap()
}

fn has(cluster: &Cluster, carries: bool) {
    let ours = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
    let webhook = json!({"name": "w.x.y", "matchConditions": if carries { ours } else { json!([]) }});
    cluster.has(VALIDATING, json!({"metadata": {"name": "c", "uid": "u"}, "webhooks": [webhook]}));
}

/// Takes the webhook over, or gives it back, of the object as it is now.
fn writing(cluster: &Cluster, takes: bool) -> Write {
    let version = cluster.stored(VALIDATING, "c").unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let kind = EntryKind::Webhook(HookType::Validating);
    let key = EntryKey { kind, configuration: "c".to_owned(), name: "w.x.y".to_owned() };
    Write {
        kind,
        object: "c".to_owned(),
        read: ("u".to_owned(), version),
        carry: if takes { vec![("w.x.y".to_owned(), "false".to_owned())] } else { Vec::new() },
        taken: if takes { vec![key.clone()] } else { Vec::new() },
        given_back: if takes { Vec::new() } else { vec![(key, Reason::Released)] },
        written_by_others: Vec::new(),
        fenced: Vec::new(),
        outdated: Vec::new(),
        content: json!(null),
        has_readable_params: false,
    }
}

fn conditions(cluster: &Cluster) -> usize {
    cluster.stored(VALIDATING, "c").unwrap()["webhooks"][0]["matchConditions"].as_array().unwrap().len()
}

#[tokio::test]
async fn webhook_is_taken_once_the_condition_is_stored() {
    let cluster = Cluster::start().await;
    let client = client(&cluster).await;
    has(&cluster, false);
    assert_eq!(write(&client, &writing(&cluster, true)).await.unwrap(), WriteOutcome::Done);
    assert_eq!(conditions(&cluster), 1);
    has(&cluster, false);
    cluster.knows_no_conditions();
    let WriteOutcome::Refused(why) = write(&client, &writing(&cluster, true)).await.unwrap() else { panic!() };
    assert!(why.contains("AdmissionWebhookMatchConditions"), "{why}");
}

#[tokio::test]
async fn changed_object_is_given_back_at_once() {
    let cluster = Cluster::start().await;
    let client = client(&cluster).await;
    has(&cluster, false);
    let late = writing(&cluster, true);
    has(&cluster, false);
    assert_eq!(write(&client, &late).await.unwrap(), WriteOutcome::Outdated);
    assert_eq!(conditions(&cluster), 0);
    has(&cluster, true);
    let late = writing(&cluster, false);
    has(&cluster, true);
    assert_eq!(write(&client, &late).await.unwrap(), WriteOutcome::Outdated);
    assert_eq!(conditions(&cluster), 0, "nobody might call it until then");
    cluster.has_no(VALIDATING, "c");
    assert_eq!(write(&client, &late).await.unwrap(), WriteOutcome::Gone);
}
