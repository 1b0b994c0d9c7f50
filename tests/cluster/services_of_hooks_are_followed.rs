//! `--resolve-services endpoints`: the Services that hooks name are listed and watched by their EndpointSlices.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Instant, SystemTime},
};

use crate::{cluster::kubeconfig, front::until};
use gatepost::{
    hooks::{Channel, ServiceAddresses},
    live::{CallTarget, Current, Generation, LiveHook, Rotation},
    source::ServiceWatcher,
    telemetry::Metrics,
};
use gatepost_api::Revision;
use gatepost_config::{SourceFile, load};
use gatepost_kube_support::KubeAccess;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};

/// A kube-apiserver's face with EndpointSlices.
struct Face {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Lines of every open watch; none ends them.
    lines: broadcast::Sender<Option<String>>,
}

#[derive(Default)]
struct State {
    slices: Vec<Value>,
    /// Name of the Service's port.
    port: &'static str,
    asked: Vec<String>,
    refuses: bool,
}

fn slice(name: &str, address: &str, ready: bool) -> Value {
    of_port("https", name, address, ready)
}

fn of_port(port: &str, name: &str, address: &str, ready: bool) -> Value {
    json!({"metadata": {"name": name, "namespace": "policy", "resourceVersion": "8",
        "labels": {"kubernetes.io/service-name": "hook"}}, "ports": [{"name": port, "port": 8443}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}]})
}

impl Face {
    async fn start(slices: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(Mutex::new(State { slices: slices.to_vec(), port: "https", ..State::default() }));
        let (lines, address) = (broadcast::channel(16).0, listener.local_addr().unwrap());
        let (theirs, sender) = (Arc::clone(&state), lines.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&theirs), sender.subscribe()));
            }
        });
        Self { address, state, lines }
    }

    fn send_event(&self, kind: &str, object: &Value) {
        self.lines.send(Some(json!({"type": kind, "object": object}).to_string())).unwrap();
    }

    fn asked(&self, start: &str) -> usize {
        self.state.lock().unwrap().asked.iter().filter(|path| path.starts_with(start)).count()
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, mut lines: broadcast::Receiver<Option<String>>) {
    let (read, mut write) = stream.into_split();
    let mut head = BufReader::new(read).lines();
    let path = head.next_line().await.unwrap().unwrap().split(' ').nth(1).unwrap().to_owned();
    while head.next_line().await.is_ok_and(|line| line.is_some_and(|line| !line.is_empty())) {}
    let (refuses, slices, port) = {
        let mut state = state.lock().unwrap();
        state.asked.push(path.clone());
        (state.refuses, state.slices.clone(), state.port)
    };
    // A body without a length ends with its connection.
    let (code, body) = match &*path {
        _ if refuses => (403, json!({"kind": "Status", "code": 403, "message": "not for you"})),
        path if path.contains("watch=1") => (200, Value::Null),
        path if path.starts_with("/apis/discovery.k8s.io/v1/endpointslices?") => {
            let list = json!({"resourceVersion": "7"});
            (200, json!({"apiVersion": "v1", "kind": "EndpointSliceList", "metadata": list, "items": slices}))
        }
        "/api/v1/namespaces/policy/services/hook" => {
            (200, json!({"spec": {"ports": [{"name": port, "port": 443, "targetPort": "webhook"}]}}))
        }
        _ => (404, json!({"kind": "Status", "code": 404, "message": "not found"})),
    };
    let head = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
    write.write_all(head.as_bytes()).await.unwrap();
    if !body.is_null() {
        write.write_all(body.to_string().as_bytes()).await.unwrap();
        return;
    }
    while let Ok(Some(line)) = lines.recv().await {
        if write.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Configuration with a hook that names this Service, put in force.
fn in_force(current: &Current, number: u64, service: &str) {
    let text = format!(
        r#"{{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration", "metadata": {{"name": "c"}},
        "externalAdmissionHooks": [{{"name": "h.x", "clientConfig": {{"service": {{"namespace": "policy", "name": "{service}"}}}},
        "rules": []}}]}}"#
    );
    let file = SourceFile { name: "a.json".into(), bytes: text.into() };
    let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("sound");
    let hook = Arc::clone(&snapshot.hooks[0]);
    let channel = Channel::open(hook.endpoint.clone(), None, &[tokio::runtime::Handle::current()]);
    let live = LiveHook {
        target: CallTarget::new(Arc::clone(&hook), channel),
        metrics: Metrics::new(1).hook(hook.hook_type, &hook.name),
        hook,
        rotation: Rotation::Probing { since: SystemTime::UNIX_EPOCH, last_failure: None },
        replacing: None,
        overdue: None,
    };
    current.publish(Arc::new(Generation {
        number,
        revision: Revision::Store(number),
        published: SystemTime::UNIX_EPOCH,
        hooks: vec![live],
        ..Generation::of(Arc::new(snapshot), &Metrics::new(1))
    }));
}

