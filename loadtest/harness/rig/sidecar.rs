//! Sidecar: one of the two sides, running.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{Setting, Workshop};
use crate::{
    Fallible,
    plan::Ours,
    process::{Process, pinned},
};

const READY: Duration = Duration::from_secs(15);

/// The two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Naive,
    Ours,
}

impl Side {
    /// As it is written in file names.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Ours => "ours",
        }
    }
}

/// A running sidecar.
#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) address: SocketAddr,
    /// Socket of its counts, in the counting build
    pub(crate) counts: Option<PathBuf>,
    process: Process,
}

impl Sidecar {
    pub(super) fn start(
        workshop: &Workshop,
        side: Side,
        setting: Setting,
        hooks: &[SocketAddr],
        folder: &Path,
    ) -> Fallible<Self> {
        let against = workshop.against.as_ref().filter(|_| side == Side::Naive && !setting.counted);
        let product = against.is_some() || (side == Side::Ours && workshop.ours == Ours::Gatepost);
        let program = match (setting.counted, against, product) {
            (true, ..) => &workshop.counted,
            (false, Some(against), _) => against,
            (false, None, true) => &workshop.gatepost,
            (false, None, false) => &workshop.compare,
        };
        let mut command = pinned(workshop.pinning.sidecar, program);
        let counts = setting.counted.then(|| folder.join(format!("{}.counts", side.as_str())));
        if let Some(socket) = &counts {
            command.env("GATEPOST_COUNTS_SOCKET", socket);
        }
        if product {
            product_arguments(&mut command, workshop, side, folder);
        } else {
            naive_arguments(&mut command, setting, hooks, folder);
        }
        let process = Process::start(side.as_str(), command, folder)?;
        let address = process.address("tcp")?;
        if product {
            wait_until_ready(process.address("admin")?)?;
        }
        Ok(Self { address, counts, process })
    }

    /// The product, started as its caller likes and ready; and where its admin pages are.
    pub(crate) fn serving(process: Process) -> Fallible<(Self, SocketAddr)> {
        let address = process.address("tcp")?;
        let admin = process.address("admin")?;
        wait_until_ready(admin)?;
        Ok((Self { address, counts: None, process }, admin))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// As shipped: metrics, deadlines, matching and audit on, on one worker as the naive side has one.
fn product_arguments(command: &mut Command, workshop: &Workshop, side: Side, folder: &Path) {
    command.arg("serve").arg("--plaintext").arg("--config").arg(folder.join("config.yaml"));
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"]);
    if !workshop.ours_arguments.iter().any(|argument| argument.starts_with("--audit-log")) {
        let name = if side == Side::Ours { "audit.jsonl" } else { "audit-against.jsonl" };
        command.arg("--audit-log").arg(folder.join(name));
    }
    command.args(&workshop.ours_arguments);
}

fn naive_arguments(command: &mut Command, setting: Setting, hooks: &[SocketAddr], folder: &Path) {
    command.arg("naive");
    for hook in hooks {
        command.arg("--hook").arg(hook.to_string());
    }
    if setting.tls {
        command.arg("--tls").arg(folder);
    }
}

/// Waits until `/readyz` says so.
pub(crate) fn wait_until_ready(admin: SocketAddr) -> Fallible<()> {
    let start = Instant::now();
    loop {
        let answer = ask_ready(admin).unwrap_or_else(|error| error.to_string());
        if answer.starts_with("HTTP/1.1 200") {
            return Ok(());
        }
        if start.elapsed() > READY {
            return Err(format!("/readyz never turned 200; last answer: {answer}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn ask_ready(admin: SocketAddr) -> Fallible<String> {
    page(admin, "/readyz", Duration::from_secs(1))
}

/// A metric as `/metrics` has it now; `name` with its labels.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> Fallible<f64> {
    let answer = page(admin, "/metrics", Duration::from_secs(5))?;
    let mut values = answer.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(values.next().ok_or_else(|| format!("/metrics has no {name}"))?.trim().parse()?)
}

fn page(admin: SocketAddr, path: &str, patience: Duration) -> Fallible<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
