//! `health` and `review` at a port that speaks TLS: asked over it they work, asked in plaintext they say what to write.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::support::gate::document;

/// A sidecar whose reviews and admin pages are served over TLS, at these ports.
struct Served {
    process: Child,
    grpc: String,
    admin: String,
    certificate: String,
    folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("certificate");
        fs::write(path("tls.crt"), pair.cert.pem()).expect("written");
        fs::write(path("tls.key"), pair.signing_key.serialize_pem()).expect("written");
        fs::write(path("gatepost.yaml"), document(&[])).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
        // An address elsewhere than on loopback: admin pages are served over TLS there.
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"]);
        command.args([
            "--tls-cert",
            &path("tls.crt"),
            "--tls-key",
            &path("tls.key"),
            "--config",
            &path("gatepost.yaml"),
        ]);
        command.env_remove("GATEPOST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("runs");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut said = |prefix: &str| {
            let line = lines.next().expect("a line").expect("text");
            line.strip_prefix(prefix).unwrap_or_else(|| panic!("{line:?} is not {prefix:?}")).trim().to_owned()
        };
        let (grpc, admin) = (said("listening tcp "), said("listening admin ").replace("0.0.0.0", "127.0.0.1"));
        said("ready ");
        Self { process, grpc, admin, certificate: path("tls.crt"), folder }
    }
}

fn ran(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gatepost")).args(arguments).output().expect("runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn health_uses_tls_or_advises_it() {
    let served = Served::start();
    let asked = |more: &[&str]| ran(&[&["health", "--timeout", "30s", "--admin", &served.admin], more].concat());
    assert_eq!(asked(&["--ca", &served.certificate]), (Some(0), String::new()));

    let (code, message) = asked(&[]);
    assert_eq!(code, Some(1));
    assert!(message.contains("it speaks TLS: name the authority of its certificate by --ca FILE"), "{message}");

    let stranger = served.folder.path().join("other.crt");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("certificate");
    fs::write(&stranger, other.cert.pem()).expect("written");
    let (code, message) = asked(&["--ca", &stranger.display().to_string()]);
    assert!(code == Some(1) && message.contains("certificate"), "{message}");
    let (code, message) = asked(&["--ca", &served.certificate, "--server-name", "gatepost.example"]);
    assert!(code == Some(1) && message.contains("certificate"), "{message}");
    let (code, message) = asked(&["--ca", "/nowhere/ca.crt"]);
    assert!(code == Some(1) && message.contains("--ca must name a file"), "{message}");
}

#[test]
fn review_at_a_tls_port_advises_tls() {
    let served = Served::start();
    let review = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reviews/pod-create.json");
    let asked = |url: &str, more: &[&str]| ran(&[&["review", review, "--to", url][..], more].concat());
    let (plaintext, tls) = (format!("grpc://{}", served.grpc), format!("grpcs://{}", served.grpc));

    let (code, message) = asked(&plaintext, &[]);
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("write {tls} and --ca FILE")), "{message}");
    let (code, message) = asked(&tls, &[]);
    assert_eq!(code, Some(1));
    assert!(message.contains("name that by --ca FILE"), "{message}");
    assert_eq!(asked(&tls, &["--ca", &served.certificate]).0, Some(0));
    let (code, message) = asked(&format!("https://{}/validate", served.grpc), &[]);
    assert!(code == Some(1) && message.contains(&format!("write {tls} (and --ca FILE)")), "{message}");
}
