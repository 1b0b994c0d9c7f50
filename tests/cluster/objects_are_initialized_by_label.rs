//! `stored: Label`: marked objects are listed by their metadata, and one that cannot be read costs only itself.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use gatepost::{review::Reasons, source::LabelledObjects, telemetry::UnreadableObjects};
use gatepost_api::initialization::{PENDING_LABEL, STATE_ANNOTATION};
use gatepost_base::memory::MemoryBudget;
use gatepost_initializers::{Initializers, marks::InitState};
use gatepost_kube_support::{KubeAccess, ReloadingClient};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::{cluster::kubeconfig, front::until, support::gate::gate};

const OBJECTS: &str = "/api/v1/namespaces/shop/configmaps/";

/// Objects of an apiserver, each by its JSON text, and what it was asked to write.
#[derive(Default)]
struct Face {
    objects: Vec<(&'static str, String)>,
    written: Mutex<Vec<(String, String)>>,
}

impl Face {
    async fn start(self) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, this) = (listener.local_addr().unwrap(), Arc::new(self));
        let theirs = Arc::clone(&this);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&theirs).serve(stream));
            }
        });
        (address, this)
    }

    /// One request a connection.
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        stream.read_line(&mut first).await.unwrap();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut sent = vec![0; length];
        stream.read_exact(&mut sent).await.unwrap();
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (code, body) = self.answer(method, path, String::from_utf8(sent).unwrap());
        let head = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        if path.contains("watch=1") {
            // Until the caller has had enough.
            let _ = stream.read_u8().await;
        }
    }

    fn answer(&self, method: &str, path: &str, sent: String) -> (u16, String) {
        let items = || self.objects.iter().map(|(_, text)| &**text).collect::<Vec<_>>().join(",");
        match (method, path) {
            ("GET", "/api/v1") => {
                let served = json!({"name": "configmaps", "kind": "ConfigMap", "namespaced": true});
                (200, json!({"resources": [served]}).to_string())
            }
            ("GET", path) if path.contains("watch=1") => (200, String::new()),
            ("GET", path) if path.starts_with("/api/v1/configmaps?") => {
                let head = r#""kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"}"#;
                (200, format!(r#"{{{head},"items":[{}]}}"#, items()))
            }
            ("GET", path) => match self.objects.iter().find(|(name, _)| path == format!("{OBJECTS}{name}")) {
                Some((_, text)) => (200, text.clone()),
                None => (404, "{}".to_owned()),
            },
            ("POST", path) if path.contains("selfsubjectreviews") => {
                (201, json!({"status": {"userInfo": {"username": "gatepost"}}}).to_string())
            }
            ("POST", _) => (201, sent),
            (method, path) => {
                let name = path.strip_prefix(OBJECTS).unwrap_or_default();
                self.written.lock().unwrap().push((format!("{method} {name}"), sent));
                (200, "{}".to_owned())
            }
        }
    }

    fn written(&self, what: &str) -> Option<String> {
        let written = self.written.lock().unwrap();
        written.iter().find(|(of, _)| of == what).map(|(_, sent)| sent.clone())
    }
}

/// A marked object that waits for an initializer, nested so deep.
fn waiting(name: &str, depth: usize) -> String {
    let list = Initializers::of(["label.example.com"]);
    let state = InitState::new(list, Value::Null, "ann").write().unwrap();
    let deep = format!("{}1{}", r#"{"f:a":"#.repeat(depth), "}".repeat(depth));
    let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": "5",
        "labels": {PENDING_LABEL: "1"}, "annotations": {STATE_ANNOTATION: state}})
    .to_string();
    let metadata = metadata.strip_suffix('}').unwrap();
    format!(r#"{{"metadata":{metadata},"managedFields":[{{"fieldsV1":{deep}}}]}},"data":{deep}}}"#)
}

/// Works on the objects of that apiserver, by an initializer with this policy.
async fn initializing(address: SocketAddr, policy: &str) -> tempfile::TempDir {
    let gate = gate(
        &format!(
            r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: test}}
resourceInitializers:
- resource: configmaps
  stored: Label
  initializers:
  - {{name: label.example.com, failurePolicy: {policy}, builtIn: {{labels: {{team: a}}}}}}
"
        ),
        Reasons::First,
    );
    let folder = tempfile::tempdir().unwrap();
    let path = kubeconfig(folder.path(), &format!("http://{address}"), json!({"token": "t"}), None);
    let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
    let connection = ReloadingClient::new(access).await.unwrap();
    let parts = (None, MemoryBudget::unlimited());
    let mut objects = LabelledObjects::new(connection, ("gatepost", "r"), Arc::clone(&gate.current), parts);
    tokio::spawn(async move { objects.run().await });
    folder
}

#[tokio::test]
async fn too_deeply_nested_object_fails_alone() {
    for (policy, ended) in [("Fail", "DELETE deep"), ("Ignore", "PATCH deep")] {
        let objects = [("a", 1), ("deep", 150), ("deeper", 5000), ("b", 1)];
        let objects = objects.map(|(name, depth)| (name, waiting(name, depth))).to_vec();
        let (address, face) = Face { objects, ..Face::default() }.start().await;
        let before = UnreadableObjects::StoredUnfinished.counted();
        let _folder = initializing(address, policy).await;
        for name in ["a", "b"] {
            until("it is initialized", || face.written(&format!("PATCH {name}")).is_some()).await;
            let patch = face.written(&format!("PATCH {name}")).unwrap();
            assert!(patch.contains("team"), "{patch}");
        }
        until("the deep one has failed", || face.written(ended).is_some()).await;
        until("the deeper one, too", || face.written(&ended.replace("deep", "deeper")).is_some()).await;
        let patch = face.written("PATCH deep").unwrap();
        assert_eq!(patch.contains("nested too deep"), policy == "Fail", "{patch}");
        assert!(UnreadableObjects::StoredUnfinished.counted() >= before + 2);
    }
}
