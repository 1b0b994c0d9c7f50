//! TLS at the front: admitted clients, protocols, and key pairs that change while it serves.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use crate::front::{LONG, Sidecar, over, until};
use crate::tls::{Authority, BOTH, Pair, client, connect, files, put, put_pair, shown};
use crate::webhook::{Connection, assert_allowed, post, review};
use crate::{front, webhook};
use gatepost::front::{FrontLimits, Listener};
use gatepost_tls::{FileCheck, MinTlsVersion, ServerFiles, ServerTls, TlsError};
use rustls::ClientConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const HTTP: &[&str] = &["h2", "http/1.1"];

/// A sidecar that serves with what these files hold.
async fn serving(files: ServerFiles) -> (Sidecar, Arc<ServerTls>) {
    let tls = Arc::new(ServerTls::load(files).expect("sound files"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let sidecar = front::serving(FrontLimits::default(), address, Listener::Tls(listener, Arc::clone(&tls)));
    sidecar.current.freshness().stamp_awake(std::time::Instant::now() + std::time::Duration::from_secs(3600));
    (sidecar, tls)
}

/// A sidecar with a pair of this authority, asking for clients' certificates of that one.
async fn choosy(authority: &Authority, clients: Option<&Authority>, names: &[&str]) -> Sidecar {
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let mut files = files(folder.path());
    files.client_ca = clients.map(|clients| put(folder.path(), "ca.crt", &clients.pem()));
    files.client_names = names.iter().map(|name| (*name).to_owned()).collect();
    serving(files).await.0
}

/// Is a review answered over a connection of this client? If not: how the connection failed.
async fn answered(sidecar: &Sidecar, config: &Arc<ClientConfig>) -> Result<(), String> {
    let mut stream = connect(sidecar.address, config).await.map_err(|error| error.to_string())?;
    // In TLS 1.3 a client hears with its first read that it was not let in.
    let body = review("1", 10);
    let request = front::with(post("/validate"), "content-length", &body.len().to_string());
    let _ = stream.write_all(&[webhook::head(&request).as_bytes(), &body].concat()).await;
    let mut first = [0];
    stream.read_exact(&mut first).await.map_err(|error| error.to_string())?;
    assert_eq!(&first, b"H", "an answer in HTTP/1.1");
    Ok(())
}

fn failed_handshakes(sidecar: &Sidecar) -> f64 {
    sidecar.metric("gatepost_refused_total{reason=\"tls_handshake\"}")
}

#[tokio::test]
async fn reviews_are_answered_over_both_versions_of_http() {
    let authority = Authority::new("cluster");
    let sidecar = choosy(&authority, None, &[]).await;
    for (protocols, agreed) in
        [(HTTP, Some("h2")), (&["http/1.1"], Some("http/1.1")), (&["spdy", "http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let stream = connect(sidecar.address, &client(&authority, None, protocols, BOTH)).await.expect("shakes hands");
        let agreement = stream.get_ref().1.alpn_protocol().map(|agreed| String::from_utf8_lossy(agreed).into_owned());
        assert_eq!(agreement.as_deref(), agreed);
        let mut connection = match agreed {
            Some("h2") => Connection::Http2(over(stream).await),
            _ => Connection::Http1(stream),
        };
        for uid in ["1", "2"] {
            assert_allowed(&connection.call(post("/validate?timeout=10s"), review(uid, 100_000)).await, uid);
        }
        if let Connection::Http2(caller) = connection {
            caller.review("grpc", 100_000).await.assert_allowed("grpc");
        }
    }
    // Without ALPN, HTTP/2 shows by its first bytes.
    let stream = connect(sidecar.address, &client(&authority, None, &[], BOTH)).await.expect("shakes hands");
    over(stream).await.review("grpc", 10).await.assert_allowed("grpc");
    assert_eq!(failed_handshakes(&sidecar), 0.0);
}

#[tokio::test]
async fn other_protocols_than_http_are_refused() {
    let authority = Authority::new("cluster");
    let sidecar = choosy(&authority, None, &[]).await;
    let message = answered(&sidecar, &client(&authority, None, &["spdy/3", "h3"], BOTH)).await.expect_err("refused");
    assert!(message.contains("NoApplicationProtocol"), "{message}");
    until("counted", || failed_handshakes(&sidecar) == 1.0).await;
}

#[tokio::test]
async fn tls_1_2_is_disabled_by_default() {
    let authority = Authority::new("cluster");
    let old = client(&authority, None, &["http/1.1"], &[&rustls::version::TLS12]);
    let message = answered(&choosy(&authority, None, &[]).await, &old).await.expect_err("refused");
    assert!(message.contains("ProtocolVersion"), "{message}");

    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let (sidecar, _) = serving(ServerFiles { oldest: MinTlsVersion::Tls12, ..files(folder.path()) }).await;
    answered(&sidecar, &old).await.expect("served");
    answered(&sidecar, &client(&authority, None, &["http/1.1"], &[&rustls::version::TLS13])).await.expect("served");
}

#[tokio::test]
async fn with_a_client_authority_only_its_clients_get_in() {
    let (authority, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let sidecar = choosy(&authority, Some(&clients), &[]).await;
    let with = |pair: Option<&Pair>| client(&authority, pair, &["http/1.1"], BOTH);
    answered(&sidecar, &with(Some(&clients.pair("kube-apiserver", &[])))).await.expect("served");

    let none = answered(&sidecar, &with(None)).await.expect_err("refused");
    assert!(none.contains("CertificateRequired"), "{none}");
    let strangers = Authority::new("strangers").pair("kube-apiserver", &[]);
    let unknown = answered(&sidecar, &with(Some(&strangers))).await.expect_err("refused");
    assert!(unknown.contains("UnknownCa") || unknown.contains("UnknownCA"), "{unknown}");
    until("counted", || failed_handshakes(&sidecar) == 2.0).await;
}

#[tokio::test]
async fn self_signed_client_is_accepted_and_expired_ca_rejected() {
    let authority = Authority::new("cluster");
    let (ours, another) = (Pair::own("kube-apiserver"), Pair::own("kube-apiserver"));
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let client_ca = Some(put(folder.path(), "ca.crt", &ours.chain));
    let (sidecar, _) = serving(ServerFiles { client_ca, ..files(folder.path()) }).await;
    let with = |pair: &Pair| client(&authority, Some(pair), &["http/1.1"], BOTH);
    answered(&sidecar, &with(&ours)).await.expect("served");
    answered(&sidecar, &with(&another)).await.expect_err("of the same name, with another key");

    let ended = Authority::until("clients", 2001);
    let sidecar = choosy(&authority, Some(&ended), &[]).await;
    answered(&sidecar, &with(&ended.pair("kube-apiserver", &[]))).await.expect_err("vouched for by one that has ended");
}

#[tokio::test]
async fn with_names_only_clients_of_one_of_these_names_get_in() {
    let (authority, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let names = ["kube-apiserver", "apiserver.example", "spiffe://cluster/apiserver"];
    let sidecar = choosy(&authority, Some(&clients), &names).await;
    let cases: [(&str, &[&str], bool); 9] = [
        ("kube-apiserver", &[], true),
        ("other", &["x.example", "apiserver.example"], true),
        ("other", &["spiffe://cluster/apiserver"], true),
        ("other", &[], false),
        ("other", &["a.apiserver.example", "*.example"], false),
        ("other", &["spiffe://cluster/apiserver2"], false),
        ("kube-apiserver ", &[], false),
        ("Kube-Apiserver", &[], false),
        ("other", &["spiffe://other/kube-apiserver"], false),
    ];
    for (common, alternative, let_in) in cases {
        let config = client(&authority, Some(&clients.pair(common, alternative)), &["http/1.1"], BOTH);
        let outcome = answered(&sidecar, &config).await;
        assert_eq!(outcome.is_ok(), let_in, "{common:?} {alternative:?}: {outcome:?}");
        assert!(outcome.err().is_none_or(|message| message.contains("AccessDenied")), "it has an alert of its own");
    }
    let strangers = Authority::new("strangers").pair("kube-apiserver", &[]);
    let outcome = answered(&sidecar, &client(&authority, Some(&strangers), &["http/1.1"], BOTH)).await;
    assert!(outcome.is_err(), "a name alone lets nobody in");
}

#[tokio::test]
async fn a_resumed_session_does_not_outlive_the_client_s_certificate() {
    let (authority, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let sidecar = choosy(&authority, Some(&clients), &[]).await;
    let config = client(&authority, Some(&clients.pair("kube-apiserver", &[])), &["http/1.1"], BOTH);
    for _ in 0..2 {
        answered(&sidecar, &config).await.expect("served");
        let stream = connect(sidecar.address, &config).await.expect("shakes hands");
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}

#[tokio::test]
async fn plaintext_and_garbage_on_a_tls_port_end_cleanly() {
    let authority = Authority::new("cluster");
    let sidecar = choosy(&authority, None, &[]).await;
    let config = client(&authority, None, HTTP, BOTH);
    let caller = over(connect(sidecar.address, &config).await.expect("shakes hands")).await;
    let plain: [&[u8]; 3] =
        [b"POST /validate HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x80\x80\xff\0"];
    for bytes in plain {
        let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
        stream.write_all(bytes).await.expect("sent");
        let mut rest = Vec::new();
        timeout(LONG, stream.read_to_end(&mut rest)).await.expect("in time").expect("no reset");
        assert_eq!(rest, b"");
        caller.review("beside", 1000).await.assert_allowed("beside");
    }
    assert_eq!(sidecar.metric("gatepost_refused_total{reason=\"not_tls\"}"), 3.0);
    // Looks like TLS, but is none.
    let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
    stream.write_all(b"\x16\x03\x01\x00\x05hello and more").await.expect("sent");
    let mut rest = Vec::new();
    timeout(LONG, stream.read_to_end(&mut rest)).await.expect("in time").expect("no reset");
    until("counted", || failed_handshakes(&sidecar) == 1.0).await;
    caller.review("beside", 1000).await.assert_allowed("beside");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_handshake_is_let_go() {
    let authority = Authority::new("cluster");
    let sidecar = choosy(&authority, None, &[]).await;
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(sidecar.address).await.expect("connects");
        stream.write_all(begun).await.expect("sent");
        let mut rest = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("in time");
    }
    assert_eq!(failed_handshakes(&sidecar), 2.0);
}

/// Certificate that the sidecar shows in a handshake with a client of this authority.
async fn shown_to(sidecar: &Sidecar, authority: &Authority) -> rustls::pki_types::CertificateDer<'static> {
    shown(&connect(sidecar.address, &client(authority, None, HTTP, BOTH)).await.expect("shakes hands"))
}

#[tokio::test]
async fn a_new_pair_is_shown_to_new_connections_and_old_ones_live_on() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    let [first, second] = [authority.server(), authority.server()];
    put_pair(folder.path(), &first);
    let (sidecar, tls) = serving(files(folder.path())).await;
    let caller = over(connect(sidecar.address, &client(&authority, None, HTTP, BOTH)).await.expect("connects")).await;
    assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Same);
    assert_eq!(shown_to(&sidecar, &authority).await, first.der());

    // Between the two renames the certificate is new and the key is old.
    put(folder.path(), "tls.crt", &second.chain);
    let torn = tls.reload(std::time::SystemTime::now());
    assert!(matches!(&torn, FileCheck::Rejected { error: TlsError::BadPair { .. }, news: true }), "{torn:?}");
    assert!(matches!(tls.reload(std::time::SystemTime::now()), FileCheck::Rejected { news: false, .. }), "logged once");
    assert_eq!(shown_to(&sidecar, &authority).await, first.der());
    put(folder.path(), "tls.key", &second.key);
    assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Replaced);
    assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Same);
    assert_eq!(shown_to(&sidecar, &authority).await, second.der());
    caller.review("old", 10).await.assert_allowed("old");
}

/// Writes a pair as a kubelet does: into a folder of its own, then a symlink is moved to that.
fn mount(folder: &Path, version: &str, pair: &Pair) {
    fs::create_dir(folder.join(version)).expect("folder");
    put_pair(&folder.join(version), pair);
    symlink(version, folder.join("..new")).expect("link");
    fs::rename(folder.join("..new"), folder.join("..data")).expect("moved");
}

#[tokio::test]
async fn a_mounted_secret_is_followed_through_its_symlinks() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    let [first, second] = [authority.server(), authority.server()];
    mount(folder.path(), "v1", &first);
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), folder.path().join(name)).expect("link");
    }
    let (sidecar, tls) = serving(files(folder.path())).await;
    assert_eq!(shown_to(&sidecar, &authority).await, first.der());
    mount(folder.path(), "v2", &second);
    assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Replaced);
    assert_eq!(shown_to(&sidecar, &authority).await, second.der());
}

