//! Initializers as an apiserver meets them: reviews over HTTPS and gRPC, instances with client certificates, and no
//! more objects held than there is room for.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::Engine as _;
use bytes::Bytes;
use gatepost::front::{FrontLimits, Listener};
use gatepost_base::memory::{MemoryBudget, Purpose};
use gatepost_initializers::{
    TurnFailure,
    hub::{Attachment, TaskMessage},
};
use gatepost_tls::{ServerFiles, ServerTls};
use gatepost_wire::pb::{
    gatepost::v1::{Done, initializer_answer::Outcome},
    k8s::io::api::{
        admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
        authentication::v1::UserInfo,
    },
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    front::{Caller, Sidecar, before, grpc, over, until},
    initializers_attach::{Instance, configured},
    support::reviews::{create_pod, message},
    tls::{Authority, BOTH, client, connect, files, put, put_pair},
    webhook::{self, Connection, post},
};

const MUTATE: &str = "/gatepost.v1.Admission/Mutate";
const NAME: &str = "a.example.com";

/// A sidecar over TLS, and those who may call it.
struct World {
    sidecar: Sidecar,
    server: Authority,
    clients: Authority,
}

impl World {
    async fn new(initializers: &str) -> Self {
        let (server, clients) = (Authority::new("cluster"), Authority::new("clients"));
        let folder = tempfile::tempdir().unwrap();
        put_pair(folder.path(), &server.server());
        let client_ca = Some(put(folder.path(), "ca.crt", &clients.pem()));
        let tls = Arc::new(ServerTls::load(ServerFiles { client_ca, ..files(folder.path()) }).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sidecar = before(configured(initializers), FrontLimits::default(), address, Listener::Tls(listener, tls));
        Self { sidecar, server, clients }
    }

    /// A connection of whoever has a certificate of that name.
    async fn of(&self, name: &str) -> Caller {
        let config = client(&self.server, Some(&self.clients.pair(name, &[])), &["h2"], BOTH);
        over(connect(self.sidecar.address, &config).await.unwrap()).await
    }

    /// The response to a review over HTTPS, as a stock apiserver asks.
    async fn over_https(&self) -> Value {
        let mut apiserver = Connection::<tokio::io::DuplexStream>::Http2(self.of("kube-apiserver").await);
        let reply = apiserver.call(post("/mutate?timeout=10s"), webhook::review("https", 0)).await;
        serde_json::from_slice::<Value>(&reply.body).unwrap()["response"].take()
    }

    /// The response to a review over gRPC.
    async fn over_grpc(&self) -> AdmissionResponse {
        let user_info =
            Some(UserInfo { username: Some("bob".into()), groups: vec!["ops".into()], ..UserInfo::default() });
        let request = AdmissionRequest { user_info, ..create_pod("grpc", 0) };
        let reply = self.of("kube-apiserver").await.call(grpc(MUTATE), [message(request)]).await;
        assert_eq!(reply.status, Some(0), "{reply:?}");
        AdmissionReview::decode(&reply.body[5..]).unwrap().response.unwrap()
    }
}

fn labelled(value: &str) -> Outcome {
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": value}}]);
    Outcome::Done(Done { patch: patch.to_string().into(), add: Vec::new() })
}

#[tokio::test]
async fn a_certificate_claims_its_names_and_the_creator_travels_along() {
    let world = World::new(&format!("  - {{name: {NAME}, attach: {{commonNames: [worker]}}}}\n")).await;
    let refused = Instance::claim_over(&world.of("kube-apiserver").await, NAME, "").await.err();
    assert_eq!(refused.as_deref(), Some("7"), "let in, and not as a worker");
    assert_eq!(world.sidecar.metric("gatepost_refused_total{reason=\"claim\"}"), 1.0);
    let mut worker = Instance::claim_over(&world.of("worker").await, NAME, "").await.unwrap();
    let mut working = async |name: &str, group: &str| {
        let task = worker.task().await;
        let user = task.review.unwrap().request.unwrap().user_info.unwrap();
        assert_eq!((user.username(), &*user.groups), (name, &[group.to_owned()][..]));
        worker.answer(task.task, task.attempt, labelled(name));
    };
    let (response, ()) = tokio::join!(world.over_https(), working("ann", "dev"));
    let patch = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8_lossy(&patch).contains("ann"), "{response}");
    let (response, ()) = tokio::join!(world.over_grpc(), working("bob", "ops"));
    assert!(String::from_utf8_lossy(response.patch()).contains("bob"), "{response:?}");
}

#[tokio::test]
async fn no_more_objects_are_held_than_there_is_room_for() {
    let two = format!("  - {{name: {NAME}, @TOKEN}}\n  - {{name: b.example.com, @TOKEN}}\n");
    let world = World::new(&two).await;
    let hub = world.sidecar.current.hub();
    let hold = |name: &str, n: usize| {
        let (hub, name) = (Arc::clone(hub), Arc::from(name));
        let room = MemoryBudget::unlimited().empty(Purpose::Queue);
        let (review, namespace_labels, mut digest) = (Bytes::from_static(b"object"), Vec::new(), [0; 32]);
        digest[..8].copy_from_slice(&n.to_be_bytes());
        let message = TaskMessage { review, namespace_labels, digest, room };
        tokio::spawn(async move { hub.ask(&name, message, Instant::now() + Duration::from_secs(60)).await.err() })
    };
    // One that takes one and does not answer, for each name.
    let silent = |name: &&str| hub.attach(&Arc::from(*name), 1, Instant::now()).unwrap();
    let silent: Vec<_> = [NAME, "b", "c", "d", "e"].iter().map(silent).collect();
    let held = |wanted: usize| {
        silent.iter().for_each(Attachment::renew);
        hub.desk(|desk| desk.task_count()) == wanted
    };
    let holds: Vec<_> = (0..1000).map(|n| hold(NAME, n)).collect();
    until("as many as one may have are held", || held(1000)).await;
    let (https, grpc) = (world.over_https().await, world.over_grpc().await);
    let status = &https["status"];
    assert_eq!(
        (&https["allowed"], &status["code"], &status["reason"]),
        (&false.into(), &429.into(), &"TooManyRequests".into())
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert!(status["message"].as_str().unwrap().contains("the object was not created"), "{status}");
    let result = grpc.status.unwrap();
    assert_eq!((result.code(), result.details.unwrap().retry_after_seconds()), (429, 1));
    let shed = format!("gatepost_initializer_runs_total{{initializer=\"{NAME}\",outcome=\"shed\"}}");
    assert_eq!((world.sidecar.metric(&shed), hub.desk(|desk| desk.task_count())), (2.0, 1000));
    // Others have room, as long as there is any.
    let others: Vec<_> = ["b", "c", "d"].into_iter().flat_map(|name| (0..1000).map(move |n| (name, n))).collect();
    let others: Vec<_> = others.into_iter().map(|(name, n)| hold(name, n)).collect();
    until("all are held", || held(4000)).await;
    assert_eq!(hold("e", 0).await.unwrap(), Some(TurnFailure::Full));
    // Holds that are given up leave room.
    holds.iter().chain(&others).for_each(|hold| hold.abort());
    until("none is held", || held(0)).await;
}
