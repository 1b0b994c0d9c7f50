//! The binary as an operator meets it: `check` and `serve`, what they print and how they end.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use crate::front;
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};

fn gatepost(arguments: &[&str], path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(arguments).arg(path).stdin(Stdio::null()).env_remove("GATEPOST_LOG");
    command
}

fn ended(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

const TWO_PROBLEMS: &str =
    "- name: a.example.com\n  clientConfig: {url: 'http://hook.example.com:1'}\n  rules: []\n  color: red\n";

#[test]
fn check_prints_every_problem_and_their_number() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("gatepost.yaml");
    fs::write(&file, document(&[TWO_PROBLEMS.to_owned()])).expect("written");
    let (code, stdout, stderr) = ended(gatepost(&["check"], folder.path()));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((code, lines.len(), lines.last(), &*stderr), (Some(1), 3, Some(&"2 problems"), ""), "{stdout}");
    assert!(lines[..2].iter().all(|line| line.starts_with("gatepost.yaml: externalAdmissionHooks[0]")), "{stdout}");

    let (code, stdout, stderr) = ended(gatepost(&["check"], &folder.path().join("absent")));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.contains("absent") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn check_refuses_a_key_of_another_certificate() {
    let folder = tempfile::tempdir().expect("folder");
    let pair = || rcgen::generate_simple_self_signed(["hook.example.com".to_owned()]).expect("certificate");
    let (one, other) = (pair(), pair());
    fs::write(folder.path().join("client.crt"), one.cert.pem()).expect("written");
    fs::write(folder.path().join("client.key"), other.signing_key.serialize_pem()).expect("written");
    let entry = hook("a.example.com", "grpcs://hook.example.com:1", "").replace(
        "clientConfig: {",
        "clientConfig: {caFile: client.crt, clientCertificateFile: client.crt, clientKeyFile: client.key, ",
    );
    fs::write(folder.path().join("gatepost.yaml"), document(&[entry])).expect("written");
    let (code, stdout, _) = ended(gatepost(&["check"], folder.path()));
    assert_eq!(code, Some(1));
    assert!(stdout.contains("externalAdmissionHooks[0].clientConfig.clientKeyFile: is not the key"), "{stdout}");

    fs::write(folder.path().join("client.key"), one.signing_key.serialize_pem()).expect("written");
    let (code, stdout, _) = ended(gatepost(&["check"], folder.path()));
    assert_eq!(code, Some(0), "{stdout}");
}

#[test]
fn check_prints_the_effective_configuration() {
    let folder = tempfile::tempdir().expect("folder");
    let entry = hook("a.example.com", "grpc://127.0.0.1:1", "failurePolicy: Ignore\ntimeout: 250ms");
    fs::write(folder.path().join("gatepost.yaml"), document(&[entry])).expect("written");
    let (code, stdout, stderr) = ended(gatepost(&["check"], folder.path()));
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.contains("a.example.com at grpc://127.0.0.1:1: validating, Ignore, 250ms, 1 rule"), "{stdout}");
}

#[test]
fn check_notes_parts_that_are_not_served() {
    let folder = tempfile::tempdir().expect("folder");
    let webhook = |name: &str| {
        format!(
            "- {{name: {name}, clientConfig: {{url: 'https://h'}}, admissionReviewVersions: [v1], sideEffects: None}}\n"
        )
    };
    let text = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {{name: m}}\n\
         webhooks:\n{}{}",
        webhook("a.b.c"),
        webhook("d.e.f")
    );
    fs::write(folder.path().join("m.yaml"), text).expect("written");
    let (code, stdout, stderr) = ended(gatepost(&["check"], folder.path()));
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(stdout.contains("in force would be: 2 hooks") && stdout.contains("mutating, Fail"), "{stdout}");
}

