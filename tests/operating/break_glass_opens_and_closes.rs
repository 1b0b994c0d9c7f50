//! In an emergency everything, or one hook, is opened for a bounded time: loudly, whatever else is broken, and by
//! nobody who may not.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::front;
use crate::front::{Caller, until};
use crate::support::{
    gate::{ask, document, gate, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::{Current, STALE_AFTER, break_glass::BreakGlassOrigin},
    review::{AdmissionDeps, Reasons},
    runtime::{Running, Settings, Sidecar},
    telemetry::Metrics,
};
use gatepost_api::{BreakGlass, Verdict};
use gatepost_wire::pb::k8s::io::{
    api::{
        admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
        authentication::v1::UserInfo,
    },
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};
use prost::Message;

const A: &str = "a.example.com";
const B: &str = "b.example.com";
const QUARTER: Duration = Duration::from_secs(900);

/// Opened now, for a quarter of an hour.
fn break_glass(hooks: &[&str]) -> BreakGlass {
    BreakGlass {
        name: "night".into(),
        opened: SystemTime::now(),
        duration: QUARTER,
        reason: "told so".into(),
        hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
        opened_by: "ann".into(),
    }
}

fn open(gate: &AdmissionDeps, break_glass: &BreakGlass) {
    gate.break_glass.set_documents(
        BreakGlassOrigin::Source,
        vec![break_glass.clone()],
        Instant::now(),
        SystemTime::now(),
    );
}

/// Two hooks; the first says no, the second yes.
async fn two() -> (Arc<AdmissionDeps>, ScriptedHook, ScriptedHook) {
    let (no, yes) = (ScriptedHook::start(Script::Deny("seen")).await, ScriptedHook::start(Script::Allow).await);
    let hooks = [hook(A, &no.url(), ""), hook(B, &yes.url(), "")];
    (gate(&document(&hooks), Reasons::First), no, yes)
}

/// The same generation, not read for too long.
fn stale(gate: &AdmissionDeps) -> AdmissionDeps {
    let now = Instant::now();
    let current = Current::new(now.checked_sub(Duration::from_secs(60)).unwrap_or(now));
    current.publish(gate.current.load());
    current.freshness().stamp_awake(now.checked_sub(STALE_AFTER).unwrap_or(now));
    AdmissionDeps::new(Arc::new(current), Arc::new(Metrics::new(1)))
}

#[track_caller]
fn is_loud(verdict: &Verdict, what: &str) {
    let warning = verdict.warnings.first().map_or("", |warning| warning);
    let says = warning.starts_with("gatepost: break-glass night is open for ") && warning.ends_with(": told so");
    assert!(says, "{what}: {:?}", verdict.warnings);
    let annotated = verdict.audit_annotations.iter().any(|(key, _)| key == "break-glass.gatepost.dev/night");
    assert!(annotated, "{what}: {:?}", verdict.audit_annotations);
}

#[tokio::test]
async fn break_glass_for_everything_ends_with_its_time() {
    let (gate, no, yes) = two().await;
    for gate in [&*gate, &stale(&gate)] {
        let break_glass = break_glass(&[]);
        assert!(!ask(gate, create_pod("1", 100)).await.allowed());
        let before = (no.seen().len(), yes.seen().len());
        open(gate, &break_glass);
        let verdict = ask(gate, create_pod("2", 100)).await;
        assert!(verdict.allowed(), "{:?}", verdict.refusal);
        is_loud(&verdict, "allowed");
        assert_eq!((no.seen().len(), yes.seen().len()), before, "nobody is asked");
        let counted = gate.metrics.render().expect("text");
        assert!(counted.contains("gatepost_break_glass_requests_total 1"), "{counted}");
        assert!(counted.contains("gatepost_requests_total{outcome=\"bypassed\"} 1"), "{counted}");

        gate.break_glass.tick(Instant::now(), SystemTime::now() + QUARTER);
        let verdict = ask(gate, create_pod("3", 100)).await;
        assert!(!verdict.allowed() && verdict.warnings.is_empty(), "it has closed by itself: {verdict:?}");
    }
}

#[tokio::test]
async fn break_glass_for_one_hook_leaves_the_others_called() {
    let (gate, no, yes) = two().await;
    open(&gate, &break_glass(&[A]));
    let verdict = ask(&gate, create_pod("1", 100)).await;
    assert!(verdict.allowed(), "{:?}", verdict.refusal);
    is_loud(&verdict, "allowed");
    assert_eq!((no.seen().len(), yes.seen().len()), (0, 1));
    assert!(gate.metrics.render().expect("text").contains("gatepost_break_glass_requests_total 1"));

    open(&gate, &break_glass(&[B]));
    let verdict = ask(&gate, create_pod("2", 100)).await;
    assert!(!verdict.allowed());
    is_loud(&verdict, "denied by the other");

    let stale = stale(&gate);
    open(&stale, &break_glass(&[A, B]));
    let verdict = ask(&stale, create_pod("3", 100)).await;
    assert_eq!(
        verdict.refusal.as_ref().map(|refusal| refusal.code),
        Some(503),
        "what newer hooks there are is unknown"
    );
    is_loud(&verdict, "refused");
}

/// A sidecar of its own, over this folder, with one hook that says no.
fn sidecar(folder: &Path, no: &ScriptedHook, break_glass_file: Option<&Path>) -> Running {
    write(&folder.join("gatepost.yaml"), &document(&[hook(A, &no.url(), "")]));
    let break_glass_file = break_glass_file.map(Path::to_owned);
    let settings = Settings { read_every: Duration::from_millis(20), break_glass_file, ..Settings::local(folder) };
    Sidecar::start(settings).expect("starts")
}

/// As careful people do it: written elsewhere, then renamed.
fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("written");
    fs::rename(beside, path).expect("renamed");
}

