//! Hints that the source may have changed: the next read then need not wait for its second.
//!
//! A hint proves nothing, and may be late or lost. What is in force comes from reads, and freshness counts from them.

use std::{
    collections::HashMap,
    convert::Infallible,
    ffi::OsStr,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all};
use inotify::{EventMask, Inotify, WatchMask};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::file::is_configuration;
use gatepost_etcd_client::{EtcdClient, EtcdError};
use gatepost_kube_support::{KubeClient, KubeError, Watch, WatchedChange};

/// Pause between two watches, so that a store that ends each at once is not flooded.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a watch that has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Further pause after a watch that the apiserver has refused: the kind is not installed, or Gatepost may not watch it.
const REFUSAL_PAUSE: Duration = Duration::from_secs(300);
/// Duration of one watch of a store. Bounds the time during which a watch that is dead without a sign gives no hints.
const WATCH_DURATION: Duration = Duration::from_secs(60);
const FOLDER_CHANGES: WatchMask = WatchMask::CLOSE_WRITE
    .union(WatchMask::CREATE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVE)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR);

/// Client and revision of the last good read of a cluster; `None` before the first.
pub(super) type ClusterRead = Option<(KubeClient, String)>;

/// Called with `true` for each change, and with `false` where a watch begins, since there may have been one before.
type Changed<'a> = &'a (dyn Fn(bool) + Send + Sync);

/// Objects that are watched for hints.
#[derive(Debug)]
pub(super) enum Hints {
    /// A file, or a folder of files.
    Files(PathBuf),
    /// The keys below a prefix.
    Etcd(EtcdClient, String),
    /// The objects at these API paths.
    Kubernetes(Vec<String>, watch::Receiver<ClusterRead>),
}

impl Hints {
    /// Returns the time without further hints after which a read may begin. Several files are often written one after
    /// the other, and a store changes at once.
    pub(super) fn quiet(&self) -> Duration {
        match self {
            Self::Files(_) => Duration::from_millis(50),
            Self::Etcd(..) | Self::Kubernetes(..) => Duration::ZERO,
        }
    }

    /// Returns the shortest time from a read that found a change to the next, if `every` is the time between reads
    /// without hints. Files that enforce less are confirmed by a second read, which must be as much later as without
    /// hints.
    pub(super) fn spacing(&self, every: Duration) -> Duration {
        match self {
            Self::Files(_) => every,
            Self::Etcd(..) | Self::Kubernetes(..) => Duration::ZERO,
        }
    }

    /// Watches until dropped, and calls `changed` for each change.
    pub(super) async fn watch(self, changed: Changed<'_>) -> Infallible {
        match self {
            Self::Files(path) => {
                let mut failure = None;
                loop {
                    pause(&path.display(), watch_files(&path, changed).await, &mut failure).await;
                }
            }
            Self::Etcd(client, prefix) => {
                let mut failure = None;
                loop {
                    pause(&prefix, watch_keys(&client, &prefix, changed).await, &mut failure).await;
                }
            }
            Self::Kubernetes(paths, read) => {
                let watches = paths.iter().map(|path| watch_objects(path, read.clone(), changed));
                join_all(watches).await;
                // The reader has stopped.
                std::future::pending().await
            }
        }
    }
}

/// Waits until a watch that has ended may begin again. Logs a failure when it differs from the one before.
async fn pause<E: fmt::Display>(watched: &impl fmt::Display, ended: Result<(), E>, failure: &mut Option<String>) {
    let new = ended.err().map(|error| error.to_string());
    if let Some(error) = new.as_ref().filter(|_| new != *failure) {
        tracing::info!(%watched, %error, "changes of the configuration are seen by the read of each second only");
    }
    *failure = new;
    sleep(if failure.is_some() { FAILURE_PAUSE } else { PAUSE }).await;
}

