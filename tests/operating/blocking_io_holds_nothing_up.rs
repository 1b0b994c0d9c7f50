//! Blocking surroundings of a sidecar hold up no review, and its end no longer than was promised: pipes without a
//! reader, files and names that hang, a plugin that does not end.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, PipeReader, Read, Write},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::front;
use crate::front::{Caller, LONG, REVIEW, admin_metric, admin_page, grpc, until, until_metric};
use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
    stall::Stall,
};
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
use prost::Message;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process},
};
use tokio::net::UnixStream;

/// A `gatepost serve` process, killed with its handle.
struct Serve(Child);

impl Serve {
    /// With a deadline of a second; the end may take another.
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
        command.args(["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"]);
        command.args(["--max-deadline", "1s", "--log-format", "json"]).args(arguments);
        command
    }

    /// Addresses of the sidecar, as it prints them on stdout: for callers and operators.
    fn addresses(&mut self) -> (SocketAddr, SocketAddr) {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let mut address = |role: &str| -> SocketAddr {
            loop {
                let line = lines.next().expect("it says where it listens").unwrap();
                if let Some(address) = line.strip_prefix(&format!("listening {role} ")) {
                    return address.parse().unwrap();
                }
            }
        };
        (address("tcp"), address("admin"))
    }

    /// Sends SIGTERM; its exit code. Anything that it waited for without end would be waited for here.
    async fn stop(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.ended().await
    }

    async fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        until("it has ended", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.and_then(|status| status.code())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both ends of a pipe that is full: a write to it blocks until somebody reads.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let blocking = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, blocking | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    while writer.write(b"\n").is_ok() {}
    fcntl_setfl(&writer, blocking).unwrap();
    (reader, writer.into())
}

/// Asks so many times; each is answered, with a yes.
async fn allowed(caller: &Caller, times: usize) {
    for _ in 0..times {
        let asked = caller.call(grpc(REVIEW), [message(create_pod("u", 200))]);
        let ended = tokio::time::timeout(LONG, asked).await.expect("in time");
        assert_eq!((ended.status, &*ended.message), (Some(0), ""));
        assert!(AdmissionReview::decode(&ended.body[5..]).unwrap().response.unwrap().allowed());
    }
}

/// A folder with this configuration.
fn configured(hooks: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), document(hooks)).unwrap();
    folder
}

#[tokio::test]
async fn unread_log_stops_no_review_and_reports_lost_lines() {
    let a = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &a.url(), "")]);
    let (mut unread, stderr) = full_pipe();
    let config = folder.path().to_str().unwrap();
    let mut command = Serve::command(&["--config", config, "--log-level", "trace"]);
    let mut serve = Serve::start(command.stdout(Stdio::piped()).stderr(stderr));
    drop(command);
    let (tcp, operators) = serve.addresses();
    let caller = front::caller(tcp).await;
    allowed(&caller, 50).await;
    let begun = tokio::time::Instant::now();
    while admin_metric(operators, "gatepost_log_lost_total").await == 0.0 {
        assert!(begun.elapsed() < LONG, "what does not fit is counted");
        allowed(&caller, 50).await;
    }
    assert!(admin_page(operators, "/readyz").await.starts_with("HTTP/1.1 200"));

    let reading = std::thread::spawn(move || {
        let mut shown = String::new();
        let _ = unread.read_to_string(&mut shown);
        shown
    });
    allowed(&caller, 1).await;
    until_metric(operators, "gatepost_log_lost_total", |lost| lost > 0.0).await;
    assert_eq!(serve.stop().await, Some(0));
    let shown = reading.join().unwrap();
    assert!(shown.contains("log lines were lost, since stderr was not read"), "what is missing is reported");
}

#[tokio::test]
async fn blocked_outputs_stop_neither_serving_nor_shutdown() {
    let a = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &a.url(), "")]);
    let (socket, config) = (folder.path().join("gate.sock"), folder.path().join("a.yaml"));
    let (_out, stdout) = full_pipe();
    let (_err, stderr) = full_pipe();
    let socket_path = socket.to_str().unwrap();
    let arguments = ["--config", config.to_str().unwrap(), "--uds", socket_path, "--audit-log", "-"];
    let mut serve = Serve::start(Serve::command(&arguments).stdout(stdout).stderr(stderr));
    until("it listens", || socket.exists()).await;
    let caller = front::over(UnixStream::connect(&socket).await.unwrap()).await;
    allowed(&caller, 200).await;
    assert_eq!(serve.stop().await, Some(0), "every review was finished");
}