#[test]
fn serve_needs_a_sound_first_configuration_and_a_safe_address() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("gatepost.yaml"), document(&[TWO_PROBLEMS.to_owned()])).expect("written");
    let serve = ["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"];
    let (code, stdout, stderr) = ended(gatepost(&serve, folder.path()));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.contains("problems (2)") && stderr.contains("color"), "{stderr}");

    for address in ["--listen", "--admin"] {
        let everywhere = ["serve", "--plaintext", address, "0.0.0.0:0", "--config"];
        let (code, _, stderr) = ended(gatepost(&everywhere, folder.path()));
        assert_eq!(code, Some(1));
        assert!(stderr.contains(&format!("will not listen on 0.0.0.0:0 ({address}) in plaintext")), "{stderr}");
        assert!(stderr.contains("--tls-cert"), "{stderr}");
    }
    let (code, _, stderr) = ended(gatepost(&["serve", "--config"], folder.path()));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("give --tls-cert FILE and --tls-key FILE, or"), "{stderr}");
    assert!(stderr.contains("--plaintext"), "{stderr}");
    let nowhere = ["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let (code, _, stderr) =
        ended(gatepost(&[&nowhere[..], &["--last-good", "/nowhere/kept", "--config"]].concat(), folder.path()));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("--last-good: /nowhere/kept cannot be written: its folder /nowhere: No such"), "{stderr}");
    let missing = ["serve", "--tls-cert", "/nowhere/tls.crt", "--tls-key", "/nowhere/tls.key", "--config"];
    let (code, _, stderr) = ended(gatepost(&missing, folder.path()));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cannot read /nowhere/tls.crt: No such file"), "{stderr}");

    for unclear in [
        ["--max-deadline", "0s", "--plaintext"],
        ["--tls-cert", "a", "--plaintext"],
        ["--workers", "100000", "--plaintext"],
        ["--reasons=all", "--reasons-grace=1s", "--plaintext"],
        ["--tls-cert", "a", "--tls-min=1.2"],
        ["--plaintext", "--client-ca", "a"],
    ] {
        let arguments = [&["serve"][..], &unclear, &["--config"]].concat();
        let (code, ..) = ended(gatepost(&arguments, folder.path()));
        assert_eq!(code, Some(2), "{unclear:?}");
    }
    let unclear = ["serve", "--plaintext", "--log-level", "gatepost=loud", "--config"];
    let (code, stdout, stderr) = ended(gatepost(&unclear, folder.path()));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.contains("--log-level \"gatepost=loud\" is not understood"), "{stderr}");
    for (source, missing) in
        [(&[][..], "--config"), (&["--source=file"], "--config"), (&["--source=etcd"], "-endpoint")]
    {
        let arguments = [&["serve", "--plaintext"], source, &["--uds"]].concat();
        let (code, _, stderr) = ended(gatepost(&arguments, folder.path()));
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(missing), "{stderr}");
    }
}

#[test]
fn register_prints_a_registration_or_rejects_the_hooks() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().join("gatepost.yaml");
    let register = ["register", "--form", "static", "--url", "https://127.0.0.1:9440", "--out"];
    let (code, stdout, stderr) = ended(gatepost(&register, &out));
    assert_eq!((code, &*stdout), (Some(0), ""), "{stderr}");
    assert!(stderr.contains("--ca-file"), "{stderr}");
    let written = fs::read_to_string(&out).expect("written");
    assert!(written.contains("name: gatepost.static.k8s.io") && written.contains("/validate"), "{written}");

    let mutating = [&register[..5], &["--kind", "mutating", "--out"]].concat();
    let (code, _, stderr) = ended(gatepost(&mutating, &out));
    assert_eq!(code, Some(0), "{stderr}");
    let written = fs::read_to_string(&out).expect("written");
    assert!(written.contains("kind: MutatingWebhookConfiguration") && written.contains("/mutate"), "{written}");

    let plain = ["register", "--form", "api", "--url", "http://127.0.0.1:9440", "--out"];
    assert_eq!(ended(gatepost(&plain, &out)).0, Some(2));
}