async fn stop(running: Running) {
    tokio::task::spawn_blocking(|| drop(running)).await.expect("stopped");
}

async fn decided(caller: &Caller, request: AdmissionRequest) -> AdmissionResponse {
    let ended = caller.call(front::grpc(front::REVIEW), [message(request)]).await;
    assert_eq!((ended.status, &*ended.message), (Some(0), ""));
    AdmissionReview::decode(&ended.body[5..]).expect("a review").response.expect("a response")
}

async fn allows(caller: &Caller) -> bool {
    decided(caller, create_pod("u", 100)).await.allowed()
}

fn is_open(running: &Running) -> bool {
    !running.health.break_glass.open(Instant::now()).is_empty()
}

fn gatepost(arguments: &[&str], place: (&str, &Path)) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.arg("break-glass").args(arguments).arg(place.0).arg(place.1).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

const OPEN: [&str; 6] = ["--for", "15m", "--reason", "told so", "--name", "night"];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn break_glass_command_works_beside_broken_files() {
    let no = ScriptedHook::start(Script::Deny("no")).await;
    let folder = tempfile::tempdir().expect("folder");
    let running = sidecar(folder.path(), &no, None);
    let caller = front::caller(running.addresses.tcp).await;
    assert!(!allows(&caller).await);
    write(&folder.path().join("other.yaml"), "kind: Nonsense\n");
    until("the folder is rejected", || running.health.status.rejected.get().is_some()).await;

    let place = ("--config", folder.path());
    let (code, _, stderr) = gatepost(&OPEN, place);
    assert_eq!(code, Some(2), "everything has to be said: {stderr}");
    let (code, stdout, stderr) = gatepost(&[&OPEN[..], &["--everything"]].concat(), place);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(
        stdout.contains("EVERYTHING is open")
            && stdout.contains("--name night --config")
            && stdout.trim_end().ends_with("--end"),
        "{stdout}"
    );
    until("it is open", || is_open(&running)).await;
    let response = decided(&caller, create_pod("1", 100)).await;
    assert!(response.allowed());
    assert!(response.warnings[0].starts_with("gatepost: break-glass night is open for all hooks until "));
    let page = get(running.addresses.admin, "GET", "/configz");
    assert!(page.contains("\"state\": \"Open\"") && page.contains("\"reason\": \"told so\""), "{page}");
    assert!(get(running.addresses.admin, "GET", "/metrics").contains("gatepost_break_glass_open 1.0"));

    // A document of the folder is broken, so that not all hooks are known; an emergency does not wait for that.
    let (code, stdout, stderr) = gatepost(&[&OPEN[..], &["--hook", "c.example.com"]].concat(), place);
    assert_eq!(code, Some(0), "{stderr}");
    let doubt = "warning: cannot find out whether there is a hook, initializer or policy named \"c.example.com\"";
    assert!(stderr.contains(doubt), "{stderr}");
    assert!(stdout.contains("a name that no hook, initializer or policy has opens nothing"), "{stdout}");
    let (code, stdout, _) = gatepost(&["--end", "--name", "night"], place);
    assert_eq!(code, Some(0), "{stdout}");
    until("it is closed", || !is_open(&running)).await;
    assert!(!allows(&caller).await);
    let (code, _, stderr) = gatepost(&["--end", "--name", "night"], place);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("nothing by that name is open"), "{stderr}");
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn break_glass_file_must_not_be_writable_by_others() {
    let no = ScriptedHook::start(Script::Deny("no")).await;
    let (folder, beside) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
    let file = beside.path().join("break-glass.yaml");
    let initializer = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: i}\n\
                       resourceInitializers: [{resource: services, initializers: [{name: team.example.com, builtIn: \
                       {labels: {a: b}}}]}]\n";
    write(&folder.path().join("initializers.yaml"), initializer);
    let running = sidecar(folder.path(), &no, Some(&file));
    let caller = front::caller(running.addresses.tcp).await;
    fs::remove_dir_all(folder.path()).expect("the source is gone");

    let admin = running.addresses.admin.to_string();
    let one = |hook| gatepost(&[&OPEN[..], &["--hook", hook, "--admin", &admin]].concat(), ("--file", &file));
    let (code, _, stderr) = one("a.exmaple.com");
    assert_eq!((code, file.exists()), (Some(2), false), "{stderr}");
    assert!(
        stderr.contains("there is no hook, initializer or policy named \"a.exmaple.com\"") && stderr.contains(A),
        "{stderr}"
    );
    // The name of an initializer is as good, also of one that no process acts for.
    let other = beside.path().join("other.yaml");
    let named = [&OPEN[..], &["--hook", "team.example.com", "--admin", &admin]].concat();
    let (code, stdout, stderr) = gatepost(&named, ("--file", &other));
    assert_eq!((code, &*stderr, other.exists()), (Some(0), "", true), "{stdout}");
    let (code, stdout, stderr) = one(A);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    until("it is open", || is_open(&running)).await;
    assert!(allows(&caller).await);

    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("changed");
    mode(0o666);
    until("it is closed", || !is_open(&running)).await;
    let problem = running.health.break_glass.file_problem().expect("it says why");
    assert!(problem.contains("mode 0666") && problem.contains("chmod go-w"), "{problem}");
    assert!(get(running.addresses.admin, "GET", "/configz").contains("chmod go-w"));
    mode(0o644);
    until("it is open again", || is_open(&running) && running.health.break_glass.file_problem().is_none()).await;

    assert_eq!(gatepost(&["--end", "--name", "night"], ("--file", &file)).0, Some(0));
    until("it is closed", || !is_open(&running)).await;
    write(&file, "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\n");
    until("nonsense is reported", || running.health.break_glass.file_problem().is_some()).await;
    assert!(!is_open(&running));
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn break_glass_lets_a_sidecar_start_without_a_configuration() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("break-glass.yaml");
    let settings = || Settings {
        break_glass_file: Some(file.clone()),
        read_every: Duration::from_millis(20),
        ..Settings::local(folder.path().join("absent"))
    };
    let fails = |settings| std::thread::spawn(move || Sidecar::start(settings).is_err()).join().expect("no panic");
    assert!(fails(settings()), "nothing is open, and nothing is there");
    assert_eq!(gatepost(&[&OPEN[..], &["--everything"]].concat(), ("--file", &file)).0, Some(0));
    let running = Sidecar::start(settings()).expect("starts");
    let caller = front::caller(running.addresses.tcp).await;
    assert!(allows(&caller).await);
    fs::remove_file(&file).expect("removed");
    until("it is closed", || !is_open(&running)).await;
    assert_eq!(decided(&caller, create_pod("u", 100)).await.status.expect("refused").code, Some(503));
    stop(running).await;

    let broken = folder.path().join("broken");
    fs::create_dir(&broken).expect("made");
    write(&broken.join("gatepost.yaml"), "kind: Nonsense\n");
    assert!(fails(Settings::local(&broken)));
    assert_eq!(gatepost(&[&OPEN[..], &["--everything"]].concat(), ("--config", &broken)).0, Some(0));
    let running = Sidecar::start(Settings::local(&broken)).expect("starts");
    let caller = front::caller(running.addresses.tcp).await;
    assert!(allows(&caller).await);
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_cannot_open_break_glass() {
    let no = ScriptedHook::start(Script::Deny("no")).await;
    let folder = tempfile::tempdir().expect("folder");
    let running = sidecar(folder.path(), &no, None);
    let caller = front::caller(running.addresses.tcp).await;
    let text = |text: &str| Some(text.to_owned());
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let written = format!(
        r#"{{"apiVersion":"gatepost.dev/v1alpha1","kind":"BreakGlass","metadata":{{"name":"x",
        "annotations":{{"break-glass.gatepost.dev/x":"open","bypass.gatepost.dev/x":"Skip"}}}},"opened":"{now}","for":"15m","reason":"x"}}"#
    );
    let object = || Some(RawExtension { raw: Some(written.clone().into()) });
    let root = UserInfo {
        username: text("system:admin"),
        groups: vec!["system:masters".into(), "gatepost.dev:admins".into()],
        ..UserInfo::default()
    };
    let pod = || AdmissionRequest { user_info: Some(root.clone()), object: object(), ..create_pod("u", 100) };
    assert!(!decided(&caller, pod()).await.allowed(), "whatever its user and its object say");
    let mut request = front::grpc(front::REVIEW);
    for name in ["break-glass", "gatepost-break-glass", "x-gatepost-bypass", "impersonate-user"] {
        request = front::with(request, name, "everything");
    }
    let ended = caller.call(request, [message(pod())]).await;
    let response = AdmissionReview::decode(&ended.body[5..]).expect("a review").response.expect("a response");
    assert!(!response.allowed(), "whatever its headers say");

    // A BreakGlass object on its way into the apiserver passes, as RBAC is who lets or does not; it opens nothing.
    let create = AdmissionRequest {
        kind: Some(GroupVersionKind {
            group: text("gatepost.dev"),
            version: text("v1alpha1"),
            kind: text("BreakGlass"),
        }),
        resource: Some(GroupVersionResource {
            group: text("gatepost.dev"),
            version: text("v1alpha1"),
            resource: text("breakglasses"),
        }),
        namespace: None,
        ..pod()
    };
    assert!(decided(&caller, create).await.allowed());
    assert!(!is_open(&running) && !allows(&caller).await);

    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in ["/configz", "/metrics", "/readyz", "/livez"] {
            let answer = get(running.addresses.admin, method, path);
            assert!(answer.starts_with("HTTP/1.1 405"), "{method} {path}: {answer}");
        }
        let answer = get(running.addresses.admin, method, "/break-glass");
        assert!(answer.starts_with("HTTP/1.1 404"), "{method}: {answer}");
    }
    assert!(!is_open(&running));
    stop(running).await;
}

