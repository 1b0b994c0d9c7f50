//! Everything that receives reviews by our registration: the endpoints of a Service, or the apiservers.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use crate::cluster::{Cluster, Say};
use gatepost_adopt::{ReceiverReader, Receivers, Route};
use gatepost_kube_support::{KubeAccess, KubeClient};
use serde_json::json;

const IDENTITIES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/gatepost/endpointslices";

async fn read(cluster: &Cluster, ways: &[Route]) -> Vec<Receivers> {
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    let client = KubeClient::open(&KubeAccess::Kubeconfig { path: Some(path), context: None }).await.unwrap();
    ReceiverReader::default().read(&client, ways.iter().cloned().collect::<BTreeSet<_>>()).await
}

fn service() -> Route {
    Route::Service { namespace: "gatepost".to_owned(), name: "gatepost".to_owned() }
}

#[tokio::test]
async fn apiservers_are_counted_by_their_identity() {
    let cluster = Cluster::start().await;
    cluster.knows(IDENTITIES);
    assert_eq!(read(&cluster, &[Route::Loopback, Route::OtherUrl]).await, [Receivers::Apiservers(0)]);
    for (name, renewed) in [("apiserver-a", "9999-01-01"), ("apiserver-b", "9999-01-01"), ("apiserver-c", "2001-01-01")]
    {
        let spec = json!({"renewTime": format!("{renewed}T00:00:00.000000Z"), "leaseDurationSeconds": 3600});
        cluster.has(IDENTITIES, json!({"metadata": {"name": name}, "spec": spec}));
    }
    cluster.asked();
    assert_eq!(read(&cluster, &[Route::Loopback]).await, [Receivers::Apiservers(2)], "one has expired");
    let asked = cluster.asked();
    assert!(
        asked.iter().all(|path| path.contains("labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver"))
    );
}

#[tokio::test]
async fn endpoints_are_identified_by_their_pods() {
    let cluster = Cluster::start().await;
    let endpoint = |pod: &str| json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": pod}});
    cluster.has(SLICES, json!({"metadata": {"name": "s"}, "endpoints": [endpoint("a"), {"addresses": ["10.0.0.2"]}]}));
    let pods = vec![Some("a".to_owned()), None];
    assert_eq!(
        read(&cluster, &[service()]).await,
        [Receivers::Endpoints { service: "gatepost/gatepost".to_owned(), pods }]
    );
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    for (way, path, right) in
        [(Route::Loopback, IDENTITIES, "list on leases"), (service(), SLICES, "list on endpointslices")]
    {
        let cluster = Cluster::start().await;
        cluster.says(path, Say::Status(403));
        let found = read(&cluster, std::slice::from_ref(&way)).await;
        assert!(matches!(&found[..], [Receivers::Unreadable(why)] if why.contains(right)), "{found:?}");
    }
}