/// Watches the folder of the files. Returns once it has been moved or deleted.
async fn watch_files(path: &Path, changed: Changed<'_>) -> io::Result<()> {
    let watched = path.to_owned();
    // The folder may be on a network mount that hangs.
    let (inotify, name) = spawn_blocking(move || {
        let (folder, name) = match watched.is_dir() {
            true => (Some(&*watched), None),
            false => (watched.parent(), watched.file_name().map(ToOwned::to_owned)),
        };
        let folder = folder.filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let inotify = Inotify::init()?;
        inotify.watches().add(folder, FOLDER_CHANGES)?;
        io::Result::Ok((inotify, name))
    })
    .await??;
    let mut events = inotify.into_event_stream([0; 4096])?;
    changed(false);
    while let Some(event) = events.next().await {
        let event = event?;
        let written = event.name.as_deref();
        if event.mask.contains(EventMask::Q_OVERFLOW)
            || written.is_some_and(|written| concerns(written, name.as_deref()))
        {
            changed(true);
        }
        // The folder has gone, or the name is that of a folder now.
        let is_folder = event.mask.contains(EventMask::ISDIR) && name.is_some() && written == name.as_deref();
        if is_folder || event.mask.intersects(EventMask::IGNORED | EventMask::MOVE_SELF) {
            break;
        }
    }
    Ok(())
}

/// Returns true if a change of the file `written` may change the configuration: the file `name`, or a folder's files.
/// A mounted ConfigMap is replaced by a link whose name begins with two dots.
fn concerns(written: &OsStr, name: Option<&OsStr>) -> bool {
    written.as_bytes().starts_with(b"..")
        || name.map_or_else(|| is_configuration(Path::new(written)), |name| name == written)
}

/// Watches keys once.
async fn watch_keys(client: &EtcdClient, prefix: &str, changed: Changed<'_>) -> Result<(), EtcdError> {
    let mut watch = client.watch(prefix).await?;
    changed(false);
    let changes = async {
        loop {
            watch.changed().await?;
            changed(true);
        }
    };
    timeout(WATCH_DURATION, changes).await.unwrap_or(Ok(()))
}

/// Watches the objects at `path`, from the revision of the last good read on.
async fn watch_objects(path: &str, mut read: watch::Receiver<ClusterRead>, changed: Changed<'_>) {
    let (mut seen, mut failure) = (HashMap::new(), None);
    loop {
        let last = read.wait_for(Option::is_some).await.ok().and_then(|read| read.clone());
        let Some((client, revision)) = last else { return };
        let watch = client.watch_metadata(path, None, &revision, WATCH_DURATION).await;
        let refused = matches!(&watch, Err(KubeError::Refused { code: 403 | 404, .. }));
        let ended = match watch {
            Ok(watch) => timeout(WATCH_DURATION, pass_changes(watch, &mut seen, changed)).await.unwrap_or(Ok(())),
            // The kind is not installed, or the revision is no longer kept.
            Err(KubeError::Refused { code: 404 | 410, .. }) => {
                seen.clear();
                Ok(())
            }
            Err(error) => Err(error),
        };
        // A change may have been missed, so the next report of each object counts as one. A watch that only ran out has
        // missed nothing: its objects stay known, or each replica's next report would hold up requests as a change.
        if ended.is_err() {
            seen.clear();
        }
        pause(&path, ended, &mut failure).await;
        if refused {
            sleep(REFUSAL_PAUSE).await;
        }
    }
}

/// Calls `changed` for the changes of one watch. `seen` has the state of the objects by name: reports of replicas
/// change an object's status, which is no configuration.
async fn pass_changes(
    mut watch: Watch,
    seen: &mut HashMap<String, u64>,
    changed: Changed<'_>,
) -> Result<(), KubeError> {
    while let Some(change) = watch.next::<Value>().await? {
        let is_new = match change {
            WatchedChange::Changed(object) => {
                let (name, state) = state(&object);
                seen.insert(name, state) != Some(state)
            }
            WatchedChange::Gone(object) => {
                seen.remove(&state(&object).0);
                true
            }
            WatchedChange::Bookmark(_) => false,
            WatchedChange::Expired => {
                seen.clear();
                break;
            }
        };
        if is_new {
            changed(true);
        }
    }
    Ok(())
}

