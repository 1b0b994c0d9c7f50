//! A kube-apiserver's face: lists of objects as the test says, in pages, over HTTP/1.1 with or without TLS. Whole or
//! broken. (`apiserver.rs` is the one for namespaces and watches.)
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, reason = "test support")]

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

use super::tls::{Authority, Pair};

pub const CONFIGURATIONS: &str = "/apis/gatepost.dev/v1alpha1/admissioncontrolconfigurations";
pub const BREAK_GLASS: &str = "/apis/gatepost.dev/v1alpha1/breakglasses";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/gatepost/leases";
pub const SELF: &str = "/api/v1/namespaces/kube-system";
/// Objects in one page.
const PAGE: usize = 2;

/// Answer in place of the truth.
#[derive(Clone, Debug)]
pub enum Say {
    Status(u16),
    /// This body, with status 200.
    Text(&'static str),
    /// The truth's first half.
    Half,
    /// The truth, but of this revision.
    Revision(&'static str),
    /// Nothing, for as long as it is asked.
    Silence,
}

/// A kube-apiserver's face.
pub struct Cluster {
    address: SocketAddr,
    name: &'static str,
    state: Arc<Mutex<State>>,
}

struct State {
    uid: String,
    revision: u64,
    /// The objects of each kind that is installed, by name.
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    /// Beginning of paths, and the answer to all of them.
    instead: Option<(String, Say)>,
    /// Requests with their credentials.
    asked: Vec<(String, String)>,
    token: Option<String>,
    /// Match conditions are left out of what is written.
    without_conditions: bool,
    /// Open watches.
    watches: Vec<(String, mpsc::UnboundedSender<String>)>,
}

/// One configuration of ours with a hook of that name.
pub fn configuration(name: &str, hook: &str) -> Value {
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    json!({"metadata": {"name": name, "uid": "u"}, "externalAdmissionHooks":
        [{"name": hook, "clientConfig": {"url": "grpc://127.0.0.1:1"}, "rules": [rule]}]})
}

impl Cluster {
    /// Listens, and answers nothing before it is asked to serve.
    pub async fn listening() -> (TcpListener, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let objects = [CONFIGURATIONS, VALIDATING, MUTATING].map(|kind| (kind, BTreeMap::new())).into();
        let (uid, asked) = ("one".to_owned(), Vec::new());
        let (token, without_conditions) = (None, false);
        let state =
            State { uid, revision: 10, objects, instead: None, asked, token, without_conditions, watches: Vec::new() };
        (listener, Self { address, name: "http://127.0.0.1", state: Arc::new(Mutex::new(state)) })
    }

    /// Serves over plain HTTP: our own kind is installed, and there are no objects.
    pub async fn start() -> Self {
        let (listener, this) = Self::listening().await;
        this.serve(listener);
        this
    }

    pub fn serve(&self, listener: TcpListener) {
        let state = Arc::clone(&self.state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, String::new(), Arc::clone(&state)));
            }
        });
    }

    /// Serves over TLS with this pair; where an authority is given, clients show a certificate of it, and the end of
    /// that certificate counts as their credentials.
    pub async fn over_tls(pair: &Pair, clients: Option<&Authority>) -> Self {
        let (listener, this) = Self::listening().await;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![pair.der()], key).unwrap()));
        let state = Arc::clone(&this.state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let shown = stream.get_ref().1.peer_certificates().map(|all| shown(&all[0]));
                    serve(stream, shown.unwrap_or_default(), state).await;
                });
            }
        });
        Self { name: "https://localhost", ..this }
    }

    pub fn url(&self) -> String {
        format!("{}:{}", self.name, self.address.port())
    }

    /// A kubeconfig in that folder, for this user.
    pub fn kubeconfig(&self, folder: &Path, user: Value, authority: Option<&Authority>) -> PathBuf {
        kubeconfig(folder, &self.url(), user, authority)
    }

    /// From now on there is this object.
    pub fn has(&self, kind: &'static str, object: Value) {
        let mut state = self.state();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        state.revision += 1;
        let mut object = object;
        if object["metadata"]["resourceVersion"].is_null() {
            object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        }
        let change = json!({"type": "MODIFIED", "object": object});
        state.watches.retain(|(watched, lines)| watched != kind || lines.send(format!("{change}\n")).is_ok());
        state.objects.entry(kind).or_default().insert(name, object);
    }

    /// Somebody deletes that object, which a finalizer holds or not.
    pub fn deletes(&self, kind: &'static str, name: &str) {
        let mut state = self.state();
        let mut object = state.objects[kind][name].clone();
        object["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        state.stores(kind, name, object);
    }

    /// Object as it is stored; `None` where there is none.
    pub fn stored(&self, kind: &'static str, name: &str) -> Option<Value> {
        self.state().objects[kind].get(name).cloned()
    }

    /// From now on there is none of that name.
    pub fn has_no(&self, kind: &'static str, name: &str) {
        let mut state = self.state();
        state.objects.get_mut(kind).unwrap().remove(name).expect("was there");
        state.revision += 1;
    }

    /// The kind is known, without an object.
    pub fn knows(&self, kind: &'static str) {
        self.state().objects.entry(kind).or_default();
    }

    /// The kind, with all objects, is known no longer.
    pub fn forgets(&self, kind: &'static str) {
        self.state().objects.remove(kind);
    }

    /// Something happens elsewhere in the store; or it is set back.
    pub fn is_at(&self, revision: u64) {
        self.state().revision = revision;
    }

    /// Another cluster answers at this address.
    pub fn is(&self, uid: &str) {
        self.state().uid = uid.to_owned();
    }

    /// Any path that begins with this one is answered so, until [`Cluster::serves_normally`].
    pub fn says(&self, path: &str, say: Say) {
        self.state().instead = Some((path.to_owned(), say));
    }

    pub fn serves_normally(&self) {
        self.state().instead = None;
    }

    /// It accepts webhooks and leaves match conditions out, as with the feature gate off.
    pub fn knows_no_conditions(&self) {
        self.state().without_conditions = true;
    }

    /// Only this token is taken.
    pub fn takes(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Number of open watches of this kind.
    pub fn watches(&self, kind: &str) -> usize {
        self.state().watches.iter().filter(|(watched, _)| watched == kind).count()
    }

    /// Requests since the last call, paths with their queries.
    pub fn asked(&self) -> Vec<String> {
        self.state().asked.drain(..).map(|(path, _)| path).collect()
    }

    /// The credentials of the last question.
    pub fn credentials(&self) -> String {
        self.state().asked.last().expect("was asked").1.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Stores that at the next revision; what is deleted and held by nobody goes.
    fn stores(&mut self, kind: &'static str, name: &str, mut object: Value) {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        let held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        let objects = self.objects.get_mut(kind).unwrap();
        match metadata["deletionTimestamp"].is_null() || held {
            true => drop(objects.insert(name.to_owned(), object)),
            false => drop(objects.remove(name)),
        }
    }

    /// Conditions of webhooks are as applied; what nobody else owns goes.
    fn apply_conditions(&mut self, name: &str, applied: &Value) -> u16 {
        let Some(mut object) = self.objects[VALIDATING].get(name).cloned() else { return 404 };
        if applied["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return 409;
        }
        object["metadata"]["annotations"] = applied["metadata"]["annotations"].clone();
        let kept = |name: &Value| applied["webhooks"].as_array().into_iter().flatten().any(|one| one["name"] == *name);
        for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
            let keeps = kept(&webhook["name"]);
            let ours = |condition: &Value| condition["name"] == "gatepost.dev/served";
            let mut conditions = webhook["matchConditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| keeps || !ours(condition));
            if keeps && !self.without_conditions && !conditions.iter().any(ours) {
                conditions.push(json!({"name": "gatepost.dev/served", "expression": "false"}));
            }
            webhook["matchConditions"] = conditions.into();
        }
        self.stores(VALIDATING, name, object);
        200
    }

    /// A JSON patch of tests and removals from lists.
    fn remove(&mut self, name: &str, patch: &Value) -> u16 {
        let Some(mut object) = self.objects[VALIDATING].get(name).cloned() else { return 404 };
        for operation in patch.as_array().expect("operations") {
            let path = operation["path"].as_str().expect("a path");
            let (parent, place) = path.rsplit_once('/').expect("a parent");
            let agrees = object.pointer(path) == operation.get("value");
            match (operation["op"].as_str(), object.pointer_mut(parent)) {
                (Some("test"), _) if agrees => {}
                (Some("remove"), Some(Value::Array(list))) => drop(list.remove(place.parse().expect("a place"))),
                _ => return 422,
            }
        }
        self.stores(VALIDATING, name, object);
        200
    }

    /// A merge patch of what Gatepost writes of a binding, or a JSON patch that gives it back.
    fn patch_binding(&mut self, name: &str, form: &str, patch: &Value) -> u16 {
        let Some(mut object) = self.objects[BINDINGS].get(name).cloned() else { return 404 };
        if form == "application/json-patch+json" {
            for operation in patch.as_array().expect("operations") {
                let path = operation["path"].as_str().expect("a path");
                let (parent, key) = path.rsplit_once('/').expect("a parent");
                let agrees = object.pointer(path) == operation.get("value");
                let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
                match operation["op"].as_str() {
                    Some("test") if agrees => {}
                    Some("replace" | "add") => drop(parent.insert(key.to_owned(), operation["value"].clone())),
                    Some("remove") => drop(parent.remove(&key.replace("~1", "/"))),
                    _ => return 422,
                }
            }
        } else {
            let is_read = |key: &str| patch["metadata"][key] == object["metadata"][key];
            if !is_read("uid") || !is_read("resourceVersion") {
                return 409;
            }
            for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
                if !value.is_null() {
                    object["metadata"]["annotations"][key] = value.clone();
                } else if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(key);
                }
            }
            for (key, value) in patch["spec"].as_object().into_iter().flatten() {
                object["spec"][key] = value.clone();
            }
        }
        self.stores(BINDINGS, name, object);
        200
    }

    /// Status of an apiserver's answer to the patches that Gatepost sends: to leases, to webhooks and bindings of others, and three to
    /// configurations.
    fn patch(&mut self, path: &str, form: &str, patch: &Value) -> u16 {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if path.starts_with(LEASES) {
            return 200;
        }
        if let Some(name) = path.strip_prefix(VALIDATING).and_then(|rest| rest.strip_prefix('/')) {
            return match form {
                "application/apply-patch+yaml" => self.apply_conditions(name, patch),
                _ => self.remove(name, patch),
            };
        }
        if let Some(name) = path.strip_prefix(BINDINGS).and_then(|rest| rest.strip_prefix('/')) {
            return self.patch_binding(name, form, patch);
        }
        let name = path.trim_start_matches(CONFIGURATIONS).trim_matches('/');
        let (name, of_status) = name.strip_suffix("/status").map_or((name, false), |name| (name, true));
        let Some(mut object) = self.objects.get(CONFIGURATIONS).and_then(|all| all.get(name)).cloned() else {
            return 404;
        };
        let revision = object["metadata"]["resourceVersion"].clone();
        let manager = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).expect("a manager");
        assert!(of_status || manager == "gatepost-drain", "{manager} is not the finalizer's owner");
        match (form, of_status) {
            ("application/apply-patch+yaml", true) => {
                apply(&mut object["status"], manager, &patch["status"]);
            }
            ("application/merge-patch+json", false) if patch["metadata"]["resourceVersion"] != revision => return 409,
            ("application/merge-patch+json", false) => {
                object["metadata"]["finalizers"] = patch["metadata"]["finalizers"].clone();
            }
            ("application/json-patch+json", false) if patch[0]["value"] != revision => return 422,
            ("application/json-patch+json", false) => object["metadata"]["finalizers"] = patch[1]["value"].clone(),
            other => panic!("{other:?}"),
        }
        self.stores(CONFIGURATIONS, name, object);
        200
    }
}

