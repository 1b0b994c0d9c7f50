//! PendingCalls: calls and probes that wait for a connection.

use std::{future::pending, time::Duration};

use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep},
};

use super::{
    call::Call,
    command::{Command, Probe},
};
use crate::model::{CallFailure, Unreachable};

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

    /// Takes the commands there are, once there is one; `open` ends when there will be none. About every `pace`, calls
    /// that have waited too long are dropped.
    pub(super) async fn receive(&mut self, commands: &mut UnboundedReceiver<Command>, open: &mut bool, pace: Duration) {
        let waits = !self.calls.is_empty();
        tokio::select! {
            command = commands.recv(), if *open => self.take(command, commands, open),
            () = sleep(pace), if waits => self.drop_late(Instant::now()),
            else => pending().await,
        }
    }

    fn take(&mut self, first: Option<Command>, commands: &mut UnboundedReceiver<Command>, open: &mut bool) {
        let (mut next, mut abandoned) = (first, false);
        *open = next.is_some();
        while let Some(command) = next {
            match command {
                Command::Ask(call) => self.calls.push(call),
                Command::Probe(probe) => self.probes.push(probe),
                Command::CancelAbandoned => abandoned = true,
                #[cfg(test)]
                Command::Panic => panic!("a test said so"),
            }
            next = commands.try_recv().ok();
        }
        // Once for all of them: to look through the calls for each would take the square of their number.
        if abandoned {
            self.drop_abandoned();
        }
    }

    /// Lets go of calls whose time is over.
    fn drop_late(&mut self, now: Instant) {
        self.calls.retain(|call| call.deadline > now.into_std());
    }

    /// Lets go of those nobody waits for any more.
    pub(super) fn drop_abandoned(&mut self) {
        self.calls.retain(|call| !call.is_abandoned());
        self.probes.retain(|probe| !probe.is_closed());
    }

    /// There is a connection; the calls are for it to carry out.
    pub(super) fn connected(&mut self) -> Vec<Call> {
        self.probes.drain(..).for_each(report_connected);
        std::mem::take(&mut self.calls)
    }

    /// There is none, and this is why.
    pub(super) fn fail(&mut self, why: &Unreachable) {
        self.settle(&CallFailure::Connect(why.clone()));
        for probe in self.probes.drain(..) {
            // One that stopped waiting needs no result.
            let _ = probe.send(Err(why.clone()));
        }
    }

    /// There may be one, but the calls will not be answered on it. Probes wait on.
    pub(super) fn give_up(&mut self, why: &str) {
        self.settle(&CallFailure::Connection(why.to_owned()));
    }

    fn settle(&mut self, failure: &CallFailure) {
        for call in self.calls.drain(..) {
            call.responses.deliver(call.tag, Err(failure.clone().into()));
        }
    }
}

/// Reports to a probe that there is a connection.
pub(super) fn report_connected(probe: Probe) {
    // One that stopped waiting needs no result.
    let _ = probe.send(Ok(()));
}