/// Returns an object's name, and a digest of the parts of its metadata that change with its configuration.
fn state(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let parts = ["uid", "generation", "deletionTimestamp", "labels", "annotations"];
    let mut digest = DefaultHasher::new();
    parts.map(|part| metadata[part].to_string()).hash(&mut digest);
    (name, digest.finish())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use gatepost_kube_support::KubeAccess;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::Notify,
    };

    use super::*;

    /// Watches objects for this time, at an apiserver with the given answers. Returns the number of watches, and
    /// of changes that were noticed.
    async fn watched(answer: impl Fn(usize) -> String, lasting: Duration) -> (usize, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}], "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
        fs::write(&path, config.to_string()).unwrap();
        let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
        let client = KubeClient::open(&access).await.unwrap();
        let (watches, noticed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let serve = async {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let answer = answer(watches.fetch_add(1, Relaxed));
                let _ = socket.read(&mut [0; 4096]).await.unwrap();
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let (_sender, read) = watch::channel(Some((client, "1".to_owned())));
        let count = |is_change| _ = noticed.fetch_add(usize::from(is_change), Relaxed);
        tokio::select! {
            () = serve => {}
            never = Hints::Kubernetes(vec!["/apis/a".to_owned()], read).watch(&count) => match never {},
            () = sleep(lasting) => {}
        }
        (watches.load(Relaxed), noticed.load(Relaxed))
    }

    fn http(status: u16, body: &str) -> String {
        format!("HTTP/1.1 {status} A\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_is_tried_again_after_minutes() {
        for (status, watches) in [(403, 2), (404, 2), (500, 32)] {
            assert_eq!(watched(|_| http(status, ""), Duration::from_secs(315)).await, (watches, 0), "{status}");
        }
    }

    /// Each watch but those that fail or expire begins with a report of the same object.
    #[tokio::test(start_paused = true)]
    async fn a_report_after_a_watch_that_ran_out_is_no_change() {
        let report = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","generation":1}}}"#;
        let expired = "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n";
        for (between, noticed) in
            [(http(200, ""), 1), (http(200, expired), 2), (http(410, ""), 2), (http(404, ""), 2), (http(500, ""), 2)]
        {
            let answer = |number| match number {
                1 => between.clone(),
                0 | 2 => http(200, &format!("{report}\n")),
                _ => http(403, ""),
            };
            assert_eq!(watched(answer, Duration::from_secs(500)).await.1, noticed, "{between}");
        }
    }

    #[tokio::test]
    async fn a_change_of_a_configuration_file_is_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "kind: x").unwrap();
        for watched in [folder.path(), &path] {
            let changed = Notify::new();
            let notify = |_| changed.notify_one();
            let change = async {
                changed.notified().await;
                fs::write(&path, "kind: y").unwrap();
                changed.notified().await;
                fs::rename(&path, folder.path().join("b")).unwrap();
                changed.notified().await;
                fs::rename(folder.path().join("b"), &path).unwrap();
                changed.notified().await;
            };
            tokio::select! {
                () = change => {}
                never = Hints::Files(watched.to_owned()).watch(&notify) => match never {},
            }
        }
    }

    #[test]
    fn files_beside_the_configuration_are_no_hint() {
        let concerns = |written: &str, name: Option<&str>| concerns(OsStr::new(written), name.map(OsStr::new));
        assert!(concerns("a.yaml", None) && concerns("..data", None) && concerns("a", Some("a")));
        assert!(!concerns("audit.jsonl", None) && !concerns("b", Some("a")) && concerns("..data", Some("a")));
    }

    #[test]
    fn a_report_in_the_status_is_no_hint() {
        let object = |generation: u64, reported: &str| {
            serde_json::json!({"metadata": {"name": "a", "generation": generation, "resourceVersion": reported,
                "managedFields": [{"time": reported}]}})
        };
        assert_eq!(state(&object(1, "a")), state(&object(1, "b")));
        assert_ne!(state(&object(1, "a")), state(&object(2, "a")));
    }
}
