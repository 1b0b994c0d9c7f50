//! A whole sidecar over TLS: it follows its files by itself, and warns operators of certificates that expire.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    net::Ipv4Addr,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::front::{LONG, until};
use crate::support::gate::{document, hook};
use crate::tls::{Authority, BOTH, client, connect, files, put, put_pair, shown};
use crate::webhook::{Connection, assert_allowed, post, review};
use gatepost::{
    front::admin::Admin,
    live::{Current, ReplicaHealth},
    runtime::{Running, Settings, Sidecar, StartError},
    telemetry::Metrics,
};
use gatepost_replicas::{AdminUrl, Replica};
use gatepost_tls::{CertificateFault, FileCheck, ServerFiles, ServerTls, TlsError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

fn settings(folder: &Path, files: ServerFiles) -> Settings {
    let config = folder.join("gatepost.yaml");
    if !config.exists() {
        std::fs::write(&config, document(&[])).expect("written");
    }
    Settings { tls: Some(files), plaintext: false, read_every: Duration::from_millis(20), ..Settings::local(config) }
}

fn start(folder: &Path) -> Running {
    Sidecar::start(settings(folder, files(folder))).expect("starts")
}

fn metric(running: &Running, sample: &str) -> Option<f64> {
    let text = running.metrics.render().expect("metrics");
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificate_files_are_in_force_without_a_signal() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    let [first, second] = [authority.server(), authority.server()];
    put_pair(folder.path(), &first);
    let running = start(folder.path());
    let config = client(&authority, None, &["http/1.1"], BOTH);
    let stream = connect(running.addresses.tcp, &config).await.expect("shakes hands");
    assert_eq!(shown(&stream), first.der());
    let mut old = Connection::Http1(stream);
    assert_allowed(&old.call(post("/validate"), review("1", 10)).await, "1");

    put(folder.path(), "tls.key", "broken");
    let rejected = "gatepost_tls_reloads_total{outcome=\"rejected\"}";
    until("the broken pair is rejected", || metric(&running, rejected) == Some(1.0)).await;
    put_pair(folder.path(), &second);
    let replaced = "gatepost_tls_reloads_total{outcome=\"replaced\"}";
    until("the new pair is in force", || metric(&running, replaced) == Some(1.0)).await;
    let stream = connect(running.addresses.tcp, &config).await.expect("shakes hands");
    assert_eq!(shown(&stream), second.der());
    assert_allowed(&old.call(post("/validate"), review("2", 10)).await, "2");
    drop((stream, old));
    tokio::task::spawn_blocking(|| drop(running)).await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_expiry_is_shown_to_operators() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.ending(2000));
    let for_hook = authority.ending(2001);
    put(folder.path(), "hook.crt", &for_hook.chain);
    put(folder.path(), "hook.key", &for_hook.key);
    put(folder.path(), "ca.crt", &authority.pem());
    let hook = hook(
        "a.example.com",
        "grpcs://127.0.0.1:1",
        "",
    )
    .replace(
        "clientConfig: {url: \"grpcs://127.0.0.1:1\"}",
        &format!(
            "clientConfig: {{url: \"grpcs://127.0.0.1:1\", caFile: {0}/ca.crt, clientCertificateFile: {0}/hook.crt, clientKeyFile: {0}/hook.key}}",
            folder.path().display()
        ),
    );
    std::fs::write(folder.path().join("gatepost.yaml"), document(&[hook])).expect("written");
    let client_ca = Some(folder.path().join("ca.crt"));
    let running =
        Sidecar::start(settings(folder.path(), ServerFiles { client_ca, ..files(folder.path()) })).expect("starts");
    let left = |certificate: &str| {
        metric(&running, &format!("gatepost_certificate_expiry_seconds{{certificate=\"{certificate}\"}}"))
    };
    until("the ends are known", || left("server").is_some()).await;
    assert!(left("server").is_some_and(|left| left < 0.0));
    assert!(left("hook:a.example.com").is_some_and(|left| left < 0.0));
    assert!(left("client-ca").is_some_and(|left| left > 0.0));
    tokio::task::spawn_blocking(|| drop(running)).await.expect("stops");
}

