//! Certificates: rereads our own TLS files at the interval of the configuration, and warns of certificates that expire
//! soon. The TLS files of hooks are part of the configuration and are read with it: see `source`.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustc_hash::FxHashMap;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    live::Current,
    telemetry::{Metrics, TlsReload},
};
use gatepost_api::Hook;
use gatepost_base::files::{BlockingReads, ReadFailure};
use gatepost_tls::{Expiry, FileCheck, Reminder, ServerTls, expiry};

/// Timeout of reading the TLS files.
const FILES_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Certificates in use, with their expiry.
#[derive(Debug)]
pub(super) struct Certificates {
    tls: Option<Arc<ServerTls>>,
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    reminder: Reminder,
    /// Reads of the files, including those that hang.
    reads: BlockingReads,
    /// Failure of the last read, which was logged; `None` if it succeeded.
    read_failure: Option<ReadFailure>,
    /// Generation from which `hooks` was built.
    generation: Option<u64>,
    /// Hooks called over TLS, with the expiry of the certificate that expires first.
    hooks: Vec<(Arc<Hook>, Option<Expiry>)>,
}

impl Certificates {
    pub(super) fn new(tls: Option<Arc<ServerTls>>, current: Arc<Current>, metrics: Arc<Metrics>) -> Self {
        Self {
            tls,
            current,
            metrics,
            reminder: Reminder::default(),
            reads: BlockingReads::default(),
            read_failure: None,
            generation: None,
            hooks: Vec::new(),
        }
    }

    /// Rereads the files at the interval `every`, until dropped.
    pub(super) async fn watch(mut self, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            if let Some(tls) = self.tls.clone() {
                // A read may hang on a broken mount; it must block neither the control plane nor the next read.
                self.on_read(self.reads.run(FILES_READ_TIMEOUT, move || tls.reload(SystemTime::now())).await);
            }
            self.remind(SystemTime::now());
        }
    }

    fn on_read(&mut self, looked: Result<FileCheck, ReadFailure>) {
        let logged = std::mem::replace(&mut self.read_failure, looked.as_ref().err().copied());
        match looked {
            Ok(FileCheck::Same | FileCheck::Rejected { news: false, .. }) => {}
            Ok(FileCheck::Replaced) => {
                tracing::info!("the TLS files have changed; new connections use them");
                self.metrics.record_tls_reload(TlsReload::Replaced);
            }
            Ok(FileCheck::Rejected { error, news: true }) => {
                let fix = error.fix();
                tracing::warn!(%error, fix, "the changed TLS files are not valid; the last good ones stay in use");
                self.metrics.record_tls_reload(TlsReload::Rejected);
            }
            Err(why) if logged == Some(why) => {}
            Err(why) => tracing::warn!(%why, "cannot read the TLS files; the last good ones stay in use"),
        }
    }

    fn remind(&mut self, now: SystemTime) {
        let generation = self.current.load();
        if self.generation != Some(generation.number) {
            // Reading certificates is slow, and most hooks are unchanged.
            let before: FxHashMap<_, _> = self.hooks.iter().map(|(hook, end)| (Arc::as_ptr(hook), end)).collect();
            let known = |hook: &Arc<Hook>| before.get(&Arc::as_ptr(hook)).copied().cloned();
            let secured =
                generation.hooks.iter().map(|live| &live.target.entry).filter(|hook| hook.endpoint.tls.is_some());
            let end = |hook: &Arc<Hook>| known(hook).unwrap_or_else(|| expiry::of_hook(hook));
            self.hooks = secured.map(|hook| (Arc::clone(hook), end(hook))).collect();
            self.generation = Some(generation.number);
        }
        let own = self.tls.as_deref().map(ServerTls::expiries).unwrap_or_default();
        let all: Vec<Expiry> = own.into_iter().chain(self.hooks.iter().filter_map(|(_, end)| end.clone())).collect();
        for expiry in self.reminder.due(&all, now) {
            let end = humantime::format_rfc3339_seconds(expiry.end);
            if expiry.left(now) > 0.0 {
                tracing::warn!(certificate = expiry.certificate, %end, "a certificate expires within 14 days; \
                                                                        renew it");
            } else {
                tracing::error!(certificate = expiry.certificate, %end, "a certificate has expired; renew it");
            }
        }
        self.metrics.set_ends(all.into_iter().map(|expiry| (expiry.certificate, expiry.end)).collect());
    }
}
