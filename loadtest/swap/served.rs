//! Served: hooks, and a sidecar that reads the folder.

use std::net::SocketAddr;

use tempfile::TempDir;

use super::{Configuration, Settings, configuration::HOOKS};
use crate::{
    Fallible,
    process::{Process, pinned},
    rig::{Sidecar, Workshop, metric},
};

/// Sidecar to measure. Everything ends when it is dropped.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) configuration: Configuration,
    pub(super) sidecar: Sidecar,
    admin: SocketAddr,
    _hooks: Process,
    _folder: TempDir,
}

impl Served {
    /// Starts hooks and the sidecar, and waits until it is ready.
    pub(super) fn start(workshop: &Workshop, settings: &Settings) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        let listeners = settings.hooks.div_ceil(HOOKS).max(1);
        let mut command = pinned(workshop.pinning.load, &workshop.compare);
        command.arg("hooks").arg("--count").arg(listeners.to_string());
        let hooks = Process::start("hooks", command, folder.path())?;
        let addresses = (0..listeners).map(|_| hooks.address("hook")).collect::<Fallible<Vec<_>>>()?;
        let objects = folder.path().join("objects");
        let configuration = Configuration::write(&objects, addresses, settings.matched, settings.layout())?;

        let mut command = pinned(workshop.pinning.sidecar, &workshop.gatepost);
        command.arg("serve").arg("--plaintext").arg("--config").arg(configuration.folder());
        let workers = if settings.unpinned { "2" } else { "1" };
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", workers]);
        command.arg("--audit-log").arg(folder.path().join("audit.jsonl")).args(&settings.product.arguments);
        let process = Process::start("gatepost", command, folder.path())?;
        let (sidecar, admin) = Sidecar::serving(process)?;
        Ok(Self { configuration, sidecar, admin, _hooks: hooks, _folder: folder })
    }

    /// The number of the generation in force: it counts the swaps.
    pub(super) fn generation(&self) -> Fallible<u64> {
        Ok(metric(self.admin, "gatepost_config_generation")? as u64)
    }
}
