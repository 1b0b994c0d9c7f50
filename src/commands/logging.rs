//! The log of a command that runs for long: lines on stderr, which hold up nobody. Never an object's content; the code
//! that logs sees to that.

use std::time::Duration;

use gatepost_operator::log_flags::Logging;

use crate::{
    runtime::threads::give_way,
    telemetry::log::{self, LogLines},
};

/// Bound on the time that the process waits at its end for its last log lines.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Writes the last lines, where a log was started, and where stderr takes them.
pub(super) fn close() {
    log::close(CLOSE_TIMEOUT);
}

/// Starts logging.
///
/// # Errors
/// The level is not understood, or the operating system gives us no thread.
pub(super) fn start(logging: &Logging) -> Result<(), String> {
    logging.send_to(|| LogLines)?;
    log::start(give_way).map_err(|error| format!("cannot start logging: {error}"))
}
