//! A kube-apiserver's face: its namespaces by list, watch, get and merge patch over plain HTTP/1.1, as the test says.
#![allow(dead_code, unreachable_pub, clippy::expect_used, reason = "test support")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use gatepost_kube_support::{KubeAccess, KubeClient};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    List,
    Watch,
    Get,
    Patch,
    /// Discovery document.
    Discovery,
    /// The same, where the caller knew it already.
    Unchanged,
    /// Rights of a user.
    AccessReview,
}

/// Next step of a watch.
#[derive(Debug)]
enum Next {
    Line(String),
    /// Ends as an apiserver does when the time is up.
    End,
    /// Breaks off in the middle.
    Cut,
}

/// A kube-apiserver's face.
pub struct Apiserver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Name and value of the label `team`.
    namespaces: BTreeMap<String, String>,
    /// Objects in place of those with the label alone.
    instead: BTreeMap<String, Value>,
    /// Annotation of every namespace.
    ballast: String,
    /// Pages of more namespaces break off.
    longest_page: Option<usize>,
    /// Is gone once a page has broken off.
    short_lived: Option<String>,
    /// Labels that a patch has written beside it.
    patched: BTreeMap<String, Value>,
    revision: u64,
    /// Answered with this status, as often as the number says.
    refused: Vec<(Asked, u16)>,
    silent: bool,
    /// Group, version and resource.
    serves: Vec<[String; 3]>,
    /// Its discovery is as of apiservers before 1.27: one document a version.
    old: bool,
    /// Discovery shows only the core group.
    core_only: bool,
    asked: Vec<(Asked, String)>,
    /// Specs of access reviews.
    reviewed: Vec<Value>,
    /// Verbs besides `get` that everybody may do.
    allowed: Vec<String>,
    watch: Option<mpsc::UnboundedSender<Next>>,
}

/// A Namespace with this label `team`.
pub fn namespace(name: &str, team: &str, revision: u64) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": team}, "resourceVersion": revision.to_string()}})
}

impl Apiserver {
    /// Serves these.
    pub async fn start(namespaces: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("address");
        let state = Arc::new(Mutex::new(State { revision: 10, ..State::default() }));
        let this = Self { address, state: Arc::clone(&state) };
        namespaces.iter().for_each(|(name, team)| this.has(name, team));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        this
    }

    /// A client of it, by a kubeconfig as anyone has it.
    pub async fn client(&self) -> KubeClient {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("kubeconfig");
        self.write_kubeconfig(&path);
        let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
        KubeClient::open(&access).await.expect("a client")
    }

