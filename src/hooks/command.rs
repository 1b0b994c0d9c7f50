//! Command: request to a worker's client.

use tokio::sync::oneshot;

use super::call::Call;
use crate::model::Unreachable;

/// Channel for the result of a probe: whether there is a connection.
pub(super) type Probe = oneshot::Sender<Result<(), Unreachable>>;

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
