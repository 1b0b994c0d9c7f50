//! A whole sidecar in this process, over a folder of configuration of the test's own.

use std::{fs, path::Path, time::Duration};

use gatepost::{
    live::{LiveHook, Rotation},
    runtime::{Running, Settings, Sidecar, StatusPlace},
};
use tempfile::TempDir;

use super::gate::document;

/// A sidecar and the folder it reads every few milliseconds. Dropping it waits for callers to close their connections:
/// they must run on a thread of their own.
pub struct Configured {
    pub folder: TempDir,
    pub running: Running,
}

impl Configured {
    /// Starts with these hooks in force.
    pub fn start(hooks: &[String]) -> Self {
        Self::named("a", hooks)
    }

    /// The same, as the replica of that name.
    pub fn named(replica: &str, hooks: &[String]) -> Self {
        Self::publishing_to(replica, StatusPlace::Nowhere, hooks)
    }

    /// The same, which publishes its reports there.
    pub fn publishing_to(replica: &str, status_place: StatusPlace, hooks: &[String]) -> Self {
        Self::start_with(hooks, |settings| Settings { replica: replica.to_owned(), status_place, ..settings })
    }

    /// The same with other settings.
    pub fn start_with(hooks: &[String], change: impl FnOnce(Settings) -> Settings) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        replace(folder.path(), &document(hooks));
        let settings = Settings { read_every: Duration::from_millis(20), ..Settings::local(folder.path()) };
        let started = Self { running: Sidecar::start(change(settings)).expect("starts"), folder };
        started.until_read_again();
        started
    }

    /// A start is over with a second, equal read: until then no hook that is added is probed first. There is none where
    /// the test reads by itself.
    fn until_read_again(&self) {
        const UNCHANGED: &str = "gatepost_config_reads_total{outcome=\"unchanged\"} ";
        let read = || {
            let text = self.running.metrics.render().expect("metrics");
            text.lines().find_map(|line| line.strip_prefix(UNCHANGED)).is_some_and(|count| count != "0")
        };
        let began = std::time::Instant::now();
        while !read() && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
    }

    /// Puts this text in the place of the configuration.
    pub fn write(&self, text: &str) {
        replace(self.folder.path(), text);
    }

    /// State of the hook of that name now.
    pub fn hook(&self, name: &str) -> Option<LiveHook> {
        self.running.current.load().hooks.iter().find(|live| &*live.hook.name == name).cloned()
    }

    /// Is it asked?
    pub fn asks(&self, name: &str) -> bool {
        self.hook(name).is_some_and(|live| matches!(live.rotation, Rotation::Active { .. }))
    }
}

/// As careful people do it: written elsewhere, then renamed.
fn replace(folder: &Path, text: &str) {
    let new = folder.join(".new");
    fs::write(&new, text).expect("written");
    fs::rename(new, folder.join("gatepost.yaml")).expect("renamed");
}