#[tokio::test]
async fn broken_files_leave_the_good_ones_in_force() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    let good = authority.server();
    put_pair(folder.path(), &good);
    let (sidecar, tls) = serving(files(folder.path())).await;
    let half = good.chain[..good.chain.len() / 2].to_owned();
    for (name, text, wanted) in [
        ("tls.crt", "", "the server certificate has no \"-----BEGIN CERTIFICATE-----\" section"),
        ("tls.crt", half.as_str(), "the server certificate is not PEM: a section has no END line"),
        ("tls.key", "nonsense", "the server key has no"),
        (
            "tls.key",
            authority.server().key.as_str(),
            "the server certificate and its private key do not belong together",
        ),
    ] {
        put(folder.path(), name, text);
        let FileCheck::Rejected { error, news: true } = tls.reload(std::time::SystemTime::now()) else {
            panic!("{name} {text:?} is rejected")
        };
        assert!(error.to_string().starts_with(wanted), "{error}");
        assert_eq!(shown_to(&sidecar, &authority).await, good.der());
        put_pair(folder.path(), &good);
        assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Same);
    }
    fs::remove_file(folder.path().join("tls.key")).expect("removed");
    let gone = tls.reload(std::time::SystemTime::now());
    assert!(matches!(&gone, FileCheck::Rejected { error: TlsError::Unreadable { .. }, news: true }), "{gone:?}");
    assert_eq!(shown_to(&sidecar, &authority).await, good.der());
    let unusable = ServerTls::load(files(folder.path())).expect_err("nothing to begin with");
    assert!(unusable.to_string().contains("tls.key"), "{unusable}");
}

