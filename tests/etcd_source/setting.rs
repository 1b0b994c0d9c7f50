//! Shared parts of the cases: places, sources, sidecars, and waiting.

use std::{
    num::NonZeroUsize,
    path::Path,
    time::{Duration, Instant},
};

use gatepost::{
    runtime::{Running, Settings, Sidecar},
    source::{Contents, EtcdLocation, ReadError, Source, SourceLocation},
};
use gatepost_etcd_client::EtcdAccess;
use tokio::runtime::{Builder, Runtime};

use crate::{
    etcd::{LONG, wait},
    support::gate,
};

pub(crate) const PREFIX: &str = "/gatepost/config/";

/// Place at these endpoints, without credentials.
pub(crate) fn place(endpoints: Vec<String>) -> EtcdLocation {
    of(EtcdAccess { endpoints, ..EtcdAccess::default() })
}

pub(crate) fn of(access: EtcdAccess) -> EtcdLocation {
    EtcdLocation { access, prefix: PREFIX.to_owned(), files: None }
}

/// A source, and the runtime that it lives on.
pub(crate) struct Reader {
    runtime: Runtime,
    source: Source,
}

impl Reader {
    pub(crate) fn open(place: EtcdLocation) -> Self {
        let runtime = runtime();
        let source = runtime.block_on(SourceLocation::Etcd(place).open()).expect("opens");
        Self { runtime, source }
    }

    /// One read. A second is between two of them, as in life.
    pub(crate) fn read(&mut self) -> Result<Contents, ReadError> {
        self.runtime.block_on(self.source.read())
    }

    /// Reads until one is good: a first read may find a node that has not woken up, or a connection that is slow to
    /// make.
    pub(crate) fn good(&mut self) -> Contents {
        self.until("a good read", |read| read.ok())
    }

    /// Reads until one fails with these words.
    pub(crate) fn fails_with(&mut self, words: &str) -> ReadError {
        let error = self.until(words, |read| read.err().filter(|error| error.to_string().contains(words)));
        assert!(!error.to_string().contains("hunter2"), "{error}");
        error
    }

    pub(crate) fn until<T>(&mut self, what: &str, take: impl Fn(Result<Contents, ReadError>) -> Option<T>) -> T {
        let until = Instant::now() + LONG;
        loop {
            let read = self.read();
            let message = format!("{read:?}");
            if let Some(taken) = take(read) {
                return taken;
            }
            assert!(Instant::now() < until, "{what} never came; the last read: {message}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A whole sidecar in this process that reads there once a second.
pub(crate) fn sidecar(place: EtcdLocation) -> Running {
    let free = "127.0.0.1:0".parse().unwrap();
    let settings = Settings {
        listen: free,
        admin: free,
        plaintext: true,
        workers: NonZeroUsize::MIN,
        ..Settings::of(SourceLocation::Etcd(place))
    };
    Sidecar::start(settings).expect("starts")
}

/// A configuration of one hook. Its address has no listener: it is never asked here.
pub(crate) fn configuration(hook: &str) -> String {
    gate::document(&[gate::hook(hook, "grpc://127.0.0.1:1", "")])
}

/// The hooks that are in force.
pub(crate) fn hooks(running: &Running) -> Vec<String> {
    running.current.load().hooks.iter().map(|live| live.hook.name.to_string()).collect()
}

pub(crate) fn until_hook(running: &Running, name: &str) {
    wait(&format!("the hook {name}"), || hooks(running).contains(&name.to_owned()).then_some(()));
}

pub(crate) fn names(contents: &Contents) -> Vec<&str> {
    contents.files.iter().map(|file| &*file.name).collect()
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    crate::tls::put(folder, name, text)
}