#[test]
fn service_registration_excludes_gatepost_namespaces() {
    let folder = tempfile::tempdir().expect("folder");
    let register = ["register", "--service", "policy/gatepost"];
    let with = |more: &[&str]| ended(gatepost(&[&register[..], more, &["--config"]].concat(), folder.path()));
    fs::write(folder.path().join("gatepost.yaml"), document(&[hook("a.example.com", "grpc://127.0.0.1:1", "")]))
        .expect("written");
    let excluded = |more: &[&str]| {
        let (code, stdout, stderr) = with(more);
        assert_eq!(code, Some(0), "{stderr}");
        let object: serde_json::Value = serde_saphyr::from_str(&stdout).expect("YAML");
        let webhook = &object["webhooks"][0];
        assert_eq!(webhook["clientConfig"]["service"]["namespace"], "policy", "{stdout}");
        webhook["namespaceSelector"]["matchExpressions"][0]["values"].to_string()
    };
    assert_eq!(excluded(&[]), r#"["kube-node-lease","kube-system","policy"]"#);
    assert_eq!(excluded(&["--include-kube-system"]), r#"["kube-node-lease","policy"]"#);
    assert_eq!(with(&["--form", "static"]).0, Some(2));
    assert_eq!(with(&["--url", "https://127.0.0.1:9440"]).0, Some(2));
    let out = folder.path().join("out.yaml");
    let (code, _, stderr) = ended(gatepost(&[&register[..], &["--out"]].concat(), &out));
    assert_eq!((code, stderr.contains("--failure-policy Ignore")), (Some(1), true), "{stderr}");
    let (code, _, stderr) = ended(gatepost(&[&register[..], &["--failure-policy", "Ignore", "--out"]].concat(), &out));
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn certificates_are_made_once_and_renewed_on_request() {
    let folder = tempfile::tempdir().expect("folder");
    let (out, file) = (folder.path().join("tls"), |name: &str| folder.path().join("tls").join(name));
    let run = |more: &[&str]| {
        let arguments = ["certificates", "--service", "policy/gatepost", "--settle", "0s"];
        let (code, stdout, stderr) = ended(gatepost(&[&arguments[..], more, &["--out"]].concat(), &out));
        assert!(!stdout.contains("PRIVATE KEY") && !stderr.contains("PRIVATE KEY"));
        (code, stderr)
    };
    let served = || fs::read_to_string(file("tls.crt")).expect("a certificate");
    assert_eq!(run(&[]).0, Some(0));
    let first = served();
    assert_eq!(run(&["--once"]).0, Some(0));
    assert_eq!(served(), first, "it is due for nothing");
    assert_eq!(run(&["--renew"]).0, Some(0));
    assert!(served() != first && !file("next.key").exists());
    let authorities = fs::read_to_string(file("ca.crt")).expect("a bundle");
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2, "a replica may still serve the first");
    let second = served();
    assert_eq!(run(&["--name", "other.example.com"]).0, Some(0));
    assert_ne!(served(), second, "it lacked a name");

    assert_eq!(run(&["--once", "--watch"]).0, Some(2));
    assert_eq!(run(&["--lifetime", "1s"]).0, Some(2));
    let arguments = ["certificates", "--service", "policy/gatepost", "--lifetime", "7m", "--settle", "30s", "--out"];
    let (code, _, stderr) = ended(gatepost(&arguments, &out));
    assert_eq!((code, stderr.contains("give --lifetime 7m 30s or longer")), (Some(2), true), "{stderr}");
    fs::remove_file(file("tls-ca.crt")).expect("removed");
    let (code, stderr) = run(&[]);
    assert_eq!((code, stderr.contains("has not made")), (Some(1), true), "{stderr}");
}

#[test]
fn register_sends_only_requests_that_the_hooks_want() {
    let folder = tempfile::tempdir().expect("folder");
    let register = ["register", "--form", "api", "--url", "https://127.0.0.1:9440", "--config"];
    let (code, _, stderr) = ended(gatepost(&register, folder.path()));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no hook with a rule"), "{stderr}");
    fs::write(folder.path().join("gatepost.yaml"), document(&[TWO_PROBLEMS.to_owned()])).expect("written");
    let (code, _, stderr) = ended(gatepost(&register, folder.path()));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("problems (2)"), "{stderr}");
    fs::write(folder.path().join("gatepost.yaml"), document(&[hook("a.example.com", "grpc://127.0.0.1:1", "")]))
        .expect("written");
    let (code, stdout, _) = ended(gatepost(&register, folder.path()));
    assert_eq!(code, Some(0));
    assert!(stdout.contains("# rules: the union of those of the hooks in"), "{stdout}");
}

#[test]
fn import_that_cannot_read_the_cluster_writes_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let (absent, out) = (folder.path().join("absent").display().to_string(), folder.path().join("out"));
    let (code, stdout, stderr) = ended(gatepost(&["import", "--kubeconfig", &absent], &out));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.contains("cannot be read") && stderr.lines().count() == 1, "{stderr}");
    assert!(!out.exists());
}