#[test]
fn break_glass_command_without_permission_opens_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let everything = [&OPEN[..], &["--everything"]].concat();
    let (code, _, stderr) = gatepost(&everything, ("--file", &folder.path().join("absent/break-glass.yaml")));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cannot be written") && stderr.contains("No such file or directory"), "{stderr}");
    let (code, _, stderr) = gatepost(&everything, ("--config", &folder.path().join("gatepost.yaml")));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is not a folder"), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0, "nothing is left behind");
}

/// An apiserver that takes one call and answers it so; what it was asked.
fn apiserver(folder: &Path, code: u16, answer: &str) -> std::thread::JoinHandle<String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("address");
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
         clusters: [{{name: x, cluster: {{server: \"http://{address}\"}}}}]\nusers: [{{name: x, user: {{token: secret}}}}]\n"
    );
    fs::write(folder.join("kubeconfig"), kubeconfig).expect("written");
    let length = answer.len();
    let answer =
        format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("called");
        let (mut asked, mut buffer) = (String::new(), [0; 4096]);
        let whole = |asked: &str| match asked.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("PATCH") => body.ends_with('}'),
            Some(_) => true,
            None => false,
        };
        while !whole(&asked) {
            let read = stream.read(&mut buffer).expect("read");
            asked.push_str(std::str::from_utf8(&buffer[..read]).expect("text"));
        }
        stream.write_all(answer.as_bytes()).expect("answered");
        asked
    })
}

