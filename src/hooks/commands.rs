//! Commands to a worker's client, and the calls and probes among them that wait for a connection.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::{sleep, sleep_until},
};

use super::call::Call;
use gatepost_api::{CallFailure, Unreachable};
use gatepost_base::clock::now;

/// Channel for the result of a probe: whether there is a connection.
pub(super) type Probe = oneshot::Sender<Result<(), Unreachable>>;

/// Command to a worker's client.
#[derive(Debug)]
pub(super) enum Command {
    /// Carry out this call.
    Call(Call),
    /// Reset abandoned calls.
    CancelAbandoned,
    /// Report whether the hook can be connected to, once that is known.
    Probe(Probe),
}

/// Calls and probes that wait for a connection.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    pub(super) calls: Vec<Call>,
    pub(super) probes: Vec<Probe>,
}

impl PendingCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.probes.is_empty()
    }

    /// Waits for a command, and takes all that have arrived. Sets `commands_open` to false once no further ones can
    /// arrive. About every `pace`, drops calls past their deadlines.
    pub(super) async fn receive(
        &mut self,
        commands: &mut UnboundedReceiver<Command>,
        commands_open: &mut bool,
        pace: Duration,
    ) {
        tokio::select! {
            command = commands.recv(), if *commands_open => self.take(command, commands, commands_open),
            () = sleep(pace), if !self.calls.is_empty() => self.drop_late(now()),
            else => pending().await,
        }
    }

    fn take(&mut self, first: Option<Command>, commands: &mut UnboundedReceiver<Command>, commands_open: &mut bool) {
        let (mut next, mut abandoned) = (first, false);
        *commands_open = next.is_some();
        while let Some(command) = next {
            match command {
                Command::Call(call) => self.calls.push(call),
                Command::Probe(probe) => self.probes.push(probe),
                Command::CancelAbandoned => abandoned = true,
            }
            next = commands.try_recv().ok();
        }
        // Once for all commands, or the time would grow with the square of the number of calls.
        if abandoned {
            self.drop_abandoned();
        }
    }

    /// Drops calls past their deadlines.
    fn drop_late(&mut self, now: Instant) {
        self.calls.retain(|call| call.deadline > now);
    }

    /// Drops abandoned calls and probes.
    pub(super) fn drop_abandoned(&mut self) {
        self.calls.retain(|call| !call.is_abandoned());
        self.probes.retain(|probe| !probe.is_closed());
    }

    /// Reports a connection to the probes, and returns the calls to send over it.
    pub(super) fn connected(&mut self) -> Vec<Call> {
        self.probes.drain(..).for_each(report_connected);
        std::mem::take(&mut self.calls)
    }

    /// Fails all calls and probes, as there is no connection.
    pub(super) fn fail(&mut self, why: &Unreachable) {
        self.settle(&CallFailure::Connect(why.clone()));
        for probe in self.probes.drain(..) {
            // A probe that stopped waiting needs no result.
            let _ = probe.send(Err(why.clone()));
        }
    }

    /// Fails all calls. Probes keep waiting.
    pub(super) fn fail_calls(&mut self, why: &str) {
        self.settle(&CallFailure::Connection(why.to_owned()));
    }

    fn settle(&mut self, failure: &CallFailure) {
        for call in self.calls.drain(..) {
            call.responses.deliver(call.tag, Err(failure.clone().into()));
        }
    }
}

/// Reports a connection to a probe.
pub(super) fn report_connected(probe: Probe) {
    // A probe that stopped waiting needs no result.
    let _ = probe.send(Ok(()));
}

/// Waits until `time`, or for ever if there is none.
pub(super) async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}
