//! Initializers that are made with the client library: one function of theirs, and all else is done by the library.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use gatepost::{
    front::{FrontLimits, Listener},
    review::AdmissionDeps,
};
use gatepost_client::{InitializerClient, NewObject, ObjectChange, ObjectRefusal};
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

use crate::{
    front::{Sidecar, before, until},
    initializers_attach::{TOKEN, configured, create, serving},
    support::reviews::create_pod,
};

const NAME: &str = "  - {name: a.example.com, failurePolicy: Fail, @TOKEN}\n";

/// A process that acts until it is told to stop.
struct Process {
    asked: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Process {
    fn begin(sidecars: &[&Sidecar]) -> Self {
        let channels: Vec<_> = sidecars.iter().map(|sidecar| channel(sidecar)).collect();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let act = move |object: NewObject| {
            counted.fetch_add(1, Ordering::Relaxed);
            assert_ne!(object.request().uid(), "worse", "a fault before it begins");
            act(object)
        };
        let (stop, stopped) = oneshot::channel();
        let client = InitializerClient::new("a.example.com", TOKEN).window(4);
        let ended = tokio::spawn(client.run(channels, act, async { drop(stopped.await) }));
        Self { asked, stop, ended }
    }
}

fn channel(sidecar: &Sidecar) -> Channel {
    Endpoint::from_shared(format!("http://{}", sidecar.address)).unwrap().connect_lazy()
}

async fn act(object: NewObject) -> Result<ObjectChange, ObjectRefusal> {
    assert!(!object.is_repeat() && !object.time_left().is_zero());
    match object.request().uid() {
        "refused" => Err("there is no room".into()),
        "full" => Err(ObjectRefusal::new(429, "TooManyRequests", "wait")),
        "broken" => panic!("a fault of the process"),
        _ => {
            let team = object.namespace_labels().get("team").ok_or("no team")?;
            let pod: serde_json::Value = object.read()?;
            assert_eq!(pod["kind"], "Pod");
            Ok(ObjectChange::patch(&json!([{"op": "add", "path": "/metadata/labels/by", "value": team}])))
        }
    }
}

async fn attached(gates: &[&Arc<AdmissionDeps>]) {
    let has = |gate: &AdmissionDeps| gate.current.hub().desk(|desk| desk.names()).iter().any(|one| one.instances == 1);
    until("attached", || gates.iter().all(|gate| has(gate))).await;
}

#[tokio::test]
async fn one_process_acts_for_several_sidecars_and_changes_nothing_twice() {
    let (one, other) = (configured(NAME), configured(NAME));
    let (here, there) = (serving(&one).await, serving(&other).await);
    let process = Process::begin(&[&here, &there]);
    attached(&[&one, &other]).await;
    let first = create(&one, create_pod("u", 0)).await;
    assert!(String::from_utf8_lossy(first.patch.as_ref().unwrap()).contains("red"), "{:?}", first.refusal);
    assert_eq!(process.asked.load(Ordering::Relaxed), 1);
    // The apiserver has lost the answer, and asks the other replica.
    assert_eq!(create(&other, create_pod("u", 0)).await.patch, first.patch);
    assert_eq!(process.asked.load(Ordering::Relaxed), 1, "the process is not asked again");
    assert_eq!(create(&other, create_pod("v", 0)).await.patch, first.patch);
    assert_eq!(process.asked.load(Ordering::Relaxed), 2, "another request is another object");
    process.stop.send(()).unwrap();
    process.ended.await.unwrap();
    until("gone", || one.current.hub().desk(|desk| desk.names()).iter().all(|name| name.instances == 0)).await;
}

#[tokio::test]
async fn a_refusal_is_the_processes_own_and_a_panic_is_an_error() {
    let gate = configured(NAME);
    let sidecar = serving(&gate).await;
    let process = Process::begin(&[&sidecar]);
    attached(&[&gate]).await;
    for (uid, code, reason, message) in [
        ("refused", 403, "Forbidden", "there is no room"),
        ("full", 429, "TooManyRequests", "wait"),
        ("broken", 500, "InternalError", "the initializer has failed"),
        ("worse", 500, "InternalError", "the initializer has failed"),
    ] {
        let refusal = create(&gate, create_pod(uid, 0)).await.refusal.unwrap();
        assert_eq!((refusal.code, &*refusal.reason), (code, reason));
        assert!(refusal.message.contains(message), "{}", refusal.message);
    }
    assert!(create(&gate, create_pod("u", 0)).await.patch.is_some(), "the stream goes on");
    drop(process);
}

#[tokio::test]
async fn a_process_attaches_again_when_its_sidecar_is_back() {
    let gate = configured(NAME);
    let sidecar = serving(&gate).await;
    let (address, process) = (sidecar.address, Process::begin(&[&sidecar]));
    attached(&[&gate]).await;
    sidecar.shutdown.send(()).unwrap();
    sidecar.serving.await.unwrap();
    let gate = configured(NAME);
    let bound = Listener::Tcp(TcpListener::bind(address).await.unwrap());
    let _sidecar = before(Arc::clone(&gate), FrontLimits::default(), address, bound);
    attached(&[&gate]).await;
    assert!(create(&gate, create_pod("u", 0)).await.patch.is_some());
    drop(process);
}
