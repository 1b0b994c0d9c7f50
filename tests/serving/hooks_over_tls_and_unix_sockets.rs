//! Hooks over TLS, mutual TLS and unix sockets, as real processes: what is trusted is asked, what is not is a call
//! failure that says why.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::front::until;
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, review},
    scripted_hook::{Script, ScriptedHook},
    sidecar::Configured,
};
use gatepost::{
    commands::review::send_review,
    hooks::Method,
    runtime::{Running, Settings, Sidecar},
};
use gatepost_config::parse_url;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A `gatepost hook` process that ends with its handle.
struct Hook {
    process: Child,
    url: String,
}

impl Hook {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_gatepost"))
            .arg("hook")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the hook starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening ").expect("its address").to_owned();
        Self { process, url }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a CA and pairs signed by it, `server` (for localhost), `client` and `ended`, under this name.
fn certificates(folder: &Path, name: &str) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("CA");
    let write = |file: String, text: String| std::fs::write(folder.join(file), text).expect("written");
    write(format!("{name}-ca.pem"), authority.pem());
    for who in ["server", "client", "ended"] {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        if who == "ended" {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        let certificate = params.signed_by(&key, &authority).expect("signed");
        write(format!("{name}-{who}.pem"), certificate.pem());
        write(format!("{name}-{who}.key"), key.serialize_pem());
    }
}

fn sidecar(folder: &Path, hooks: &[String]) -> Running {
    let path = folder.join("gatepost.yaml");
    std::fs::write(&path, document(hooks)).expect("written");
    Sidecar::start(Settings::local(path)).expect("starts")
}

async fn verdict(sidecar: &Running) -> AdmissionResponse {
    let endpoint = parse_url(&format!("grpc://{}", sidecar.addresses.tcp)).expect("a URL");
    let answer =
        send_review(&endpoint, Method::Review, &review(create_pod("u-1", 300 << 10)), Duration::from_secs(20)).await;
    answer.expect("an answer").response.expect("a verdict")
}

/// The configuration of a hook at that URL with these keys in its `clientConfig`.
fn tls_hook(url: &str, keys: &str) -> String {
    hook("h.example.com", url, "").replace(&format!("{{url: \"{url}\"}}"), &format!("{{url: \"{url}\", {keys}}}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_hooks_fail_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    certificates(folder, "ours");
    certificates(folder, "theirs");
    let at = |name: &str| folder.join(name).display().to_string();
    let (chain, key, ca) = (at("ours-server.pem"), at("ours-server.key"), at("ours-ca.pem"));
    let server = ["--listen", "127.0.0.1:0", "--tls-certificate", &chain, "--tls-key", &key];
    let tls = Hook::start(&server);
    let mutual = Hook::start(&[&server[..], &["--client-ca", &ca]].concat());
    let (old_chain, old_key) = (at("ours-ended.pem"), at("ours-ended.key"));
    let ended = Hook::start(&["--listen", "127.0.0.1:0", "--tls-certificate", &old_chain, "--tls-key", &old_key]);
    assert!(tls.url.starts_with("grpcs://127.0.0.1:"), "{}", tls.url);

    let ours = "caFile: ours-ca.pem, serverName: localhost";
    let pair = "clientCertificateFile: ours-client.pem, clientKeyFile: ours-client.key";
    let strange = "clientCertificateFile: theirs-client.pem, clientKeyFile: theirs-client.key";
    for (url, keys, why) in [
        (&tls.url, ours.to_owned(), None),
        (&tls.url, "caFile: theirs-ca.pem, serverName: localhost".to_owned(), Some("invalid peer certificate")),
        (&tls.url, "caFile: ours-ca.pem, serverName: elsewhere.example".to_owned(), Some("not valid for name")),
        (&ended.url, ours.to_owned(), Some("certificate expired")),
        (&mutual.url, format!("{ours}, {pair}"), None),
        (&mutual.url, ours.to_owned(), Some("h.example.com")),
        (&mutual.url, format!("{ours}, {strange}"), Some("h.example.com")),
    ] {
        let sidecar = sidecar(folder, &[tls_hook(url, &keys)]);
        let response = verdict(&sidecar).await;
        match why {
            None => assert_eq!(response.allowed, Some(true), "{keys}: {response:?}"),
            Some(why) => {
                let status = response.status.expect("rejected");
                let message = status.message.expect("a message");
                assert_eq!(status.code, Some(500));
                assert!(message.contains("failed calling webhook") && message.contains(why), "{keys}: {message}");
            }
        }
        tokio::task::spawn_blocking(move || sidecar.stop()).await.expect("stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_tls_hook_does_not_pass_its_probe() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    certificates(folder, "ours");
    certificates(folder, "theirs");
    let at = |name: &str| folder.join(name).display().to_string();
    let tls = Hook::start(&[
        "--listen",
        "127.0.0.1:0",
        "--tls-certificate",
        &at("ours-server.pem"),
        "--tls-key",
        &at("ours-server.key"),
    ]);
    let configured = Configured::start(&["  []\n".to_owned()]);
    let trusting =
        |ca: &str, name: &str| document(&[tls_hook(&tls.url, &format!("caFile: {}, serverName: {name}", at(ca)))]);
    for (ca, name, why) in [
        ("theirs-ca.pem", "localhost", "invalid peer certificate"),
        ("ours-ca.pem", "elsewhere.example", "not valid for name"),
    ] {
        configured.write(&trusting(ca, name));
        let shown = || configured.hook("h.example.com").and_then(|live| live.rotation.reason());
        until("its probe has failed for that", || shown().is_some_and(|shown| shown.contains(why))).await;
        assert!(shown().is_some_and(|shown| shown.ends_with("(step: TLS)")), "{:?}", shown());
        assert!(!configured.asks("h.example.com"));
    }
    configured.write(&trusting("ours-ca.pem", "localhost"));
    until("it is asked", || configured.asks("h.example.com")).await;
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_gets_the_credentials_that_its_file_holds_now() {
    let scripted = ScriptedHook::start(Script::Allow).await;
    let configured = Configured::start(&["  []\n".to_owned()]);
    let token = configured.folder.path().join("token");
    std::fs::write(&token, "Basic YTpi").expect("written");
    let client = format!("{{url: \"{}\"", scripted.url());
    let text = document(&[hook("h.example.com", &scripted.url(), "")])
        .replace(&client, &format!("{client}, authorizationFile: token"));
    configured.write(&text);
    until("it is asked", || configured.asks("h.example.com")).await;
    for (written, sent) in [(None, "Basic YTpi"), (Some("a-token\n"), "Bearer a-token")] {
        if let Some(written) = written {
            std::fs::write(&token, written).expect("written");
        }
        loop {
            assert_eq!(verdict(&configured.running).await.allowed, Some(true));
            let seen = scripted.seen().pop().expect("asked");
            if seen.headers.get("authorization").is_some_and(|seen| seen == sent) {
                break;
            }
        }
    }
    let shown = format!("{:?}", configured.hook("h.example.com"));
    assert!(shown.contains("Authorization") && !shown.contains("a-token"), "{shown}");
    tokio::task::spawn_blocking(move || configured.running.stop()).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_on_a_unix_socket_is_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hook.sock").display().to_string();
    let unix = Hook::start(&["--uds", &socket, "--deny-if", "name=web"]);
    let sidecar = sidecar(folder.path(), &[hook("h.example.com", &unix.url, "")]);
    let status = verdict(&sidecar).await.status.expect("denied");
    let want = "admission webhook \"h.example.com\" denied the request: this hook denies reviews with name=web";
    assert_eq!(status.message.as_deref(), Some(want));
    tokio::task::spawn_blocking(move || sidecar.stop()).await.expect("stops");
}