#[tokio::test]
async fn hung_audit_pipe_stops_no_start_no_review_and_no_shutdown() {
    let a = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &a.url(), "")]);
    let pipe = folder.path().join("audit");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let config = folder.path().join("a.yaml");
    let arguments = ["--config", config.to_str().unwrap(), "--audit-log", pipe.to_str().unwrap()];
    for read in [false, true] {
        // Open at both ends, and never read.
        let held = read.then(|| OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
        let mut serve = Serve::start(Serve::command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()));
        let caller = front::caller(serve.addresses().0).await;
        // Some 300 bytes each: more than a pipe holds.
        allowed(&caller, 500).await;
        assert_eq!(serve.stop().await, Some(0), "every review was finished");
        drop(held);
    }
}

#[tokio::test]
async fn hung_reads_are_abandoned_and_a_good_one_ends_staleness() {
    let a = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &a.url(), "")]);
    let (config, beside) = (folder.path().join("a.yaml"), tempfile::tempdir().unwrap());
    let stall = Stall::new(beside.path());
    let mut command = Serve::command(&["--config", config.to_str().unwrap()]);
    stall.on(&mut command, &config, "nobody.invalid");
    let log = beside.path().join("log");
    let mut serve = Serve::start(command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap()));
    let (tcp, operators) = serve.addresses();
    let caller = front::caller(tcp).await;
    allowed(&caller, 1).await;

    stall.begin();
    until_metric(operators, "gatepost_config_reads_total{outcome=\"failed_hung\"}", |reads| reads >= 2.0).await;
    stall.end();
    until_metric(operators, "gatepost_config_age_seconds", |age| age < 1.0).await;
    allowed(&caller, 1).await;

    // Now for good: two more hang, and then no other is begun.
    stall.begin();
    until_metric(operators, "gatepost_config_reads_total{outcome=\"failed_hung\"}", |reads| reads >= 5.0).await;
    assert!(admin_page(operators, "/configz").await.contains("4 reads hang"), "it says so");
    assert_eq!(serve.stop().await, Some(0));
    let shown = fs::read_to_string(log).unwrap();
    assert!(shown.contains("4 reads hang"), "{shown}");
}

#[tokio::test]
async fn endless_name_lookup_does_not_delay_shutdown() {
    let hanging = "hangs.example.com";
    let entry = hook("a.example.com", &format!("grpc://{hanging}:9001"), "failurePolicy: Ignore\ntimeout: 100ms");
    let (folder, beside) = (configured(&[entry]), tempfile::tempdir().unwrap());
    let stall = Stall::new(beside.path());
    stall.begin();
    let config = folder.path().join("a.yaml");
    let mut command = Serve::command(&["--config", config.to_str().unwrap()]);
    stall.on(&mut command, Path::new("/nowhere"), hanging);
    let mut serve = Serve::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let caller = front::caller(serve.addresses().0).await;
    allowed(&caller, 2).await;
    assert_eq!(serve.stop().await, Some(0));
}

#[tokio::test]
async fn endless_credential_plugin_does_not_delay_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let (plugin, kubeconfig) = (folder.path().join("plugin"), folder.path().join("kubeconfig"));
    let begun = folder.path().join("begun");
    fs::write(&plugin, format!("#!/bin/sh\n: >{}\nexec sleep 20\n", begun.display())).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700)).unwrap();
    let exec = format!(
        "{{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}",
        plugin.display()
    );
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         users: [{{name: x, user: {{exec: {exec}}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n"
    );
    fs::write(&kubeconfig, text).unwrap();
    let arguments = ["--source", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut serve = Serve::start(Serve::command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()));
    serve.addresses();
    until("the plugin is asked", || begun.exists()).await;
    assert_eq!(serve.stop().await, Some(0));
}
