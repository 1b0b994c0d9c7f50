//! Processes that hand a port over, and signals: under load no call is refused when one instance follows another, and
//! SIGHUP opens the audit log anew and does nothing else.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::support::{
    gate::{document, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use bytes::Bytes;
use http::Request;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
    time::timeout,
};

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(60);
const REVIEW: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop","name":"web","userInfo":{"username":"ann"},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}}}"#;

/// A `gatepost serve` that has said it is ready.
struct Served {
    process: Child,
    stdout: BufReader<ChildStdout>,
    tcp: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(folder: &Path, listen: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
        command.args(["serve", "--plaintext", "--admin", "127.0.0.1:0", "--listen", listen, "--config"]).arg(folder);
        command.args(more).env_remove("GATEPOST_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("runs");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut tcp = None;
        loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).expect("a line") > 0, "it ended");
            if let Some(address) = line.strip_prefix("listening tcp ") {
                tcp = Some(address.trim().parse().expect("an address"));
            }
            if line.starts_with("ready ") {
                break;
            }
        }
        Self { process, stdout, tcp: tcp.expect("printed") }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    }

    /// The exit code.
    fn ended(mut self) -> Option<i32> {
        let mut rest = String::new();
        while self.stdout.read_line(&mut rest).expect("read to its end") > 0 {}
        self.process.wait().expect("ends").code()
    }
}

fn configured(hooks: &[String]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("gatepost.yaml"), document(hooks)).expect("written");
    folder
}

/// Callers that call until they are stopped, and the errors of any of them.
struct Load {
    done: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    fn begin(address: SocketAddr, uds: &Path) -> Self {
        let mut load = Self { done: Arc::default(), answered: Arc::default(), callers: Vec::new() };
        for keeps in [true, true, true, false, false, false] {
            load.caller(move |load| over_http1(load, address, keeps));
        }
        for _ in 0..3 {
            load.caller(move |load| over_http2(load, address));
        }
        let uds = uds.to_owned();
        load.caller(move |load| over_a_socket(load, uds));
        load
    }

    fn caller<F: Future<Output = Result<(), String>> + Send + 'static>(&mut self, call: impl FnOnce(Going) -> F) {
        let going = Going { done: Arc::clone(&self.done), answered: Arc::clone(&self.answered) };
        self.callers.push(tokio::spawn(call(going)));
    }

    /// Waits for so many more answers; says what went wrong instead.
    async fn goes_on(&mut self, more: usize) {
        let wanted = self.answered.load(Relaxed) + more;
        let going = async {
            while self.answered.load(Relaxed) < wanted {
                if let Some(caller) = self.callers.iter_mut().find(|caller| caller.is_finished()) {
                    panic!("a call was refused: {:?}", caller.await);
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, going).await.expect("in time");
    }

    async fn end(self) {
        self.done.store(true, Relaxed);
        for caller in self.callers {
            timeout(LONG, caller).await.expect("in time").expect("joined").expect("no call was refused");
        }
    }
}

/// State of the load that a caller sees.
struct Going {
    done: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
}

impl Going {
    fn on(&self) -> bool {
        !self.done.load(Relaxed)
    }

    fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }
}

/// One review; true where the connection may be used again.
async fn post<Io: AsyncReadExt + AsyncWriteExt + Unpin>(io: &mut Io) -> Result<bool, String> {
    let shown = |error: std::io::Error| error.to_string();
    let head = "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ";
    io.write_all(format!("{head}{}\r\n\r\n{REVIEW}", REVIEW.len()).as_bytes()).await.map_err(shown)?;
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if length == Some(body.len()) {
                let allowed = head.starts_with("http/1.1 200") && body.contains(r#""allowed":true"#);
                return if allowed { Ok(!head.contains("connection: close")) } else { Err(text) };
            }
        }
        let mut some = [0; 4096];
        match io.read(&mut some).await.map_err(shown)? {
            0 => return Err(format!("hung up after {} bytes", answer.len())),
            read => answer.extend_from_slice(&some[..read]),
        }
    }
}

async fn over_http1(load: Going, address: SocketAddr, keeps: bool) -> Result<(), String> {
    while load.on() {
        let mut stream = TcpStream::connect(address).await.map_err(|error| format!("connecting: {error}"))?;
        while post(&mut stream).await.map_err(|error| format!("http/1.1, keeps {keeps}: {error}"))? {
            load.answered();
            if !keeps || !load.on() {
                break;
            }
        }
    }
    Ok(())
}

async fn over_a_socket(load: Going, path: std::path::PathBuf) -> Result<(), String> {
    while load.on() {
        let mut stream = UnixStream::connect(&path).await.map_err(|error| format!("connecting: {error}"))?;
        post(&mut stream).await.map_err(|error| format!("unix socket: {error}"))?;
        load.answered();
    }
    Ok(())
}

