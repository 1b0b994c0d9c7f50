//! Real etcd: one node or several, on free ports of the loopback interface.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, reason = "test support")]

use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for anything that is going to happen.
pub const LONG: Duration = Duration::from_secs(60);
/// Interval of looks for an event that is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The program: `$ETCD`, one in the PATH, or one that `tests/e2e/kube/get.sh` has built.
pub fn find() -> Option<PathBuf> {
    let named = env::var_os("ETCD").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let installed = env::split_paths(&path).map(|folder| folder.join("etcd"));
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let built = cache.and_then(|cache| fs::read_dir(cache.join("gatepost")).ok()).into_iter().flatten();
    let built = built.filter_map(|entry| Some(entry.ok()?.path().join("etcd")));
    named.into_iter().chain(installed).chain(built).find(|program| program.is_file())
}

/// A cluster. Its nodes die with it.
pub struct Cluster {
    program: PathBuf,
    token: String,
    scheme: &'static str,
    more: Vec<String>,
    pub nodes: Vec<Node>,
}

/// One of them, dead or alive.
pub struct Node {
    name: String,
    pub client: u16,
    peer: u16,
    pub folder: TempDir,
    child: Option<Child>,
}

impl Cluster {
    /// Cluster of nodes, ready to be written to.
    pub fn start(program: &Path, count: usize) -> Self {
        let cluster = Self::begin(program, count, "http", &[]);
        cluster.wait_until_writable();
        cluster
    }

    /// One node that serves TLS with these options of its own; it may not be ready yet.
    pub fn over_tls(program: &Path, more: &[String]) -> Self {
        Self::begin(program, 1, "https", more)
    }

    fn begin(program: &Path, count: usize, scheme: &'static str, more: &[String]) -> Self {
        // Between our finding free ports and etcd's taking them, somebody else may.
        for _ in 0..10 {
            let nodes = (0..count).map(|index| Node::new(&format!("node{index}"))).collect();
            let program = program.to_owned();
            let mut cluster = Self { program, token: "first".to_owned(), scheme, more: more.to_vec(), nodes };
            (0..count).for_each(|index| cluster.start_node(index));
            if cluster.all_listen() {
                return cluster;
            }
        }
        panic!("etcd does not start; its log is above");
    }

    fn all_listen(&mut self) -> bool {
        let until = Instant::now() + LONG;
        loop {
            if let Some(ended) = (0..self.nodes.len()).find(|index| self.nodes[*index].has_ended()) {
                eprintln!("{}", self.nodes[ended].log());
                return false;
            }
            // With several nodes, none serves before a leader is chosen.
            if self.nodes.iter().all(|node| TcpStream::connect(("127.0.0.1", node.client)).is_ok()) {
                return true;
            }
            assert!(Instant::now() < until, "etcd does not listen: {}", self.nodes[0].log());
            thread::sleep(LOOK);
        }
    }