/// Each replica owns the entry of its name, and `gatepost` the conditions.
fn apply(status: &mut Value, manager: &str, applied: &Value) {
    let Some(replica) = manager.strip_prefix("gatepost-") else {
        status["conditions"] = applied["conditions"].clone();
        return;
    };
    let entries = |status: &Value| status["replicas"].as_array().cloned().unwrap_or_default();
    let others = entries(status).into_iter().filter(|entry| entry["name"] != replica);
    status["replicas"] = others.chain(entries(applied)).collect();
}

/// A kubeconfig in that folder.
pub fn kubeconfig(folder: &Path, server: &str, user: Value, authority: Option<&Authority>) -> PathBuf {
    let mut cluster = json!({"server": server});
    if let Some(authority) = authority {
        fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
        cluster["certificate-authority"] = json!("ca.crt");
    }
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let path = folder.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Fingerprint of a certificate, to compare it with others.
pub fn shown(certificate: &CertificateDer<'_>) -> String {
    certificate.iter().rev().take(8).map(|byte| format!("{byte:02x}")).collect()
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, certificate: String, state: Arc<Mutex<State>>) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(first)) = lines.next_line().await {
        let mut credentials = certificate.clone();
        let (mut form, mut length) = (String::new(), 0);
        while let Ok(Some(line)) = lines.next_line().await {
            if line.is_empty() {
                break;
            }
            if let Some(token) = line.strip_prefix("authorization: Bearer ") {
                credentials = token.trim().to_owned();
            } else if let Some(value) = line.strip_prefix("content-type: ") {
                value.trim().clone_into(&mut form);
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut sent = vec![0; length];
        if lines.get_mut().read_exact(&mut sent).await.is_err() {
            return;
        }
        let patch = first.starts_with("PATCH ").then(|| (form, serde_json::from_slice(&sent).expect("JSON")));
        let path = first.split(' ').nth(1).expect("a path").to_owned();
        let watched =
            path.split_once('?').filter(|(_, query)| query.contains("watch=1")).map(|(kind, _)| kind.to_owned());
        if let Some(kind) = watched.filter(|kind| state.lock().unwrap().objects.contains_key(&**kind)) {
            let (sender, mut changes) = mpsc::unbounded_channel();
            state.lock().unwrap().watches.push((kind, sender));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            let mut text = head.to_owned();
            while write.write_all(text.as_bytes()).await.is_ok() && write.flush().await.is_ok() {
                let Some(change) = changes.recv().await else { return };
                text = change;
            }
            return;
        }
        let Some((code, mut body, cut)) = answer(&state, path, credentials, patch) else {
            // Until the caller has had enough.
            let _ = lines.get_mut().read_u8().await;
            return;
        };
        let length = body.len();
        if cut {
            body.truncate(length / 2);
        }
        let head = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        if write.write_all(format!("{head}{body}").as_bytes()).await.is_err() || cut {
            let _ = write.shutdown().await;
            return;
        }
    }
}

/// Status, body, and whether it breaks off; none where silence is the answer.
fn answer(
    state: &Mutex<State>,
    path: String,
    credentials: String,
    patch: Option<(String, Value)>,
) -> Option<(u16, String, bool)> {
    let mut state = state.lock().unwrap();
    state.asked.push((path.clone(), credentials.clone()));
    let status = |code: u16, message: &str| {
        Some((code, json!({"kind": "Status", "code": code, "message": message}).to_string(), false))
    };
    if state.token.as_ref().is_some_and(|token| *token != credentials) {
        return status(401, "Unauthorized");
    }
    let instead = state.instead.clone().filter(|(start, _)| path.starts_with(start)).map(|(_, say)| say);
    if let Some((form, patch)) = patch {
        return match instead {
            Some(Say::Status(code)) => status(code, "scripted"),
            _ => match state.patch(&path, &form, &patch) {
                200 => Some((200, truth(&state, &path).0.to_string(), false)),
                code => status(code, "no"),
            },
        };
    }
    let (truth, code) = truth(&state, &path);
    let mut body = truth;
    match instead {
        None => Some((code, body.to_string(), false)),
        Some(Say::Status(code)) => status(code, "scripted"),
        Some(Say::Text(text)) => Some((200, text.to_owned(), false)),
        Some(Say::Half) => Some((code, body.to_string(), true)),
        Some(Say::Revision(revision)) => {
            body["metadata"]["resourceVersion"] = json!(revision);
            Some((code, body.to_string(), false))
        }
        Some(Say::Silence) => None,
    }
}

fn truth(state: &State, path: &str) -> (Value, u16) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let asked = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    if path == SELF {
        return (json!({"metadata": {"name": "kube-system", "uid": state.uid}}), 200);
    }
    if let Some(object) = path.rsplit_once('/').and_then(|(kind, name)| state.objects.get(kind)?.get(name)) {
        return (object.clone(), 200);
    }
    let Some(objects) = state.objects.get(path) else {
        return (json!({"kind": "Status", "code": 404, "message": "not found"}), 404);
    };
    // A token is "how many are done", and which revision they are of.
    let (done, revision) = match asked("continue").map(|token| token.split_once('.').expect("a token of ours")) {
        Some((done, revision)) => (done.parse().unwrap(), revision.to_owned()),
        None => (0, asked("resourceVersion").map_or(state.revision.to_string(), str::to_owned)),
    };
    let limit = match asked("limit") {
        None | Some("0") => usize::MAX,
        Some(_) => PAGE,
    };
    let items: Vec<_> = objects.values().skip(done).take(limit).cloned().collect();
    let more = objects.len().saturating_sub(done + items.len());
    let mut metadata = json!({"resourceVersion": revision});
    if more > 0 {
        metadata["continue"] = json!(format!("{}.{revision}", done + items.len()));
    }
    let group = path.trim_start_matches("/apis/").rsplit_once('/').expect("a resource").0;
    let kind = match path {
        CONFIGURATIONS => "AdmissionControlConfigurationList",
        VALIDATING => "ValidatingWebhookConfigurationList",
        MUTATING => "MutatingWebhookConfigurationList",
        POLICIES => "ValidatingAdmissionPolicyList",
        BINDINGS => "ValidatingAdmissionPolicyBindingList",
        LEASES => "LeaseList",
        _ => "BreakGlassList",
    };
    (json!({"apiVersion": group, "kind": kind, "metadata": metadata, "items": items}), 200)
}
