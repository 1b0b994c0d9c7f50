//! A process that may open few files: a hook that hangs takes none of those that the configuration, the admin pages and
//! the other hooks need.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::front;
use crate::front::{LONG, REVIEW, admin_metric, grpc, until_metric};
use crate::support::{
    gate::{document, hook},
    http_hook::{HttpHook, HttpScript},
    reviews::{create_pod, message},
};
use tokio::time::timeout;

/// All files that the process may open.
const OPEN_FILES: usize = 300;
/// The most connections to one hook.
const MOST: usize = 64;

/// A `gatepost serve` process, killed with its handle.
struct Serve {
    child: Child,
    tcp: SocketAddr,
    admin: SocketAddr,
}

impl Serve {
    fn start(folder: &Path, log: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_gatepost"))
            .args(["serve", "--plaintext", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"])
            .arg("--config")
            .arg(folder)
            .env_remove("GATEPOST_LOG")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |role: &str| -> SocketAddr {
            let line = lines.next().expect("it says where it listens").unwrap();
            line.strip_prefix(&format!("listening {role} ")).expect(role).parse().unwrap()
        };
        let (tcp, admin) = (address("tcp"), address("admin"));
        Self { child, tcp, admin }
    }

    fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hung_hook_takes_no_open_file_that_others_need() {
    let (hung, good) = (HttpHook::plain(HttpScript::Hang).await, HttpHook::plain(HttpScript::Allow).await);
    let (folder, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let configure = |hooks: &[String]| {
        let (new, file) = (folder.path().join("new"), folder.path().join("a.yaml"));
        fs::write(&new, document(hooks)).unwrap();
        fs::rename(new, file).unwrap();
    };
    configure(&[hook("hung.example.com", &hung.url(), "timeout: 30s")]);
    let log = logs.path().join("log");
    let serve = Serve::start(folder.path(), &log);
    let text = || fs::read_to_string(&log).unwrap();
    // The log is written concurrently.
    front::until("it warns of too few files", || text().contains("raise the hard limit of RLIMIT_NOFILE")).await;

    let mut asked = Vec::new();
    for connection in 0..4 {
        let caller = front::caller(serve.tcp).await;
        for call in 0..100 {
            let (response, mut stream) = caller.begin(grpc(REVIEW)).await;
            let uid = format!("{connection}-{call}");
            stream.send_data(message(create_pod(&uid, 200)), true).unwrap();
            asked.push((response, stream));
        }
    }
    front::until("it has all connections it may have", || hung.seen().len() == MOST).await;
    until_metric(serve.admin, "gatepost_inflight_requests", |reviews| reviews >= 400.0).await;
    assert_eq!(admin_metric(serve.admin, "gatepost_hook_connections").await, MOST as f64);
    assert!(serve.open_files() < OPEN_FILES / 2, "{}", serve.open_files());

    // It is replaced by another while all of its calls hang.
    let generation = admin_metric(serve.admin, "gatepost_config_generation").await;
    configure(&[hook("good.example.com", &good.url(), "")]);
    until_metric(serve.admin, "gatepost_config_generation", |now| now > generation).await;
    let caller = front::caller(serve.tcp).await;
    let asked_anew = async {
        // The new one is asked once it has passed its probe.
        while good.seen().len() < 2 {
            let ended = caller.call(grpc(REVIEW), [message(create_pod("anew", 200))]).await;
            assert_eq!(ended.status, Some(0), "{ended:?}");
        }
    };
    timeout(LONG, asked_anew).await.expect("the other hook is asked");
    assert!(admin_metric(serve.admin, "gatepost_config_age_seconds").await < 5.0);
    assert_eq!(hung.seen().len(), MOST);
}

#[test]
fn programs_of_a_kubeconfig_start_with_the_usual_file_limit() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -Sn \"$(ulimit -Hn)\"; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_gatepost")])
        .args(["exec-plugin", "30", "sh", "-c", "ulimit -n"])
        .output()
        .unwrap();
    let limit: usize = String::from_utf8(output.stdout).unwrap().trim().parse().expect("a number");
    assert!(limit <= 1024, "{limit}");
}

/// Of 300 files hooks get 75, and each of 80 hooks is guaranteed four with two workers.
#[tokio::test]
async fn start_warns_of_more_hooks_than_connections() {
    let (folder, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hooks: Vec<_> =
        (0..80).map(|n| hook(&format!("h{n}.example.com"), &format!("grpc://127.0.0.1:{}", n + 1), "")).collect();
    fs::write(folder.path().join("a.yaml"), document(&hooks)).unwrap();
    let log = logs.path().join("log");
    let _serve = Serve::start(folder.path(), &log);
    let text = || fs::read_to_string(&log).unwrap();
    front::until("it warns of too few connections", || text().contains("by 980, which is always enough")).await;
    let text = text();
    let line = text.lines().find(|line| line.contains("by 980, which is always enough")).unwrap();
    for part in ["ERROR", "hooks=80", "connections=75", "missing=245", "calls to some hooks always fail"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
