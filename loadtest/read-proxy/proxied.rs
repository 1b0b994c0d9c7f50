//! Proxied: a running `gatepost read-proxy` before the cluster, for clients with tokens.

use std::process::Command;

use tempfile::TempDir;

use super::Settings;
use crate::{Fallible, apiserver::cluster::Cluster, certificates, process::Process};

/// Proxy to measure. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Proxied {
    /// The cluster as its clients reach it.
    pub(super) cluster: Cluster,
    _process: Process,
    _folder: TempDir,
}

impl Proxied {
    /// Starts it as shipped: ConfigMaps are opted in.
    pub(super) fn start(settings: &Settings, cluster: &Cluster) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        certificates::write(folder.path())?;
        let mut command = Command::new(settings.product.workshop()?.gatepost);
        command.args(["read-proxy", "--resources", "configmaps", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--tls-cert").arg(folder.path().join("server.pem"));
        command.arg("--tls-key").arg(folder.path().join("server.key"));
        command.arg("--upstream-kubeconfig").arg(settings.cluster.join("kubeconfig"));
        command.args(&settings.product.arguments);
        let process = Process::start("read-proxy", command, folder.path())?;
        let address = process.address("tcp")?;
        let cluster = Cluster::at(address, &folder.path().join("ca.pem"), cluster.token.clone(), process.pid())?;
        Ok(Self { cluster, _process: process, _folder: folder })
    }
}
