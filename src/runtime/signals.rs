//! Signals that end a process or reopen its audit log.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};

use super::{
    running::{DrainResult, Running},
    threads::UnwaitedRuntime,
};
use crate::telemetry::Audit;
use gatepost_base::files::BlockingReads;

/// Time within which a further signal counts as the first: a supervisor signals the process and its group, or sends
/// SIGINT and SIGTERM, within milliseconds.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// Stop signals that a sidecar received before it had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignals {
    /// One signal: the sidecar drained.
    Once(DrainResult),
    /// Two signals: the process must end now.
    Twice,
}

/// Signals handled from the start on. SIGHUP never ends the process; SIGTERM and SIGINT end a process that does not
/// serve yet immediately.
#[derive(Debug)]
pub struct Signals {
    runtime: UnwaitedRuntime,
    hangup: Signal,
}

impl Signals {
    /// Registers the handler of SIGHUP.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn listen() -> io::Result<Self> {
        let runtime = UnwaitedRuntime::new()?;
        let hangup = {
            let _entered = runtime.enter();
            signal(SignalKind::hangup())?
        };
        Ok(Self { runtime, hangup })
    }

    /// Registers the stop signals, calls `announce`, waits for SIGTERM or SIGINT, and drains. A further signal after a
    /// second or more interrupts the drain. The drain waits for blocking work no longer than the longest deadline and a
    /// second. Each SIGHUP reopens the audit log.
    ///
    /// # Errors
    /// Returns an error if signals cannot be handled, or if the control plane ended by itself.
    pub fn run_until_stopped(self, mut running: Running, announce: impl FnOnce(&Running)) -> io::Result<StopSignals> {
        let Self { runtime, hangup } = self;
        let stopped = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let reopening = tokio::spawn(reopen(hangup, Arc::clone(&running.audit)));
            announce(&running);
            let mut stop_signal = async || {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            tokio::select! {
                () = stop_signal() => {}
                _ = &mut running.ended => return Err(io::Error::other("the control plane ended by itself; see the log")),
            }
            tracing::info!("shutting down: draining; another signal, a second later or more, stops at once");
            running.begin_to_stop();
            let stopped = tokio::select! {
                biased;
                drained = &mut running.ended => Ok(StopSignals::Once(drained.unwrap_or(DrainResult { cut: None }))),
                () = second_signal(stop_signal) => Ok(StopSignals::Twice),
                () = sleep(running.ends_within) => {
                    tracing::error!("something blocks the shutdown; ending without it");
                    Ok(StopSignals::Once(running.outcome.get().copied().unwrap_or(DrainResult { cut: None })))
                }
            };
            reopening.abort();
            stopped
        });
        if stopped.as_ref().is_ok_and(|stopped| *stopped == StopSignals::Twice) {
            tracing::warn!("second signal: stopping at once, reviews in flight are cut");
        }
        // The process ends with the main thread. A thread that blocks must not delay it, and the other threads have
        // nothing to do.
        std::mem::forget(running);
        stopped
    }
}

/// Waits for a signal that does not belong to the first one.
async fn second_signal(mut signal: impl AsyncFnMut()) {
    let first = Instant::now();
    loop {
        signal().await;
        if first.elapsed() >= SAME_SIGNAL_WITHIN {
            return;
        }
        tracing::info!("another signal within a second: taken for the same one");
    }
}

/// Reopens the audit log at each SIGHUP.
async fn reopen(mut hangup: Signal, audit: Arc<Audit>) {
    /// Timeout of a reopen. A file that is opened later is still used, without a log line.
    const WITHIN: Duration = Duration::from_secs(5);
    let reads = BlockingReads::default();
    while hangup.recv().await.is_some() {
        let audit = Arc::clone(&audit);
        match reads.run(WITHIN, move || audit.reopen()).await {
            Ok(Ok(true)) => tracing::info!("SIGHUP: reopened the audit log"),
            Ok(Ok(false)) => tracing::info!("SIGHUP: there is no audit log file to reopen; nothing to do"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "SIGHUP: cannot reopen the audit log; still writing to the former file")
            }
            Err(why) => tracing::warn!(%why, "SIGHUP: the audit log is not reopened yet; still trying"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, task::yield_now, time::advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn second_signal_within_a_second_is_ignored() {
        let (send, mut signals) = mpsc::unbounded_channel();
        let waiting = tokio::spawn(second_signal(async move || _ = signals.recv().await));
        yield_now().await;
        for millis in [1, 998] {
            advance(Duration::from_millis(millis)).await;
            send.send(()).expect("is waited for");
            yield_now().await;
            assert!(!waiting.is_finished(), "{millis}");
        }
        advance(Duration::from_millis(1)).await;
        send.send(()).expect("is waited for");
        waiting.await.expect("no panic");
    }
}
