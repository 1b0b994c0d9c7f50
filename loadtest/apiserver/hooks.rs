//! Hooks: one process of the Go program beside this, with a listener a hook.

use std::{
    io::Read,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use super::{task::Task, variant::Variant};
use crate::{Fallible, process::Process};

/// Running hooks, and the address at which they report how often each was asked.
#[derive(Debug)]
pub(super) struct Hooks {
    pub(super) addresses: Vec<SocketAddr>,
    counts: SocketAddr,
    process: Process,
}

impl Hooks {
    /// Starts `count` hooks of the kind that `variant` needs; `folder` has their certificate.
    pub(super) fn start(program: &Path, variant: Variant, task: &Task, count: usize, folder: &Path) -> Fallible<Self> {
        let mut command = Command::new(program);
        command.arg("-protocol").arg(variant.protocol()).arg("-count").arg(count.to_string());
        if !task.wait.is_zero() {
            command.arg("-wait").arg(format!("{}us", task.wait.as_micros()));
        }
        if let Some(patching) = task.patching {
            command.arg("-patching").arg(patching.to_string());
        }
        if variant.has_tls() {
            command.arg("-tls-cert").arg(folder.join("server.pem")).arg("-tls-key").arg(folder.join("server.key"));
        }
        let process = Process::start(&format!("hooks-{}", variant.as_str()), command, folder)?;
        let addresses = (0..count).map(|_| process.address("hook")).collect::<Fallible<Vec<_>>>()?;
        Ok(Self { addresses, counts: process.address("counts")?, process })
    }

    /// Calls of each since it began.
    pub(super) fn counts(&self) -> Fallible<Vec<u64>> {
        let mut stream = TcpStream::connect(self.counts)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut line = String::new();
        stream.read_to_string(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Their process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
