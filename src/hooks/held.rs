//! Held: who waits for a connection.

use tokio::sync::oneshot;

use super::call::Call;
use crate::model::{CallFailure, Unreachable};

/// Where it is told whether there is a connection.
pub(super) type Probe = oneshot::Sender<Result<(), Unreachable>>;

/// Who waits for a connection.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) calls: Vec<Call>,
    pub(super) probes: Vec<Probe>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.probes.is_empty()
    }

    /// Lets go of those nobody waits for any more.
    pub(super) fn sweep(&mut self) {
        self.calls.retain(|call| !call.is_abandoned());
        self.probes.retain(|probe| !probe.is_closed());
    }

    /// There is a connection; the calls are for it to carry out.
    pub(super) fn connected(&mut self) -> Vec<Call> {
        self.probes.drain(..).for_each(connected);
        std::mem::take(&mut self.calls)
    }

    /// There is none, and this is why.
    pub(super) fn fail(&mut self, why: &Unreachable) {
        for call in self.calls.drain(..) {
            call.inbox.deliver(call.tag, Err(CallFailure::Connect(why.clone())));
        }
        for probe in self.probes.drain(..) {
            // One that stopped waiting need not be told.
            let _ = probe.send(Err(why.clone()));
        }
    }
}

/// Tells a probe that there is a connection.
pub(super) fn connected(probe: Probe) {
    // One that stopped waiting need not be told.
    let _ = probe.send(Ok(()));
}
