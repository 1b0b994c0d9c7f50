//! Signals: what tells a process to end.

use std::io;

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{Drained, Running};

/// How often a sidecar was told to stop before it had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Once: it drained.
    Once(Drained),
    /// Twice: the process should end now.
    Twice,
}

/// Announces that it runs, once signals are heard; waits until SIGTERM or SIGINT, then drains; a second signal does not
/// wait for that. What blocks is waited for no longer than the longest deadline and a second.
///
/// # Errors
/// Signals cannot be listened to, or the control plane ended by itself.
pub fn until_told(mut running: Running, announce: impl FnOnce(&Running)) -> io::Result<Told> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        announce(&running);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut running.ended => return Err(io::Error::other("the control plane ended by itself; see the log")),
        }
        tracing::info!("told to stop: draining; a second signal stops at once");
        running.begin_to_stop();
        tokio::select! {
            biased;
            drained = &mut running.ended => Ok(Told::Once(drained.unwrap_or(Drained { cut: None }))),
            _ = terminate.recv() => Ok(Told::Twice),
            _ = interrupt.recv() => Ok(Told::Twice),
            () = sleep(running.ends_within) => {
                tracing::error!("something blocks the end, and is not waited for");
                Ok(Told::Once(running.outcome.get().copied().unwrap_or(Drained { cut: None })))
            }
        }
    });
    if told.as_ref().is_ok_and(|told| *told == Told::Twice) {
        tracing::warn!("told to stop twice: reviews under way are cut");
    }
    // The process ends with the main thread; a thread that blocks must not hold it up, and the others have nothing to do.
    std::mem::forget(running);
    told
}