async fn over_http2(load: Going, address: SocketAddr) -> Result<(), String> {
    let mut without_answer = 0;
    while load.on() {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("connecting: {error}"))?;
        let (mut client, connection) =
            h2::client::handshake(stream).await.map_err(|error| format!("http/2, beginning: {error}"))?;
        let connection = tokio::spawn(connection);
        // An error here says that the connection takes no more, and nothing was sent.
        while load.on() && takes_another(&mut client).await {
            match call(&mut client).await {
                Ok(()) => {
                    load.answered();
                    without_answer = 0;
                }
                Err(error) if is_beyond_goaway(&error) && without_answer < 5 => {
                    without_answer += 1;
                    break;
                }
                Err(error) => return Err(format!("http/2: {error}")),
            }
        }
        connection.abort();
    }
    Ok(())
}

/// One call, answered with OK.
async fn call(client: &mut h2::client::SendRequest<Bytes>) -> Result<(), h2::Error> {
    let head = Request::post("http://a/gatepost.v1.Admission/Review").header("content-type", "application/grpc");
    let (response, mut body) = client.send_request(head.body(()).expect("a head"), false)?;
    // Where the call has ended meanwhile, the response has the reason.
    let _ = body.send_data(message(create_pod("u", 200)), true);
    let mut response = response.await?.into_body();
    while let Some(data) = response.data().await {
        data?;
    }
    let trailers = response.trailers().await?.unwrap_or_default();
    assert_eq!(trailers.get("grpc-status").map(http::HeaderValue::as_bytes), Some(&b"0"[..]), "{trailers:?}");
    Ok(())
}

/// Is the call one that the server, as its GOAWAY says, has not looked at and will not? Every client asks again on
/// another connection then (RFC 9113 §6.8). h2's client answers the PING that follows the first GOAWAY before it
/// writes a request that was begun in the same moment, so that the server takes the request for a later one.
/// A call that was looked at and then cut off has another error: that of a connection that ended.
fn is_beyond_goaway(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
}

async fn takes_another(client: &mut h2::client::SendRequest<Bytes>) -> bool {
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_to_another_instance_refuses_no_call() {
    let asked = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &asked.url(), "")]);
    let uds = folder.path().join("gate.sock");
    let shared = ["--reuse-port", "--uds", uds.to_str().expect("UTF-8")];
    let mut serving = Served::start(folder.path(), "127.0.0.1:0", &shared);
    let address = serving.tcp;
    let mut load = Load::begin(address, &uds);
    load.goes_on(300).await;
    for signal in ["-TERM", "-INT", "-TERM", "-INT", "-TERM"] {
        let (of, more) = (folder.path().to_owned(), shared.map(str::to_owned));
        let next = move || Served::start(&of, &address.to_string(), &more.each_ref().map(String::as_str));
        let next = tokio::task::spawn_blocking(next).await.expect("starts");
        let former = std::mem::replace(&mut serving, next);
        former.signal(signal);
        assert_eq!(tokio::task::spawn_blocking(|| former.ended()).await.expect("ends"), Some(0), "{signal}");
        load.goes_on(300).await;
    }
    load.end().await;
    serving.signal("-TERM");
    assert_eq!(serving.ended(), Some(0));
    assert!(!uds.exists(), "the last one takes it along");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_reopens_the_audit_log_and_does_nothing_else() {
    let asked = ScriptedHook::start(Script::Allow).await;
    let folder = configured(&[hook("a.example.com", &asked.url(), "")]);
    let logs = tempfile::tempdir().expect("folder");
    let [log, rotated] = ["audit.jsonl", "audit.jsonl.1"].map(|name| logs.path().join(name));
    let mut served = Served::start(folder.path(), "127.0.0.1:0", &["--audit-log", log.to_str().expect("UTF-8")]);
    let mut stream = TcpStream::connect(served.tcp).await.expect("connects");
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        let waiting = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
    };
    assert_eq!(post(&mut stream).await, Ok(true));
    until("the first line is written", &|| lines(&log) == 1).await;
    fs::rename(&log, &rotated).expect("rotated");
    served.signal("-HUP");
    until("there is a new file", &|| log.exists()).await;
    assert_eq!(post(&mut stream).await, Ok(true), "the same connection serves on");
    until("the second line is written", &|| lines(&log) == 1).await;
    assert_eq!(lines(&rotated), 1);
    assert!(served.process.try_wait().expect("looked").is_none());
    served.signal("-INT");
    assert_eq!(served.ended(), Some(0));
}
