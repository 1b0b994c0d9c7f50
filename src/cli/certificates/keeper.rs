//! Keeper: the steps that are due to one certificate, once or again and again.

use std::time::{Duration, SystemTime};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use super::{
    Failure, issue,
    plan::{Seen, Step, Wanted, step},
    registrations::{Others, trust},
    served,
    store::{Store, Version},
    stored::Stored,
};
use crate::{
    cli::{CommandExit, complain, service::Service},
    kube::{KubeClient, ReloadingClient},
};

/// Steps of one renewal, and some.
const MOST_STEPS: usize = 16;
/// Pause after somebody else has written what was read.
const AFTER_CONFLICT: Duration = Duration::from_millis(300);
/// The most such pauses in one round.
const MOST_CONFLICTS: usize = 20;

/// Keeper of one certificate.
pub(super) struct Keeper {
    pub(super) store: Store,
    pub(super) service: Service,
    pub(super) registrations: Vec<String>,
    pub(super) lifetime: Duration,
    pub(super) wanted: Wanted,
    pub(super) connection: Option<ReloadingClient>,
    /// The last reported failure to list endpoints.
    pub(super) unlisted: Option<String>,
}

impl Keeper {
    /// All steps that are due, with the pauses between them.
    pub(super) async fn once(&mut self) -> Result<(), Failure> {
        loop {
            let (rest, settling) = self.round().await?;
            if !settling {
                return Ok(());
            }
            sleep(rest).await;
        }
    }

    /// The same again and again, until SIGTERM or SIGINT.
    pub(super) async fn watch(&mut self, every: Duration) -> CommandExit {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return complain(&"cannot listen to signals");
        };
        let keeping = async {
            let mut logged = None;
            loop {
                let pause = match self.round().await {
                    Ok((rest, _)) => {
                        if logged.take().is_some() {
                            tracing::info!("the certificate is kept again");
                        }
                        rest.min(every)
                    }
                    Err(failure) => {
                        let failure = failure.to_string();
                        if logged.as_ref() != Some(&failure) {
                            tracing::error!(failure, "cannot keep the certificate; trying again");
                            logged = Some(failure);
                        }
                        every
                    }
                };
                // Work that was due is done; a clock that does not advance must not make this a busy loop.
                sleep(pause.max(AFTER_CONFLICT)).await;
            }
        };
        tokio::select! {
            ending = keeping => ending,
            _ = terminate.recv() => CommandExit::Good,
            _ = interrupt.recv() => CommandExit::Good,
        }
    }

    /// Steps, until there is nothing to do but wait: for how long, and whether a renewal is under way.
    async fn round(&mut self) -> Result<(Duration, bool), Failure> {
        let mut conflicts = 0;
        for _ in 0..MOST_STEPS + MOST_CONFLICTS {
            match self.one_step().await {
                Ok(None) => {}
                Ok(Some(rest)) => return Ok(rest),
                Err(failure) if failure.is_conflict() && conflicts < MOST_CONFLICTS => {
                    conflicts += 1;
                    sleep(AFTER_CONFLICT).await;
                }
                Err(failure) => {
                    if let (Some(connection), Failure::Kube(error)) = (&mut self.connection, &failure) {
                        connection.failed(error);
                    }
                    return Err(failure);
                }
            }
        }
        Err(Failure::Restless)
    }

    /// One step; `None` where another may follow.
    async fn one_step(&mut self) -> Result<Option<(Duration, bool)>, Failure> {
        let client = match &mut self.connection {
            Some(connection) => Some(connection.client().await?),
            None => None,
        };
        let client = client.as_ref();
        let now = SystemTime::now();
        let (stored, version) = self.store.read(client).await?;
        let (seen, missing) = self.make_trusted(client, &stored, &version, now).await?;
        let step = step(&stored, &self.wanted, seen, now);
        let new = || issue::issue(&self.wanted.names, self.lifetime, now);
        let next = match step {
            Step::Rest(rest) => return Ok(Some((rest, stored.next.is_some()))),
            Step::Hold => return Err(Failure::Unregistered { missing, service: self.service.to_string() }),
            Step::Issue => stored.issued(new()?, now),
            Step::Prepare => stored.prepared(new()?),
            Step::Trust => stored.trusted(now),
            Step::Promote => stored.promoted(now),
            Step::Retire => stored.retired(),
        };
        self.store.write(client, &version, &next.files()).await?;
        if matches!(step, Step::Issue | Step::Prepare) {
            self.wanted.renew = false;
        }
        let (place, names) = (&self.store, self.wanted.names.join(","));
        match step {
            Step::Issue => tracing::info!(%place, names, "made a certificate"),
            Step::Prepare => tracing::info!(%place, names, "made the next certificate, and its authority known"),
            Step::Promote if seen.unregistered => {
                let what = "the next certificate is to be served, although it is not known that callers trust it";
                tracing::warn!(%place, missing, "{what}");
            }
            Step::Promote if seen.distrusted => {
                let what = "the registration lost its trust in the next certificate again, which is to be served all the \
                            same: the current one ends soon";
                tracing::warn!(%place, "{what}");
            }
            Step::Promote => tracing::info!(%place, "the next certificate is to be served"),
            Step::Retire => tracing::info!(%place, "former authorities are not trusted any more"),
            Step::Trust if seen.distrusted && stored.next.is_some_and(|next| next.since.is_some()) => {
                let what = "the registration did not trust the next certificate any more; it is served later";
                tracing::warn!(%place, "{what}");
            }
            Step::Trust | Step::Hold | Step::Rest(_) => {}
        }
        Ok(None)
    }

    /// Lets every registration trust what is stored. Callers and replicas as they were seen meanwhile, and the names of
    /// registrations that have to trust it and do not name the Service.
    async fn make_trusted(
        &mut self,
        client: Option<&KubeClient>,
        stored: &Stored,
        version: &Version,
        now: SystemTime,
    ) -> Result<(Seen, String), Failure> {
        let (Some(client), false) = (client, stored.current.is_none() && stored.next.is_none()) else {
            return Ok(Default::default());
        };
        let bundle = stored.bundle();
        let trust = |others| trust(client, &self.registrations, &self.service, &bundle, others, now);
        let trusting = trust(Others::Stay).await?;
        let mut seen =
            Seen { alone: false, distrusted: trusting.written > 0, unregistered: !trusting.missing.is_empty() };
        let missing = trusting.missing.join(", ");
        let Some(current) = &stored.current else { return Ok((seen, missing)) };
        if stored.former.is_empty() && !trusting.others {
            return Ok((seen, missing));
        }
        match served::everywhere(client, &self.service, &current.pair).await {
            Ok(alone) => seen.alone = alone,
            Err(error) => {
                let why = format!("{error}; {}", error.fix());
                if self.unlisted.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot list the endpoints; former authorities stay until they end");
                    self.unlisted = Some(why);
                }
            }
        }
        if seen.alone && stored.former.is_empty() {
            trust(Others::Go(&self.store, version)).await?;
        }
        Ok((seen, missing))
    }
}