    /// Starts a node that is not running, over the data it has.
    pub fn start_node(&mut self, index: usize) {
        let peer = |node: &Node| format!("{}=http://127.0.0.1:{}", node.name, node.peer);
        let all = self.nodes.iter().map(peer).collect::<Vec<_>>().join(",");
        let url = self.url(index);
        let node = &mut self.nodes[index];
        let peer = format!("http://127.0.0.1:{}", node.peer);
        let log = fs::OpenOptions::new().create(true).append(true).open(node.folder.path().join("log")).unwrap();
        let child = Command::new(&self.program)
            .args(["--name", &node.name, "--data-dir"])
            .arg(node.data())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all, "--initial-cluster-token", &self.token])
            .args(&self.more)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("etcd runs");
        node.child = Some(child);
    }

    /// The same nodes over the same data, from now on over TLS with these options.
    pub fn go_over_to_tls(&mut self, more: &[String]) {
        (self.scheme, self.more) = ("https", more.to_vec());
        for index in 0..self.nodes.len() {
            self.kill(index);
            self.start_node(index);
        }
    }

    /// Kills a node, as a power failure does.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// Puts a new, empty cluster in the place of this one, at the same addresses.
    pub fn begin_anew(&mut self, token: &str) {
        self.token = token.to_owned();
        for index in 0..self.nodes.len() {
            self.kill(index);
            fs::remove_dir_all(self.nodes[index].data()).unwrap();
            self.start_node(index);
        }
        self.wait_until_writable();
    }

    pub fn url(&self, index: usize) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}", self.scheme, self.nodes[index].client)
    }

    pub fn urls(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|index| self.url(index)).collect()
    }

    /// The node that leads, as that one sees it.
    pub fn leader(&self) -> usize {
        wait("a leader", || {
            (0..self.nodes.len()).find(|index| {
                let status = self.post_to(*index, None, "/v3/maintenance/status", &json!({})).unwrap_or_default();
                status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
            })
        })
    }

    pub fn wait_until_writable(&self) {
        wait("a cluster that takes writes", || self.try_put("/ready", "").ok());
    }

    /// Puts a value; returns the revision. By way of etcd's JSON gateway: not the client that is tried here.
    pub fn put(&self, key: &str, value: &str) -> u64 {
        self.try_put(key, value).unwrap()
    }

    pub fn try_put(&self, key: &str, value: &str) -> Result<u64, String> {
        let question = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
        self.post("/v3/kv/put", &question).map(|answer| revision(&answer))
    }

    pub fn delete(&self, key: &str) -> u64 {
        revision(&self.post("/v3/kv/deleterange", &json!({ "key": STANDARD.encode(key) })).unwrap())
    }

    /// Asks the first node that answers.
    pub fn post(&self, path: &str, question: &Value) -> Result<Value, String> {
        self.post_as(None, path, question)
    }

    /// The same, with somebody's token.
    pub fn post_as(&self, token: Option<&str>, path: &str, question: &Value) -> Result<Value, String> {
        let mut said = Err("there is no node".to_owned());
        for index in 0..self.nodes.len() {
            said = self.post_to(index, token, path, question);
            if said.is_ok() {
                break;
            }
        }
        said
    }

    fn post_to(&self, index: usize, token: Option<&str>, path: &str, question: &Value) -> Result<Value, String> {
        let body = question.to_string();
        let token = token.map_or(String::new(), |token| format!("authorization: {token}\r\n"));
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: etcd\r\n{token}connection: close\r\ncontent-length: {}", body.len());
        let (head, body) = exchange(self.nodes[index].client, &format!("{head}\r\n\r\n{body}"))?;
        match head.contains(" 200 ") {
            true => serde_json::from_str(&body).map_err(|error| error.to_string()),
            false => Err(body),
        }
    }

    /// The sum of a counter of the first node, over all its lines that hold this text.
    pub fn counted(&self, text: &str) -> f64 {
        let request = "GET /metrics HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\r\n";
        let (_, body) = exchange(self.nodes[0].client, request).unwrap();
        body.lines()
            .filter(|line| line.contains(text))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

impl Node {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { name: name.to_owned(), client: free_port(), peer: free_port(), folder, child: None }
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until there is something.
pub fn wait<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what} never came");
        thread::sleep(LOOK);
    }
}

/// The range of all keys with this prefix, as a role is granted it.
pub fn range_of(prefix: &str) -> (String, String) {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    (STANDARD.encode(prefix), STANDARD.encode(end))
}

fn revision(answer: &Value) -> u64 {
    answer["header"]["revision"].as_str().unwrap().parse().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a request and takes what comes until the other end closes: head and body.
fn exchange(port: u16, request: &str) -> Result<(String, String), String> {
    let message = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(message)?;
    stream.set_read_timeout(Some(LONG)).map_err(message)?;
    stream.write_all(request.as_bytes()).map_err(message)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(message)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((head.to_owned(), if chunked { unchunked(body) } else { body.to_owned() }))
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    body
}
