//! A restart that finds a worse configuration, or none, serves what was in force before it, and says so.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::front::until;
use crate::support::gate::{document, hook};
use gatepost::{
    rotate::OnInvalid,
    runtime::{Running, Settings, Sidecar, StartError},
};

struct Trial {
    folder: tempfile::TempDir,
    disk: tempfile::TempDir,
}

impl Trial {
    fn begin() -> Self {
        let trial = Self { folder: tempfile::tempdir().unwrap(), disk: tempfile::tempdir().unwrap() };
        trial.write("a", "one");
        trial.write("b", "two");
        trial
    }

    /// A file with one hook.
    fn write(&self, name: &str, called: &str) {
        let entry = hook(&format!("{called}.example.com"), "grpc://127.0.0.1:1", "");
        let text = document(&[entry]).replace("metadata: {name: test}", &format!("metadata: {{name: {name}}}"));
        assert!(text.contains(&format!("name: {name}")), "{text}");
        self.replace(name, &text);
    }

    fn replace(&self, name: &str, text: &str) {
        let new = self.folder.path().join(".new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.folder.path().join(format!("{name}.yaml"))).unwrap();
    }

    fn last_good(&self) -> PathBuf {
        self.disk.path().join("last-good")
    }

    async fn start(&self) -> Result<Running, StartError> {
        self.start_with(|settings| settings).await
    }

    async fn start_with(&self, change: impl FnOnce(Settings) -> Settings) -> Result<Running, StartError> {
        let settings = Settings {
            last_good: Some(self.last_good()),
            read_every: Duration::from_millis(20),
            ..Settings::local(self.folder.path())
        };
        let settings = change(settings);
        tokio::task::spawn_blocking(|| Sidecar::start(settings)).await.unwrap()
    }

    /// One that has run and kept what was in force.
    async fn ran(&self) {
        let running = self.start().await.expect("starts");
        until("it is kept", || running.health.status.last_good.get().is_some_and(|state| state.saved.is_some())).await;
        stop(running).await;
        assert_eq!(mode(&self.last_good()), 0o600);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

async fn stop(running: Running) {
    tokio::task::spawn_blocking(|| drop(running)).await.unwrap();
}

fn hooks(running: &Running) -> Vec<String> {
    let mut hooks: Vec<_> = running.current.load().hooks.iter().map(|live| live.hook.name.to_string()).collect();
    hooks.sort();
    hooks
}

fn in_use(running: &Running) -> Option<String> {
    Some(running.health.status.last_good.get()?.in_use.as_ref()?.why.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_keeps_the_last_good_state_of_an_invalid_document() {
    let trial = Trial::begin();
    trial.ran().await;
    trial.replace("a", "kind: nothing that is known\n");
    trial.write("c", "three");
    let running = trial.start().await.expect("starts");
    assert_eq!(hooks(&running), ["one.example.com", "three.example.com", "two.example.com"]);
    assert!(in_use(&running).is_some_and(|why| why.contains("cannot be served")));
    let rejected = running.health.status.rejected.get().expect("reported");
    assert_eq!((&*rejected.quarantined[0].document, rejected.quarantined[0].last_good_in_force), ("a.yaml", true));
    // Once it is mended, nothing of it is from the disk.
    trial.write("a", "four");
    until("it is in force", || hooks(&running).contains(&"four.example.com".to_owned())).await;
    assert_eq!((in_use(&running), running.health.status.rejected.get()), (None, None));
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_rejected_as_a_whole_leaves_the_one_in_force() {
    let trial = Trial::begin();
    trial.ran().await;
    for name in ["a", "b"] {
        fs::remove_file(trial.folder.path().join(format!("{name}.yaml"))).unwrap();
    }
    let running = trial.start().await.expect("starts");
    assert_eq!(hooks(&running), ["one.example.com", "two.example.com"]);
    assert!(in_use(&running).is_some_and(|why| why.contains("is rejected")));
    until("it is read again", || running.health.status.rejected.get().is_some_and(|rejected| rejected.is_whole()))
        .await;
    assert!(running.current.freshness().is_fresh(std::time::Instant::now()));
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn useless_last_good_file_changes_no_start() {
    let trial = Trial::begin();
    trial.ran().await;
    let good = fs::read(trial.last_good()).unwrap();
    for (what, bytes, wanted) in [
        (0o600, &b"#!/bin/sh\n"[..], "holds no last good configuration"),
        (0o600, &good[..good.len() / 2], "is truncated or damaged"),
        (0o644, &good[..], "chmod 0600"),
    ] {
        fs::write(trial.last_good(), bytes).unwrap();
        fs::set_permissions(trial.last_good(), fs::Permissions::from_mode(what)).unwrap();
        let running = trial.start_with(|settings| Settings { read_every: Duration::from_secs(3600), ..settings }).await;
        let running = running.expect("starts");
        let refused = running.health.status.last_good.get().unwrap().refused.clone().unwrap();
        assert!(refused.contains(wanted), "{refused}");
        assert_eq!((hooks(&running).len(), in_use(&running)), (2, None));
        stop(running).await;
    }
    trial.replace("a", "kind: nothing that is known\n");
    let error = trial.start().await.expect_err("nothing to serve").to_string();
    assert!(error.contains("a.yaml: "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_leaves_out_invalid_documents_by_flag() {
    let trial = Trial::begin();
    trial.replace("a", "kind: nothing that is known\n");
    assert!(matches!(trial.start().await, Err(StartError::Invalid(_))));
    let skip = |settings| Settings { on_invalid: OnInvalid::Skip, ..settings };
    let running = trial.start_with(skip).await.expect("starts");
    assert_eq!(hooks(&running), ["two.example.com"]);
    let rejected = running.health.status.rejected.get().expect("reported");
    assert_eq!((&*rejected.quarantined[0].document, rejected.quarantined[0].last_good_in_force), ("a.yaml", false));
    stop(running).await;
}
