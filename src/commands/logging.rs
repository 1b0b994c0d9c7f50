//! Log of long-running commands: lines on stderr, written by a thread of its own so that no command waits for stderr.
//! The code that logs ensures that no line has the content of an object.

use std::time::Duration;

use gatepost_operator::log_flags::Logging;

use crate::{
    runtime::threads::lower_priority,
    telemetry::log::{self, LogLines},
};

/// Maximum time that the process waits at its end for its last log lines.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Writes the remaining lines, if a log was started. Gives up after [`CLOSE_TIMEOUT`] if stderr blocks.
pub(super) fn close() {
    log::close(CLOSE_TIMEOUT);
}

/// Starts logging.
///
/// # Errors
/// A message, if the level is invalid or the operating system provides no thread.
pub(super) fn start(logging: &Logging) -> Result<(), String> {
    logging.send_to(|| LogLines)?;
    log::start(lower_priority).map_err(|error| format!("cannot start logging: {error}"))
}
