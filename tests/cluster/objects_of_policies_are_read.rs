//! Objects that policies need, read from a cluster.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Cluster, Say};
use gatepost::{
    live::cluster_objects::{MAX_READ_TIME, ObjectQuery, ObjectsError},
    source::ClusterReader,
};
use gatepost_kube_support::KubeAccess;

/// Else reads that hang would take the places of those that requests wait for.
#[tokio::test(start_paused = true)]
async fn a_read_that_is_never_answered_ends_in_time() {
    let cluster = Cluster::start().await;
    cluster.says("/api/v1/namespaces/shop", Say::Silence);
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    let reader = ClusterReader::new(KubeAccess::Kubeconfig { path: Some(path), context: None }).await.unwrap();
    let objects = reader.objects();
    tokio::spawn(reader.run());
    let began = Instant::now();
    let until = (began + Duration::from_secs(60)).into_std();
    let read = objects.read(&ObjectQuery::Namespace("shop".into()), until).await;
    assert!(matches!(read, Err(ObjectsError::Unread(_))), "{read:?}");
    assert!((MAX_READ_TIME..2 * MAX_READ_TIME).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(cluster.asked(), ["/api/v1/namespaces/shop"]);
}