fn found(addresses: &ServiceAddresses, host: &str) -> Option<Vec<String>> {
    let found = addresses.endpoints(host, 443, Instant::now())?;
    Some(found.iter().map(ToString::to_string).collect())
}

const HOST: &str = "hook.policy.svc";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn endpoints_come_and_go_with_their_slices_and_hooks() {
    let face = Face::start(&[slice("one", "10.0.0.1", true), slice("two", "10.0.0.2", false)]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = kubeconfig(folder.path(), &format!("http://{}", face.address), json!({"token": "t"}), None);
    let current = Arc::new(Current::new(Instant::now()));
    in_force(&current, 1, "hook");
    let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
    let watcher = ServiceWatcher::new(access, Arc::clone(&current)).await.unwrap();
    let addresses = watcher.addresses();
    assert_eq!(found(&addresses, HOST), None, "nothing is known yet");
    let running = tokio::spawn(watcher.run());

    let are = async |wanted: Option<&[&str]>| {
        let wanted = wanted.map(|all| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        until("these addresses", || found(&addresses, HOST) == wanted).await;
    };
    are(Some(&["10.0.0.1:8443"])).await;
    until("a watch", || face.asked("/apis/discovery.k8s.io/v1/endpointslices?watch=1") == 1).await;
    let listed = face.state.lock().unwrap().asked[0].clone();
    assert!(listed.contains("labelSelector=kubernetes.io%2Fservice-name%20in%20%28hook%29"), "{listed}");
    face.send_event("MODIFIED", &slice("two", "10.0.0.2", true));
    are(Some(&["10.0.0.1:8443", "10.0.0.2:8443"])).await;
    face.send_event("DELETED", &slice("one", "10.0.0.1", true));
    are(Some(&["10.0.0.2:8443"])).await;

    // The Service's port is renamed, a moment after it was read.
    face.state.lock().unwrap().port = "webhook";
    face.send_event("MODIFIED", &of_port("webhook", "two", "10.0.0.2", true));
    are(Some(&[])).await;
    are(Some(&["10.0.0.2:8443"])).await;
    face.state.lock().unwrap().port = "https";

    // The apiserver ends the watch, and refuses for a while: what is known stays.
    face.state.lock().unwrap().refuses = true;
    face.lines.send(None).unwrap();
    let asked = face.asked("");
    until("more questions", || face.asked("") > asked + 1).await;
    are(Some(&["10.0.0.2:8443"])).await;
    {
        let mut state = face.state.lock().unwrap();
        (state.refuses, state.slices) = (false, vec![slice("three", "10.0.0.3", true)]);
    }
    are(Some(&["10.0.0.3:8443"])).await;

    // Another hook is in force, whose Service does not exist.
    in_force(&current, 2, "other");
    are(None).await;
    assert_eq!(found(&addresses, "other.policy.svc"), None, "its name is looked up");
    running.abort();
}