#[test]
fn break_glass_command_writes_an_object_where_rbac_allows() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().join("kubeconfig");
    let place = ("--kubeconfig", place.as_path());
    let everything = [&OPEN[..], &["--everything", "--source", "kubernetes"]].concat();
    let end = ["--end", "--name", "night", "--source", "kubernetes"];

    let server = apiserver(folder.path(), 201, "{}");
    let (code, stdout, stderr) = gatepost(&everything, place);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    let asked = server.join().expect("served");
    assert!(asked.starts_with("PATCH /apis/gatepost.dev/v1alpha1/breakglasses/night?fieldManager=gatepost"), "{asked}");
    assert!(asked.contains("application/apply-patch+yaml") && asked.contains(r#""reason":"told so""#), "{asked}");

    let says_no = r#"{"kind":"Status","message":"breakglasses.gatepost.dev \"night\" is forbidden: User \"eve\" cannot patch resource"}"#;
    for command in [&everything[..], &end] {
        let server = apiserver(folder.path(), 403, says_no);
        let (code, stdout, stderr) = gatepost(command, place);
        assert_eq!((code, &*stdout), (Some(1), ""));
        assert!(stderr.contains("answers 403 to ") && stderr.contains("User \"eve\" cannot patch"), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
        server.join().expect("served");
    }
    let server = apiserver(folder.path(), 404, "{}");
    let (code, _, stderr) = gatepost(&end, place);
    assert!(code == Some(1) && stderr.contains("nothing by that name is open"), "{stderr}");
    assert!(server.join().expect("served").starts_with("DELETE /apis/gatepost.dev/v1alpha1/breakglasses/night "));
}

fn get(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