#[test]
fn invalid_certificate_never_replaces_a_valid_one() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    let year = |year: u64| SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952);
    let put = |until: i32| put_pair(folder.path(), &authority.ending(until));
    put(2100);
    let tls = ServerTls::load(files(folder.path())).expect("sound files");
    put(2000);
    let looked = tls.reload(year(2050));
    let FileCheck::Rejected { error: error @ TlsError::OutOfDate(CertificateFault::Expired(_)), news: true } = &looked
    else {
        panic!("{looked:?}");
    };
    assert!(error.to_string().ends_with("has expired at 2000-01-01T00:00:00Z"), "{error}");
    assert!(matches!(tls.reload(year(2050)), FileCheck::Rejected { news: false, .. }), "it is logged once");
    assert_eq!(tls.certificate_fault(year(2050)), None, "the old one is in force");
    // At that time no certificate is valid yet that `rcgen` makes by default.
    put(2200);
    let looked = tls.reload(year(1971));
    assert_eq!(looked, FileCheck::Replaced, "where the old one is not valid either");
    put(2000);
    assert_eq!(tls.reload(year(2300)), FileCheck::Replaced, "neither is valid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificate_makes_the_sidecar_unready() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.ending(2000));
    let running = start(folder.path());
    let gatepost = |arguments: &[&str]| {
        let admin = running.addresses.admin.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
        let output = command.args(arguments).args(["--admin", &admin]).output().expect("runs");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
        (output.status.code(), text)
    };
    let (code, text) = gatepost(&["health"]);
    assert!(code == Some(1) && text.contains("not ready: the serving certificate is not valid now"), "{text}");
    let (code, text) = gatepost(&["status"]);
    let line = "CERTIFICATE the serving certificate has expired at 2000-01-01T00:00:00Z: callers reject it; renew it\n";
    assert!(code == Some(6) && text.contains(line), "{code:?} {text}");
    put_pair(folder.path(), &authority.server());
    until("it is ready with the new one", || gatepost(&["health"]).0 == Some(0)).await;
    assert_eq!(gatepost(&["status"]).0, Some(0));
    tokio::task::spawn_blocking(|| drop(running)).await.expect("stops");
}

#[test]
fn plaintext_requires_a_flag() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let with = settings(folder.path(), files(folder.path()));
    let error = Sidecar::start(Settings { tls: None, ..with.clone() }).expect_err("refused");
    assert!(matches!(error, StartError::NoTls(_)), "{error}");
    put(folder.path(), "tls.key", &authority.server().key);
    let error = Sidecar::start(with).expect_err("refused").to_string();
    assert!(error.contains("do not belong together") && error.contains("a rotation must replace both"), "{error}");
}

#[tokio::test]
async fn admin_pages_use_the_same_server_certificate() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let client_ca = Some(put(folder.path(), "ca.crt", &authority.pem()));
    let tls = ServerTls::load(ServerFiles { client_ca, ..files(folder.path()) }).expect("sound files");
    let health = Arc::new(ReplicaHealth::new(Arc::new(Current::new(std::time::Instant::now()))));
    let (replica, metrics) = (Arc::new(Replica::new("a")), Arc::new(Metrics::new(1)));
    let admin = Admin { health, replica, metrics, namespaces: None, tls: Some(Arc::new(tls)) };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("binds");
    let address = listener.local_addr().expect("address");
    tokio::spawn(admin.serve(listener, std::future::pending()));
    let mut stream = connect(address, &client(&authority, None, &["http/1.1"], BOTH)).await.expect("shakes hands");
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut page = String::new();
    timeout(LONG, stream.read_to_string(&mut page)).await.expect("in time").expect("an end");
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.ends_with("ok\n"), "{page}");

    // `gatepost status` asks there, too, and only whom it trusts.
    let place: AdminUrl = format!("https://localhost:{}", address.port()).parse().expect("an address");
    let trusting = |authority: &Authority| Arc::<[u8]>::from(authority.pem().into_bytes());
    let report = place.report(Some(&trusting(&authority)), LONG).await.expect("a report");
    assert_eq!(report.replica, "a");
    let stranger = place.report(Some(&trusting(&Authority::new("another"))), LONG).await.expect_err("not trusted");
    assert!(stranger.starts_with("TLS: invalid peer certificate"), "{stranger}");
}
