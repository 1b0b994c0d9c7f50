//! Served: a sidecar over the hooks of one attack.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use serde_json::json;
use tempfile::TempDir;

use super::{Settings, hook::Hook};
use crate::{Fallible, process::Process, rig::Sidecar};

/// Measured sidecar process. It ends when it is dropped.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    sidecar: Sidecar,
    _folder: TempDir,
}

impl Served {
    /// Starts it and waits until it is ready.
    pub(super) fn start(gatepost: &Path, settings: &Settings, hooks: &[Hook]) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        let configuration = folder.path().join("hooks.json");
        let document = json!({
            "apiVersion": "gatepost.dev/v1alpha1",
            "kind": "AdmissionControlConfiguration",
            "metadata": {"name": "memory"},
            "externalAdmissionHooks": hooks.iter().map(Hook::entry).collect::<Vec<_>>(),
        });
        fs::write(&configuration, document.to_string())?;
        let mut command = Command::new(gatepost);
        command.arg("serve").arg("--plaintext").arg("--config").arg(&configuration);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"]);
        command.args(["--max-inflight-bytes", &format!("{}MiB", settings.budget)]);
        command.arg("--audit-log").arg(folder.path().join("audit.jsonl")).args(&settings.product.arguments);
        let (sidecar, _) = Sidecar::serving(Process::start("gatepost", command, folder.path())?)?;
        Ok(Self { address: sidecar.address, sidecar, _folder: folder })
    }

    pub(super) fn pid(&self) -> u32 {
        self.sidecar.pid()
    }
}
