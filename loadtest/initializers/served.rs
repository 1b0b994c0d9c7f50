//! Served: a sidecar whose Pods have initializers, and the process of these.

use std::{fs, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Settings, attach::TOKEN};
use crate::{
    Fallible,
    machine::Pinning,
    process::{Process, pinned},
    rig::{Sidecar, Workshop},
};

/// Initializers of Pods, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acting {
    pub(super) names: &'static [&'static str],
    /// Instances of each
    pub(super) instances: usize,
    /// Time between a task and its answer
    pub(super) delay: Duration,
    /// Number of tasks that are to be taken, as they say once they are
    pub(super) tell: usize,
}

impl Acting {
    /// No initializer.
    pub(super) const NONE: Self = Self { names: &[], instances: 0, delay: Duration::ZERO, tell: 0 };
}

/// Sidecar to measure. Everything ends when it is dropped.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) sidecar: Sidecar,
    pub(super) admin: SocketAddr,
    /// Process of the initializers, where there are any
    pub(super) initializers: Option<Process>,
    _folder: TempDir,
}

impl Served {
    /// Starts it, and waits until it is ready and all instances have their names.
    pub(super) fn start(workshop: &Workshop, settings: &Settings, pinning: Pinning, acting: Acting) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        let configuration = folder.path().join("initializers.json");
        fs::write(&configuration, document(acting.names).to_string())?;
        let mut command = pinned(pinning.sidecar, &workshop.gatepost);
        command.arg("serve").arg("--plaintext").arg("--config").arg(&configuration);
        let workers = if pinning.sidecar.is_some() { "1" } else { "2" };
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", workers]);
        command.arg("--audit-log").arg(folder.path().join("audit.jsonl")).args(&settings.product.arguments);
        let (sidecar, admin) = Sidecar::serving(Process::start("gatepost", command, folder.path())?)?;
        let mut initializers = None;
        if !acting.names.is_empty() {
            let mut command = pinned(pinning.load, &workshop.compare);
            command.arg("attach").arg("--to").arg(sidecar.address.to_string());
            for name in acting.names {
                command.args(["--name", name]);
            }
            command.args(["--instances", &acting.instances.to_string(), "--tell", &acting.tell.to_string()]);
            command.args(["--delay", &format!("{}ms", acting.delay.as_millis())]);
            let process = Process::start("initializers", command, folder.path())?;
            for _ in 0..acting.names.len() * acting.instances {
                process.line("attached ")?;
            }
            initializers = Some(process);
        }
        Ok(Self { sidecar, admin, initializers, _folder: folder })
    }
}

/// No hooks; each initializer must act on each Pod.
fn document(names: &[&str]) -> Value {
    let token: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let initializers = names.iter().map(|name| {
        json!({
            "name": name, "failurePolicy": "Fail", "timeout": "25s", "sideEffects": "None",
            "attach": {"tokenSha256": [token]},
        })
    });
    let mut document = json!({
        "apiVersion": "gatepost.dev/v1alpha1",
        "kind": "AdmissionControlConfiguration",
        "metadata": {"name": "initializers"},
        "externalAdmissionHooks": [],
    });
    if !names.is_empty() {
        let initializers: Vec<_> = initializers.collect();
        document["resourceInitializers"] = json!([{"resource": "pods", "initializers": initializers}]);
    }
    document
}
