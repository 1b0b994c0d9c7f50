//! Load: terms of one run of the generator.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{Sidecar, Workshop};
use crate::{Fallible, generate::Report, process::pinned, review::Subject, size::Size};

/// The generator's shapes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// This many in flight
    Closed(usize),
    /// This many a second
    Open(f64),
    /// This many, one at a time over one connection
    Sequence(usize),
    /// This many at once, over so many connections
    Burst(usize, usize),
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) shape: Shape,
    pub(crate) size: Size,
    pub(crate) subject: Subject,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    pub(crate) deadline: Duration,
    /// Mutate instead of Review, each time about a request of its own
    pub(crate) mutate: bool,
}

impl Load {
    /// Pods of `size` in this shape for `window`, after a short warm-up.
    pub(crate) fn new(shape: Shape, size: Size, window: Duration) -> Self {
        let deadline = Duration::from_secs(10);
        let warm_up = Duration::from_millis(300);
        Self { shape, size, subject: Subject::Pod, warm_up, window, deadline, mutate: false }
    }

    /// Starts the generator.
    pub(crate) fn start(&self, workshop: &Workshop, sidecar: &Sidecar) -> Fallible<Running> {
        let mut command = pinned(workshop.pinning.load, &workshop.compare);
        command.arg("generate").arg("--target").arg(sidecar.address.to_string());
        command.arg("--size").arg(self.size.to_string()).args(["--subject", self.subject.as_str()]);
        match self.shape {
            Shape::Closed(in_flight) => command.args(["--in-flight", &in_flight.to_string()]),
            Shape::Open(rate) => command.args(["--rate", &rate.to_string()]),
            Shape::Sequence(count) => command.args(["--connections", "1", "--sequence", &count.to_string()]),
            Shape::Burst(count, connections) => {
                command.args(["--burst", &count.to_string(), "--connections", &connections.to_string()])
            }
        };
        if self.mutate {
            command.arg("--mutate");
        }
        duration(&mut command, "--warm-up", self.warm_up);
        duration(&mut command, "--window", self.window);
        duration(&mut command, "--deadline", self.deadline);
        command.arg("--watch-pid").arg(sidecar.pid().to_string());
        if let Some(socket) = &sidecar.counts {
            command.arg("--watch-counts").arg(socket);
        }
        Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?))
    }
}

/// A generator at work.
pub(crate) struct Running(Child);

impl Running {
    /// Waits for it and reads what it measured.
    pub(crate) fn report(self) -> Fallible<Report> {
        let output = self.0.wait_with_output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn duration(command: &mut Command, option: &str, duration: Duration) {
    command.arg(option).arg(format!("{}us", duration.as_micros()));
}