#[tokio::test]
async fn a_new_client_authority_decides_over_new_connections() {
    let (authority, old, new) = (Authority::new("cluster"), Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.server());
    let client_ca = Some(put(folder.path(), "ca.crt", &old.pem()));
    let (sidecar, tls) = serving(ServerFiles { client_ca, ..files(folder.path()) }).await;
    let config = |ca: &Authority| client(&authority, Some(&ca.pair("client", &[])), &["http/1.1"], BOTH);
    assert!(answered(&sidecar, &config(&new)).await.is_err());
    put(folder.path(), "ca.crt", "broken");
    assert!(matches!(tls.reload(std::time::SystemTime::now()), FileCheck::Rejected { .. }));
    answered(&sidecar, &config(&old)).await.expect("served");
    put(folder.path(), "ca.crt", &new.pem());
    assert_eq!(tls.reload(std::time::SystemTime::now()), FileCheck::Replaced);
    answered(&sidecar, &config(&new)).await.expect("served");
    assert!(answered(&sidecar, &config(&old)).await.is_err());
}

#[test]
fn the_ends_of_the_certificates_are_known() {
    let authority = Authority::new("cluster");
    let folder = tempfile::tempdir().expect("folder");
    put_pair(folder.path(), &authority.ending(2031));
    let client_ca = Some(put(folder.path(), "ca.crt", &authority.pem()));
    let tls = ServerTls::load(ServerFiles { client_ca, ..files(folder.path()) }).expect("sound files");
    let ends = tls.expiries();
    assert_eq!(ends.iter().map(|end| end.certificate.as_str()).collect::<Vec<_>>(), ["server", "client-ca"]);
    // 2031-01-01T00:00:00Z
    assert_eq!(ends[0].end, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_924_992_000));
}
