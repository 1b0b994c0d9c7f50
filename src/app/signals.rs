//! Signals: what tells a process to end.

use std::io;

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
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
/// wait for that.
///
/// # Errors
/// Signals cannot be listened to, or the control plane ended by itself.
pub fn until_told(mut running: Running, announce: impl FnOnce(&Running)) -> io::Result<Told> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
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
        }
    });
    match told {
        Ok(Told::Twice) => {
            tracing::warn!("told to stop twice: reviews under way are cut");
            // The process ends with the main thread; its other threads are not waited for.
            std::mem::forget(running);
        }
        Ok(Told::Once(_)) | Err(_) => drop(running),
    }
    told
}
