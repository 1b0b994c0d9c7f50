//! Command: what a worker's client is asked to do.

use super::{call::Call, pending_calls::Probe};

/// Command to a worker's client.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask this.
    Ask(Call),
    /// Some calls are abandoned; reset them.
    CancelAbandoned,
    /// Say whether the hook can be connected to, once that is known.
    Probe(Probe),
    /// Panic.
    #[cfg(test)]
    Panic,
}