    /// Writes that kubeconfig.
    pub fn write_kubeconfig(&self, path: &Path) {
        let cluster = json!({"name": "c", "cluster": {"server": format!("http://{}", self.address)}});
        let context = json!({"name": "c", "context": {"cluster": "c", "user": "u"}});
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
            "users": [{"name": "u", "user": {"token": "t"}}], "current-context": "c"});
        std::fs::write(path, kubeconfig.to_string()).expect("writes");
    }

    /// From now on there is such a namespace; no watch sees it.
    pub fn has(&self, name: &str, team: &str) {
        let mut state = locked(&self.state);
        state.namespaces.insert(name.to_owned(), team.to_owned());
        state.revision += 1;
    }

    /// From now on there is none; no watch sees it.
    pub fn has_no(&self, name: &str) {
        locked(&self.state).namespaces.remove(name);
    }

    /// From now on that namespace is this object.
    pub fn has_object(&self, name: &str, object: Value) {
        self.has(name, "");
        locked(&self.state).instead.insert(name.to_owned(), object);
    }

    /// From now on every namespace that is listed has so large an annotation.
    pub fn has_annotations_of(&self, bytes: usize) {
        locked(&self.state).ballast = "x".repeat(bytes);
    }

    /// From now on pages of more namespaces break off.
    pub fn breaks_pages_over(&self, namespaces: usize) {
        locked(&self.state).longest_page = Some(namespaces);
    }

    /// That namespace is gone once a page has broken off.
    pub fn loses_at_break(&self, name: &str) {
        locked(&self.state).short_lived = Some(name.to_owned());
    }

    /// Labels that patches have written into that namespace.
    pub fn written(&self, name: &str) -> Value {
        locked(&self.state).patched.get(name).cloned().unwrap_or_default()
    }

    /// The next question of this kind is answered with this status.
    pub fn refuses(&self, asked: Asked, code: u16) {
        locked(&self.state).refused.push((asked, code));
    }

    /// From now on questions are read, and not answered.
    pub fn falls_silent(&self) {
        locked(&self.state).silent = true;
    }

    /// The watch sends this event.
    pub fn send_event(&self, kind: &str, object: Value) {
        self.says(&json!({"type": kind, "object": object}).to_string());
    }

    /// The watch sends this line.
    pub fn says(&self, line: &str) {
        self.next(Next::Line(format!("{line}\n")));
    }

    /// The watch ends as it ought to.
    pub fn ends(&self) {
        self.next(Next::End);
    }

    /// The watch's connection breaks.
    pub fn breaks(&self) {
        self.next(Next::Cut);
    }

    /// Serves these from now on: group, version and resource.
    pub fn serves(&self, resources: &[[&str; 3]]) {
        locked(&self.state).serves = resources.iter().map(|three| three.map(str::to_owned)).collect();
    }

    /// Discovery is as of apiservers before 1.27.
    pub fn is_old(&self) {
        locked(&self.state).old = true;
    }

    /// Discovery refuses everything beside the core group, or no longer.
    pub fn serves_core_only(&self, only: bool) {
        locked(&self.state).core_only = only;
    }

    /// From now on everybody may do that, besides `get`.
    pub fn allows(&self, verb: &str) {
        locked(&self.state).allowed.push(verb.to_owned());
    }

    /// The specs of all access reviews. Of these, those about a `get`, and what else is allowed, are.
    pub fn reviewed(&self) -> Vec<Value> {
        locked(&self.state).reviewed.clone()
    }

    fn next(&self, next: Next) {
        let state = locked(&self.state);
        state.watch.as_ref().expect("a watch").send(next).expect("a watch that lives");
    }

    /// Number of such requests.
    pub fn times(&self, which: Asked) -> usize {
        locked(&self.state).asked.iter().filter(|(asked, _)| *asked == which).count()
    }

    /// Path of the last such request.
    pub fn last(&self, which: Asked) -> String {
        let state = locked(&self.state);
        state.asked.iter().rfind(|(asked, _)| *asked == which).map(|(_, path)| path.clone()).expect("was asked")
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics with it")
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(first)) = lines.next_line().await {
        let (mut length, mut patch, mut tag) = (0, None, None);
        while let Ok(Some(line)) = lines.next_line().await {
            match line.to_ascii_lowercase().split_once(": ") {
                Some(("content-length", bytes)) => length = bytes.parse().expect("a length"),
                Some(("content-type", written)) => patch = Some(written.to_owned()),
                Some(("if-none-match", known)) => tag = Some(known.to_owned()),
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        lines.get_mut().read_exact(&mut body).await.expect("a body");
        let path = first.split(' ').nth(1).expect("a path").to_owned();
        if first.starts_with("POST /apis/authorization.k8s.io/v1/subjectaccessreviews ") {
            let answer = access_review(&state, serde_json::from_slice(&body).expect("JSON"));
            if write.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            continue;
        }
        let patch = patch.filter(|_| first.starts_with("PATCH ")).map(|written| {
            assert_eq!(written, "application/merge-patch+json");
            serde_json::from_slice(&body).expect("JSON")
        });
        let (answer, watch) = match discovered(&state, &path, tag.as_deref()) {
            Some(text) => (text, None),
            None => answer(&state, &path, patch),
        };
        let Some(answer) = answer else {
            // Until the caller has had enough.
            let _ = lines.get_mut().read_u8().await;
            return;
        };
        let is_whole = answer.split_once("\r\n\r\n").is_none_or(|(head, body)| {
            let length = head.split_once("content-length: ").and_then(|(_, length)| length.split("\r\n").next());
            length.is_none_or(|length| length == body.len().to_string())
        });
        if write.write_all(answer.as_bytes()).await.is_err() || !is_whole {
            return;
        }
        let Some(mut watch) = watch else { continue };
        loop {
            let chunk = match watch.recv().await {
                Some(Next::Line(line)) => format!("{:x}\r\n{line}\r\n", line.len()),
                Some(Next::End) => "0\r\n\r\n".to_owned(),
                Some(Next::Cut) | None => return,
            };
            if write.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
            if chunk.starts_with("0\r") {
                break;
            }
        }
    }
}

fn access_review(state: &Mutex<State>, mut review: Value) -> String {
    let mut state = locked(state);
    state.asked.push((Asked::AccessReview, String::new()));
    if let Some(place) = state.refused.iter().position(|(refused, _)| *refused == Asked::AccessReview) {
        let (_, code) = state.refused.remove(place);
        return whole(code, &json!({"kind": "Status", "code": code, "message": "not for you"}));
    }
    assert_eq!(review["kind"], "SubjectAccessReview");
    let spec = review["spec"].clone();
    let verb = |of: &str| spec[of]["verb"] == "get" || state.allowed.iter().any(|verb| spec[of]["verb"] == **verb);
    let allowed = verb("resourceAttributes") || verb("nonResourceAttributes");
    review["status"] = json!({"allowed": allowed, "reason": "made up"});
    state.reviewed.push(spec);
    whole(201, &review)
}

/// The answer to a question for what is served; `None` where it is another one.
fn discovered(state: &Mutex<State>, path: &str, tag: Option<&str>) -> Option<Option<String>> {
    let mut state = locked(state);
    let place: Vec<&str> = path.split('/').skip(1).collect();
    let (wanted, version) = match place[..] {
        ["api" | "apis"] => (None, None),
        ["api", version] => (Some(""), Some(version)),
        ["apis", group, version] => (Some(group), Some(version)),
        _ => return None,
    };
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for [group, version, resource] in state.serves.iter().filter(|three| three[0].is_empty() == (place[0] == "api")) {
        groups.entry(group).or_default().entry(version).or_default().push(resource);
    }
    let now = format!("\"{:x}\"", state.serves.iter().flatten().map(String::len).sum::<usize>());
    let body = match (wanted, version) {
        (Some(group), Some(version)) => {
            let names = groups.get(group).and_then(|versions| versions.get(version)).into_iter().flatten();
            // A subresource, as every list has some.
            let names = names.flat_map(|name| [json!({"name": name}), json!({"name": format!("{name}/status")})]);
            json!({"kind": "APIResourceList", "resources": names.collect::<Vec<_>>()})
        }
        _ if state.old && place[0] == "api" => {
            json!({"kind": "APIVersions", "versions": groups.values().flat_map(BTreeMap::keys).collect::<Vec<_>>()})
        }
        _ if state.old => {
            let versions =
                |of: &BTreeMap<&str, Vec<&str>>| of.keys().map(|v| json!({"version": v})).collect::<Vec<_>>();
            let groups = groups.iter().map(|(name, of)| json!({"name": name, "versions": versions(of)}));
            json!({"kind": "APIGroupList", "groups": groups.collect::<Vec<_>>()})
        }
        _ => {
            let resources = |of: &[&str]| of.iter().map(|it| json!({"resource": it})).collect::<Vec<_>>();
            let version = |(version, of): (&&str, &Vec<&str>)| json!({"version": version, "resources": resources(of)});
            let group = |(name, of): (&&str, &BTreeMap<&str, Vec<&str>>)| json!({"metadata": {"name": name}, "versions": of.iter().map(version).collect::<Vec<_>>()});
            json!({"kind": "APIGroupDiscoveryList", "items": groups.iter().map(group).collect::<Vec<_>>()})
        }
    };
    let asked = if tag == Some(&*now) { Asked::Unchanged } else { Asked::Discovery };
    state.asked.push((asked, path.to_owned()));
    if state.silent {
        return Some(None);
    }
    if let Some(place) = state.refused.iter().position(|(refused, _)| *refused == Asked::Discovery) {
        let (_, code) = state.refused[place];
        return Some(Some(whole(code, &json!({"kind": "Status", "code": code, "message": "not for you"}))));
    }
    if state.core_only && place[0] == "apis" {
        return Some(Some(whole(503, &json!({"kind": "Status", "code": 503, "message": "not now"}))));
    }
    if asked == Asked::Unchanged {
        return Some(Some("HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n\r\n".to_owned()));
    }
    Some(Some(whole(200, &body).replacen("\r\n", &format!("\r\netag: {now}\r\n"), 1)))
}

/// The answer's head and body; none where silence is the answer. For a watch, what is to come.
fn answer(
    state: &Mutex<State>,
    path: &str,
    patch: Option<Value>,
) -> (Option<String>, Option<mpsc::UnboundedReceiver<Next>>) {
    let mut state = locked(state);
    let name = path.strip_prefix("/api/v1/namespaces/");
    let asked = match name {
        Some(_) if patch.is_some() => Asked::Patch,
        Some(_) => Asked::Get,
        None if path.contains("watch=1") => Asked::Watch,
        None => Asked::List,
    };
    state.asked.push((asked, path.to_owned()));
    if state.silent {
        return (None, None);
    }
    if let Some(place) = state.refused.iter().position(|(refused, _)| *refused == asked) {
        let (_, code) = state.refused.remove(place);
        return (Some(whole(code, &json!({"kind": "Status", "code": code, "message": "not for you"}))), None);
    }
    if let (Some(patch), Some(name)) = (patch, name) {
        let (name, query) = name.split_once('?').unwrap_or((name, ""));
        if !query.contains("dryRun=All") {
            state.revision += 1;
            let labels = state.patched.entry(name.to_owned()).or_insert_with(|| json!({}));
            for (key, value) in patch["metadata"]["labels"].as_object().expect("labels") {
                labels[key] = value.clone();
            }
        }
        return (Some(whole(200, &json!({}))), None);
    }
    let found = |name: &str| {
        let mut found = namespace(name, state.namespaces.get(name)?, state.revision);
        if let Some(object) = state.instead.get(name) {
            return Some(object.clone());
        }
        for (key, value) in state.patched.get(name).and_then(Value::as_object).into_iter().flatten() {
            found["metadata"]["labels"][key] = value.clone();
        }
        Some(found)
    };
    match (asked, name) {
        (Asked::Get, Some(name)) => {
            (Some(found(name).map_or_else(|| whole(404, &json!({})), |it| whole(200, &it))), None)
        }
        (Asked::Watch, _) => {
            let (sender, receiver) = mpsc::unbounded_channel();
            state.watch = Some(sender);
            (Some("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()), Some(receiver))
        }
        _ => {
            let number = |key: &str| {
                let (_, value) = path.split_once(key)?;
                value.split('&').next()?.parse::<usize>().ok()
            };
            let (from, limit) = (number("continue=").unwrap_or(0), number("limit=").filter(|limit| *limit > 0));
            let to = limit.map_or(usize::MAX, |limit| from + limit).min(state.namespaces.len());
            let mut items: Vec<_> =
                state.namespaces.keys().take(to).skip(from).filter_map(|name| found(name)).collect();
            if !state.ballast.is_empty() {
                items.iter_mut().for_each(|item| item["metadata"]["annotations"] = json!({"a": state.ballast}));
            }
            let next = if to < state.namespaces.len() { to.to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": state.revision.to_string(), "continue": next});
            let is_broken = state.longest_page.is_some_and(|longest| items.len() > longest);
            let list = json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": metadata, "items": items});
            let mut answer = whole(200, &list);
            if is_broken {
                answer.truncate(answer.len() / 2);
                if let Some(name) = state.short_lived.take() {
                    state.namespaces.remove(&name);
                }
            }
            (Some(answer), None)
        }
    }
}

fn whole(code: u16, body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
