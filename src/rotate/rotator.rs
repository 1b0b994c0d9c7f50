//! Rotator: takes readings and puts what is good into force.

mod placement;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{
    Candidate, OnHazard,
    candidate::Known,
    draining::Drain,
    on_hazard,
    probing::{ProbeNews, Probing},
    waiting::Waiting,
};
use crate::{
    clock::Moment,
    hooks::Resources,
    live::{
        Current, FailedRead, Generation, LiveHook, Rejection, Unconfirmed,
        break_glass::{Place, reread::Reread},
        current::STALE_AFTER,
    },
    model::{BreakGlass, Endpoint, Revision},
    snapshot::{Problem, Relaxation, Snapshot},
    source::{Contents, ReadError, Reading},
    telemetry::{Metrics, ReadOutcome},
};

/// Problems of one rejected configuration that are logged.
const MOST_PROBLEMS: usize = 100;
/// So many causes of failed reads are told until one is good again.
const MOST_CAUSES: usize = 16;

/// Takes readings and puts what is good into force. The only one who publishes.
#[derive(Debug)]
pub struct Rotator {
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    workers: Vec<Handle>,
    on_hazard: OnHazard,
    /// What the connections to all hooks share.
    resources: Resources,
    /// Digest of what was judged last, good or not: it need not be judged again.
    judged: String,
    known: Known,
    /// Endpoints not yet seen to answer.
    probing: HashMap<Endpoint, Probing>,
    waiting: Waiting,
    /// Read once, and waiting for a second equal read.
    unconfirmed: Option<Candidate>,
    /// What the source holds to open in an emergency.
    glasses: Reread,
    /// The source has no transactions: what was read last may be half written.
    may_be_cut: bool,
    /// What is in force was read whole: in a transaction, or twice and equal. Until then the process is still starting.
    settled: bool,
    probe_news: (mpsc::Sender<ProbeNews>, mpsc::Receiver<ProbeNews>),
    drain: Drain,
    /// Why reads have failed since the last good one, as it was told.
    failed_reads: Vec<ReadError>,
    told_stale: bool,
}

