//! Sidecar: `gatepost serve` as shipped, its HTTPS front before the hooks of one variant.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{hooks::Hooks, programs::Programs, registration, service, task::Kind, variant::Variant};
use crate::{Fallible, process::Process, rig::wait_until_ready};

/// A running sidecar.
#[derive(Debug)]
pub(super) struct Sidecar {
    /// Address of gRPC and `POST /validate`, on one port
    pub(super) address: SocketAddr,
    /// Folder with its configuration
    config: PathBuf,
    process: Process,
}

impl Sidecar {
    /// Starts one before `hooks` and waits until it serves.
    pub(super) fn start(
        programs: &Programs,
        (variant, kind): (Variant, Kind),
        hooks: &Hooks,
        folder: &Path,
    ) -> Fallible<Self> {
        let config = folder.join(format!("config-{}", variant.as_str()));
        fs::create_dir(&config)?;
        put(&config, &registration::for_gatepost((variant, kind), &hooks.addresses, folder)?)?;
        let mut command = Command::new(programs.gatepost(variant));
        command.arg("serve").arg("--config").arg(&config);
        let listen = if variant.has_service() { service::own_address()? } else { Ipv4Addr::LOCALHOST.into() };
        command.args(["--listen", &SocketAddr::new(listen, 0).to_string(), "--admin", "127.0.0.1:0"]);
        command.arg("--tls-cert").arg(folder.join("server.pem")).arg("--tls-key").arg(folder.join("server.key"));
        if let Some(socket) = programs.socket.as_ref().filter(|_| variant.has_plugin()) {
            command.arg("--uds").arg(socket);
        }
        if variant.is_serial() {
            command.args(["--dispatch", "serial"]);
        }
        command.args(&programs.gatepost_arguments);
        let process = Process::start(&format!("gatepost-{}", variant.as_str()), command, folder)?;
        let address = process.address("tcp")?;
        wait_until_ready(process.address("admin")?)?;
        Ok(Self { address, config, process })
    }

    /// Has it call other hooks, sooner or later.
    pub(super) fn configure(&self, document: &str) -> Fallible<()> {
        put(&self.config, document)
    }

    /// Registration for it as `gatepost register` prints it, in JSON.
    pub(super) fn registration(
        &self,
        programs: &Programs,
        (variant, kind): (Variant, Kind),
        folder: &Path,
    ) -> Fallible<String> {
        let mut command = Command::new(programs.gatepost(variant));
        command.args(["register", "--form", "api", "--name", registration::NAME, "--kind", kind.as_str()]);
        match variant.has_service() {
            true => command.arg("--service").arg(format!("{}/{}", service::NAMESPACE, variant.as_str())),
            false => command.arg("--url").arg(format!("https://{}", self.address)),
        };
        command.arg("--ca-file").arg(folder.join("ca.pem")).arg("--config").arg(&self.config);
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("gatepost register: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let document: Value = serde_saphyr::from_slice(&output.stdout)?;
        Ok(document.to_string())
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// Puts the document into the folder, at once.
fn put(config: &Path, document: &str) -> Fallible<()> {
    let written = config.join(".hooks.yaml");
    fs::write(&written, document)?;
    Ok(fs::rename(written, config.join("hooks.yaml"))?)
}
