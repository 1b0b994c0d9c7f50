//! Saving: keeps the last good configuration on disk, beside everything else.

use std::{sync::Arc, time::SystemTime};

use tokio::{sync::watch, task::spawn_blocking};

use crate::{clock::BootMoment, live::Current, rotate::InForce, source::LastGoodFile};

/// Keeps the last good configuration on disk. A disk that hangs holds up this alone; what is newest is written next.
pub(super) struct Saving {
    pub(super) file: LastGoodFile,
    pub(super) current: Arc<Current>,
    pub(super) news: watch::Receiver<Option<InForce>>,
}

impl Saving {
    /// Until there is no sender of the configuration in force any more.
    pub(super) async fn run(mut self) {
        let mut saved = None::<String>;
        while self.news.changed().await.is_ok() {
            let Some(wanted) = self.news.borrow_and_update().clone() else { continue };
            let (file, is_saved) = (self.file.clone(), saved.as_ref() == Some(&wanted.digest));
            let digest = wanted.digest.clone();
            let writing = spawn_blocking(move || {
                // Without a boot id of the machine, no age is known.
                let read = BootMoment::of(wanted.read).unwrap_or_else(BootMoment::unknown);
                match is_saved {
                    true => file.confirm(read),
                    false => file.write(&wanted.kept, &wanted.digest, &wanted.revision.to_string(), read),
                }
            });
            let failure = match writing.await {
                Ok(written) => written.err().map(|error| error.to_string()),
                Err(panic) => Some(format!("writing it failed; this is a bug in gatepost: {panic}")),
            };
            saved = failure.is_none().then_some(digest);
            self.report(failure, is_saved);
        }
    }

    fn report(&self, failure: Option<String>, only_confirmed: bool) {
        let before = self.current.last_good().and_then(|state| state.failure.clone());
        match &failure {
            Some(why) if before.as_ref() != Some(why) => {
                tracing::warn!(
                    why,
                    "cannot write the last good configuration to disk; a restart would find an older one"
                );
            }
            None if before.is_some() => tracing::info!("the last good configuration is written to disk again"),
            _ => {}
        }
        if failure != before || !only_confirmed {
            self.current.with_last_good(|state| {
                if failure.is_none() && !only_confirmed {
                    state.saved = Some(SystemTime::now());
                }
                state.failure = failure;
            });
        }
    }
}
