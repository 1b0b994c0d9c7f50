//! Hook: a listener, and a script that is played on each connection.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    bytes::peer::{Asked, Peer, Socket, yes},
    notes::Notes,
};

/// A hook as the configuration names it, and its listener. It ends when it is dropped.
pub struct Hook {
    pub name: &'static str,
    /// The resource that it is asked about.
    pub resource: &'static str,
    url: String,
    policy: &'static str,
    timeout: &'static str,
    more: Value,
    stop: Arc<AtomicBool>,
    accepted: Accepted,
    accepting: Option<JoinHandle<()>>,
    /// The folder of a unix socket.
    _folder: Option<TempDir>,
}

/// The sockets of the connections that are played on, by a number of each.
type Accepted = Arc<Mutex<BTreeMap<usize, Socket>>>;

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> Option<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().ok()?;
                let _ = stream.set_nonblocking(false).and(stream.set_nodelay(true));
                Some(Socket::Tcp(stream))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().ok()?;
                let _ = stream.set_nonblocking(false);
                Some(Socket::Unix(stream))
            }
        }
    }
}

impl Hook {
    /// A hook over HTTP/2 in plaintext that is asked about pods; each connection gets a thread that plays the script.
    pub fn grpc(name: &'static str, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::over_tcp(name, "grpc", script)
    }

    /// The same over HTTP/1.1.
    pub fn http(name: &'static str, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::over_tcp(name, "http", script)
    }

    fn over_tcp(name: &'static str, scheme: &str, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        listener.set_nonblocking(true).expect("does not block");
        let address: SocketAddr = listener.local_addr().expect("an address");
        Self::listening(name, format!("{scheme}://{address}"), Listener::Tcp(listener), None, script)
    }

    /// The same over a unix socket.
    pub fn unix(name: &'static str, script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path: PathBuf = folder.path().join("hook.sock");
        let listener = UnixListener::bind(&path).expect("binds");
        listener.set_nonblocking(true).expect("does not block");
        let url = unix_url(&path);
        Self::listening(name, url, Listener::Unix(listener), Some(folder), script)
    }

    /// A hook at an address where nobody listens.
    pub fn absent(name: &'static str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
        let folder = tempfile::tempdir().expect("folder");
        let elsewhere = UnixListener::bind(folder.path().join("unused.sock")).expect("binds");
        elsewhere.set_nonblocking(true).expect("does not block");
        Self::listening(name, format!("grpc://{address}"), Listener::Unix(elsewhere), Some(folder), |_| {})
    }

    /// One that says yes to everything, as it should.
    pub fn good(name: &'static str, notes: &Notes) -> Self {
        let notes = notes.clone();
        Self::grpc(name, move |peer| approve_all(peer, name, &notes))
    }

    fn listening(
        name: &'static str,
        url: String,
        listener: Listener,
        folder: Option<TempDir>,
        script: impl Fn(Peer) + Send + Sync + 'static,
    ) -> Self {
        let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Accepted::default());
        let script = Arc::new(script);
        let accepting = thread::spawn({
            let (stop, accepted) = (Arc::clone(&stop), Arc::clone(&accepted));
            move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let Some(socket) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    let Ok(again) = socket.again() else { continue };
                    if let Ok(mut accepted) = accepted.lock() {
                        accepted.insert(number, again);
                    }
                    let (script, accepted) = (Arc::clone(&script), Arc::clone(&accepted));
                    thread::spawn(move || {
                        script(Peer::new(socket));
                        if let Some(socket) = accepted.lock().ok().and_then(|mut open| open.remove(&number)) {
                            socket.shut();
                        }
                    });
                }
            }
        });
        Self {
            name,
            resource: "pods",
            url,
            policy: "Fail",
            timeout: "2s",
            more: json!({}),
            stop,
            accepted,
            accepting: Some(accepting),
            _folder: folder,
        }
    }

    pub fn of(mut self, resource: &'static str) -> Self {
        self.resource = resource;
        self
    }

    pub fn ignored(mut self) -> Self {
        self.policy = "Ignore";
        self
    }

    pub fn within(mut self, timeout: &'static str) -> Self {
        self.timeout = timeout;
        self
    }

    /// With further keys.
    pub fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    /// Is it one without whose yes nothing may be allowed?
    pub fn must_approve(&self, resource: &str) -> bool {
        self.policy == "Fail" && self.resource == resource
    }

    /// Its entry in the configuration.
    pub fn entry(&self) -> Value {
        let mut entry = json!({
            "name": format!("{}.example.com", self.name),
            "clientConfig": {"url": self.url},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [self.resource]}],
            "failurePolicy": self.policy,
            "timeout": self.timeout,
            "sideEffects": "None",
        });
        for (key, value) in self.more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        entry
    }
}

fn unix_url(path: &Path) -> String {
    format!("unix://{}", path.display())
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for socket in self.accepted.lock().iter().flat_map(|accepted| accepted.values()) {
            socket.shut();
        }
    }
}

/// Plays the script behind the greeting of a connection.
pub fn greeted(script: impl Fn(Peer) + Send + Sync + 'static) -> impl Fn(Peer) + Send + Sync + 'static {
    move |mut peer: Peer| {
        if peer.greet(&[]).is_ok() {
            script(peer);
        }
    }
}

/// Greets, and says yes to everything.
pub fn approve_all(mut peer: Peer, name: &str, notes: &Notes) {
    if peer.greet(&[]).is_err() {
        return;
    }
    while let Ok(asked) = peer.asked() {
        if !approve(&mut peer, name, notes, &asked) {
            return;
        }
    }
}

/// Says yes, and notes that it did.
pub fn approve(peer: &mut Peer, hook: &str, notes: &Notes, asked: &Asked) -> bool {
    notes.approve(hook, &asked.uid);
    peer.answer(asked.stream, yes(&asked.uid))
}