/// A `gatepost serve` that has said it is ready.
struct Served {
    process: Child,
    stdout: BufReader<ChildStdout>,
    grpc: SocketAddr,
    uds: String,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(hooks: &[String]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let uds = folder.path().join("gate.sock").display().to_string();
        fs::write(folder.path().join("gatepost.yaml"), document(hooks)).expect("written");
        let serve =
            ["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--uds", &uds, "--config"];
        let mut command = gatepost(&serve, folder.path());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut said = |prefix: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("a line");
            line.strip_prefix(prefix).unwrap_or_else(|| panic!("{line:?} is not {prefix:?}")).trim().to_owned()
        };
        let grpc = said("listening tcp ").parse().expect("an address");
        assert_eq!(said("listening uds "), uds);
        said("listening admin ").parse::<SocketAddr>().expect("an address");
        assert_eq!(said("ready generation 1 hooks "), hooks.len().to_string());
        Self { process, stdout, grpc, uds, _folder: folder }
    }

    fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    }

    fn code(&mut self) -> Option<i32> {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("read to its end");
        assert_eq!(rest, "", "nothing else is printed");
        self.process.wait().expect("ends").code()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_stops_on_a_signal_and_leaves_no_socket() {
    let a = ScriptedHook::start(Script::Allow).await;
    let mut served = Served::start(&[hook("a.example.com", &a.url(), "")]);
    let caller = front::over(tokio::net::UnixStream::connect(&served.uds).await.expect("connects")).await;
    let request = message(create_pod("1", 100));
    caller.call(front::grpc(front::REVIEW), [request]).await.assert_allowed("1");
    served.terminate();
    assert_eq!(served.code(), Some(0));
    assert!(!Path::new(&served.uds).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_stops_at_once_on_a_second_signal() {
    let a = ScriptedHook::start(Script::Hang).await;
    let mut served = Served::start(&[hook("a.example.com", &a.url(), "timeout: 30s")]);
    let caller = front::caller(served.grpc).await;
    let request = message(create_pod("1", 100));
    let mut call = std::pin::pin!(caller.call(front::grpc(front::REVIEW), [request]));
    let drain = async {
        a.asked.notified().await;
        served.terminate();
        // It drains: the socket is closed, the review is not cut.
        front::until("draining", || std::net::TcpStream::connect(served.grpc).is_err()).await;
    };
    tokio::select! { _ = &mut call => panic!("the review ended"), () = drain => {} }
    assert!(served.process.try_wait().expect("looked").is_none());
    // One within a second is taken for the first. The review is not looked at any more: it breaks with the process.
    front::until("it ends", || {
        served.terminate();
        served.process.try_wait().expect("looked").is_some()
    })
    .await;
    assert_eq!(served.code(), Some(4));
}

#[test]
fn flags_of_another_source_exit_with_2() {
    let folder = tempfile::tempdir().expect("folder");
    for line in [
        "serve --plaintext --etcd-endpoint http://127.0.0.1:1 --config",
        "serve --plaintext --registration gatepost --config",
        "status --etcd-endpoint http://127.0.0.1:1 --config",
        "drain a.example.com --source etcd --etcd-endpoint http://127.0.0.1:1 --config",
        "break-glass --end --source kubernetes --config",
        "break-glass --for 1m --everything --reason  --config",
    ] {
        let (code, stdout, stderr) = ended(gatepost(&line.split(' ').collect::<Vec<_>>(), folder.path()));
        assert_eq!((code, &*stdout), (Some(2), ""), "{line}: {stderr}");
        assert!(stderr.contains("--help`") && stderr.lines().count() == 1, "{line}: {stderr}");
    }
}

#[test]
fn exec_plugin_that_prints_without_end_is_killed() {
    let folder = tempfile::tempdir().expect("folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let plugin = "{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh, args: [-c, \
                  'exec tr \"\\0\" a </dev/zero']}";
    let text = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], clusters: [{{name: c, cluster: \
         {{server: 'http://127.0.0.1:1'}}}}], users: [{{name: u, user: {{exec: {plugin}}}}}]}}"
    );
    fs::write(&kubeconfig, text).expect("written");
    let (code, stdout, stderr) = ended(gatepost(&["status", "--source", "kubernetes", "--kubeconfig"], &kubeconfig));
    assert_eq!((code, &*stdout), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("the exec plugin printed more than 1048576 bytes, and was ended"), "{stderr}");
}