impl Rotator {
    /// Publishes to `current`; opens connections on `workers`; waits no longer than `drain_bound` for what is gone.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>, workers: Vec<Handle>, drain_bound: Duration) -> Self {
        Self {
            current,
            metrics,
            workers,
            on_hazard: OnHazard::default(),
            resources: Resources::unlimited(),
            judged: String::new(),
            known: Known::default(),
            probing: HashMap::new(),
            waiting: Waiting::default(),
            unconfirmed: None,
            glasses: Reread::default(),
            may_be_cut: true,
            settled: false,
            probe_news: mpsc::channel(64),
            drain: Drain::new(drain_bound),
            failed_reads: Vec::new(),
            told_stale: false,
        }
    }

    /// Does this about hazards in what is read from now on.
    pub fn with_hazards(self, on_hazard: OnHazard) -> Self {
        Self { on_hazard, ..self }
    }

    /// The connections to all hooks share this.
    pub fn with_resources(self, resources: Resources) -> Self {
        Self { resources, ..self }
    }

    /// Takes readings until no more can come.
    pub async fn run(mut self, mut readings: mpsc::Receiver<Reading>) {
        loop {
            let overdue = self.waiting.alarm();
            tokio::select! {
                reading = readings.recv() => match reading {
                    Some(reading) => self.take(reading).await,
                    None => return,
                },
                Some(news) = self.probe_news.1.recv() => self.hear(news),
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => self.look_at_the_time(),
            }
        }
    }

    /// Takes one reading: judges what has changed, and stamps freshness.
    pub async fn take(&mut self, reading: Reading) {
        let outcome = match reading.outcome {
            Ok(contents) => {
                let as_of = contents.as_of;
                self.tell_recovery();
                let outcome = self.judge(contents).await;
                // Not before: until then what is in force is what an earlier read has found.
                self.stamp(reading.started);
                self.current.set_observed(as_of);
                outcome
            }
            Err(error) => {
                let kind = error.kind();
                self.tell_failed_read(error);
                ReadOutcome::Failed(kind)
            }
        };
        self.metrics.config_read(outcome, reading.took);
        self.tell_departed();
    }

    /// A good read dates what is in force. Where nothing is yet, as the first configuration was not sound, there is
    /// nothing to be fresh, and reviews stay refused.
    fn stamp(&self, started: Moment) {
        if self.current.load().number > 0 {
            self.current.stamp_read(started);
        }
    }

    async fn judge(&mut self, contents: Contents) -> ReadOutcome {
        if contents.digest == self.judged {
            if let Some(candidate) = self.unconfirmed.take() {
                self.put_in_force(candidate);
                return ReadOutcome::Changed;
            }
            if let Some(documents) = self.glasses.again() {
                self.heed(documents);
            }
            self.settled |= self.current.load().digest == contents.digest;
            self.rename(&contents.digest, contents.revision);
            return ReadOutcome::Unchanged;
        }
        self.judged.clone_from(&contents.digest);
        self.unconfirmed = None;
        let revision = contents.revision.clone();
        let in_force = self.current.load();
        self.may_be_cut = !contents.is_transactional();
        self.settled |= in_force.number > 0 && !self.may_be_cut;
        let may_be_cut = in_force.number > 0 && self.may_be_cut;
        // Compiling a large configuration takes a while, and this thread accepts connections too.
        let mut known = std::mem::take(&mut self.known);
        let on_hazard = self.on_hazard;
        let check = move || {
            let candidate = known.candidate(&contents, on_hazard);
            let candidate = candidate.map(|candidate| {
                let relaxes = || candidate.snapshot.relaxes(&in_force.snapshot);
                let relaxations = may_be_cut.then(relaxes).unwrap_or_default();
                (candidate, relaxations)
            });
            (candidate.map_err(|problems| (problems, known.break_glass())), known)
        };
        match spawn_blocking(check).await {
            Ok((candidate, known)) => {
                self.known = known;
                match candidate {
                    Ok((candidate, relaxations)) if relaxations.is_empty() => {
                        self.put_in_force(candidate);
                        return ReadOutcome::Changed;
                    }
                    Ok((candidate, relaxations)) => {
                        self.hold(candidate, relaxations);
                        return ReadOutcome::Unconfirmed;
                    }
                    Err((problems, break_glass)) => {
                        self.current.set_unconfirmed(None);
                        // An emergency does not wait until somebody has mended another document.
                        self.open(break_glass);
                        self.reject(problems, revision);
                    }
                }
            }
            // The checker itself broke. That is our fault; what is in force stays, and nobody must take it for this.
            Err(panic) => {
                tracing::error!(%panic, "checking the configuration failed; the last good one stays");
                let (file, path) = ("configuration".to_owned(), String::new());
                let (what, fix) = ("gatepost broke while checking it".to_owned(), "report this bug".to_owned());
                self.reject(vec![Problem { file, path, what, fix }], revision);
            }
        }
        ReadOutcome::Rejected
    }

    /// It enforces less than what is in force, and may have been read half: a second equal read puts it in force. Whatever
    /// else it says waits with it, as a configuration is in force as a whole; but for what is opened in an emergency.
    fn hold(&mut self, candidate: Candidate, relaxations: Vec<Relaxation>) {
        let (first, count) = (relaxations.first().map(ToString::to_string), relaxations.len());
        tracing::info!(
            first,
            count,
            "the configuration enforces less than before; a second equal read puts it in force"
        );
        self.accept();
        self.open(candidate.break_glass.clone());
        let since = self.current.unconfirmed().map_or_else(SystemTime::now, |before| before.since);
        let revision = candidate.revision.clone();
        self.current.set_unconfirmed(Some(Unconfirmed { relaxations, revision, since }));
        self.unconfirmed = Some(candidate);
    }

    /// The newest configuration is sound.
    fn accept(&self) {
        if self.current.rejected().is_some() {
            tracing::info!("configuration is good again");
            self.current.set_rejected(None);
        }
    }

    /// What is in force was written once more, unchanged: it bears the newer revision from now on, which somebody may
    /// be waiting for.
    fn rename(&mut self, digest: &str, revision: Revision) {
        let in_force = self.current.load();
        if in_force.digest != digest {
            self.rename_rejected(revision);
        } else if in_force.revision != revision {
            let (digest, snapshot) = (in_force.digest.clone(), Arc::clone(&in_force.snapshot));
            self.publish(&in_force, digest, revision, snapshot, in_force.hooks.clone());
        }
    }

    /// These are the break-glass documents that the source holds now.
    fn open(&mut self, documents: Vec<BreakGlass>) {
        let documents = if self.may_be_cut { self.glasses.heeded(documents) } else { documents };
        self.heed(documents);
    }

    fn heed(&self, documents: Vec<BreakGlass>) {
        let now = Instant::now().into_std();
        self.current.break_glass().take(Place::Source, documents, now, SystemTime::now());
    }

    /// The same for what was rejected.
    fn rename_rejected(&self, revision: Revision) {
        if let Some(rejected) = self.current.rejected().filter(|rejected| rejected.revision != revision) {
            self.current.set_rejected(Some(Rejection { revision, ..Rejection::clone(&rejected) }));
        }
    }

    fn reject(&self, problems: Vec<Problem>, revision: Revision) {
        let before = self.current.rejected();
        if before.as_ref().is_some_and(|before| before.problems == problems) {
            return self.rename_rejected(revision);
        }
        tracing::error!(problems = problems.len(), "configuration rejected; the last good one stays in force");
        for problem in problems.iter().take(MOST_PROBLEMS) {
            tracing::error!("{problem}");
        }
        if let Some(more) = problems.len().checked_sub(MOST_PROBLEMS).filter(|more| *more > 0) {
            tracing::error!(more, "more problems are shown on /configz and by `gatepost check`");
        }
        let since = before.map_or_else(SystemTime::now, |before| before.since);
        self.current.set_rejected(Some(Rejection { problems, revision, since }));
    }

    /// Puts a candidate in force. Everything in the first one is asked at once, and what is added until it was read whole;
    /// what a later one adds is probed first.
    pub fn put_in_force(&mut self, candidate: Candidate) {
        self.judged.clone_from(&candidate.digest);
        self.open(candidate.break_glass.clone());
        self.accept();
        self.unconfirmed = None;
        self.current.set_unconfirmed(None);
        let in_force = self.current.load();
        if in_force.number > 0 && in_force.digest == candidate.digest {
            self.rename(&candidate.digest, candidate.revision);
            return;
        }
        on_hazard::tell(candidate.snapshot.findings(), in_force.snapshot.findings());
        let hooks = self.seated(&in_force, &candidate);
        let wait: HashSet<_> =
            hooks.iter().filter(|live| !live.is_in_place()).map(|live| &live.hook.endpoint).collect();
        self.probing.retain(|endpoint, _| wait.contains(endpoint));
        self.publish(&in_force, candidate.digest, candidate.revision, candidate.snapshot, hooks);
    }

    /// Hooks that have waited too long are told as overdue, and enforced where they are to be.
    fn look_at_the_time(&mut self) {
        let in_force = self.current.load();
        let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
        self.publish(&in_force, digest, revision, Arc::clone(&in_force.snapshot), in_force.hooks.clone());
    }

    fn publish(
        &mut self,
        old: &Arc<Generation>,
        digest: String,
        revision: Revision,
        snapshot: Arc<Snapshot>,
        mut hooks: Vec<LiveHook>,
    ) {
        self.waiting.settle(&snapshot, &mut hooks);
        let number = old.number + 1;
        let bypassed = snapshot.bypasses().iter().map(|bypass| self.metrics.bypass(&bypass.name)).collect();
        let published = SystemTime::now();
        let new = Arc::new(Generation { number, digest, revision, published, snapshot, hooks, bypassed });
        // Departures first: whoever looks finds a hook in force, or among the departed, and never in neither.
        self.drain.replaced(old, &new);
        self.tell_departed();
        self.current.publish(Arc::clone(&new));
        self.tell_workers();
        let probing = new.hooks.iter().filter(|live| !live.is_in_place()).count();
        tracing::info!(generation = number, revision = %new.revision, hooks = new.hooks.len(), probing, "in force");
    }

    fn tell_departed(&mut self) {
        if let Some(departed) = self.drain.sweep() {
            self.current.set_departed(departed);
        }
    }

    /// Has each worker let go of the generation it entered last: an idle one would keep it from draining.
    fn tell_workers(&self) {
        for worker in &self.workers {
            let current = Arc::clone(&self.current);
            worker.spawn(async move { current.refresh() });
        }
    }

    fn tell_failed_read(&mut self, error: ReadError) {
        // A peer that is no store of ours fails in several ways, in turn.
        if !self.failed_reads.contains(&error) && self.failed_reads.len() < MOST_CAUSES {
            tracing::warn!(%error, "configuration cannot be read; what is in force grows old");
            self.failed_reads.push(error.clone());
        }
        let before = self.current.failed_read();
        self.current.set_failed_read(Some(FailedRead {
            error: error.to_string(),
            since: before.as_ref().map_or_else(SystemTime::now, |before| before.since),
            count: before.map_or(0, |before| before.count) + 1,
        }));
        let stale = !self.current.is_fresh(Instant::now().into_std());
        if stale && !self.told_stale {
            tracing::error!(after = ?STALE_AFTER, "no good read for too long: requests are refused");
            self.told_stale = true;
        }
    }

    fn tell_recovery(&mut self) {
        if !std::mem::take(&mut self.failed_reads).is_empty() {
            tracing::info!(was_stale = self.told_stale, "configuration can be read again");
            self.current.set_failed_read(None);
        }
        self.told_stale = false;
    }
}

#[cfg(test)]
mod tests;
