//! Rotator: takes readings and puts what is good into force.

mod emergency;
mod placement;
pub(crate) mod reporting;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{
    Candidate, OnHazard, OnInvalid, OwnAddresses,
    candidate::CandidateCache,
    draining::Drain,
    on_hazard,
    probing::{ProbeNews, Probing},
    waiting::Waiting,
};
use crate::{
    clock::Moment,
    hooks::Resources,
    live::{Current, Generation, LiveHook, Unconfirmed, break_glass::reread::Reread},
    model::{Endpoint, Revision},
    snapshot::{Kept, Problem, Relaxation, Snapshot},
    source::{Contents, ReadError, TimedRead},
    telemetry::{Metrics, ReadOutcome},
};

/// Configuration in force, for whoever keeps it.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The states of documents that it is made of.
    pub kept: Kept,
    /// Its digest.
    pub digest: String,
    /// Its name.
    pub revision: Revision,
    /// Time at which the source was last found in that state.
    pub read: Moment,
}

/// Takes readings and puts what is good into force. The only one who publishes.
#[derive(Debug)]
pub struct Rotator {
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    workers: Vec<Handle>,
    on_hazard: OnHazard,
    on_invalid: OnInvalid,
    /// Resources that the connections to all hooks share.
    resources: Resources,
    /// Digest of what was judged last, good or not: it need not be judged again.
    judged: String,
    known: CandidateCache,
    /// The states of documents that are in force, and the digest of the contents that hold all of them.
    kept: Kept,
    kept_of: String,
    /// Receiver of the configuration in force, which writes it to disk.
    in_force: Option<watch::Sender<Option<InForce>>>,
    /// Endpoints not yet seen to answer.
    probing: HashMap<Endpoint, Probing>,
    waiting: Waiting,
    /// Read once, and waiting for a second read that lets the same go.
    unconfirmed: Option<Candidate>,
    /// Break-glass in the source.
    glasses: Reread,
    /// The source has no transactions: what was read last may be half written.
    may_be_cut: bool,
    /// The configuration in force was read whole: in a transaction, or twice and equal. Until then the process is still
    /// starting.
    settled: bool,
    probe_news: (mpsc::Sender<ProbeNews>, mpsc::Receiver<ProbeNews>),
    drain: Drain,
    /// Failures of reads since the last good one, as logged.
    failed_reads: Vec<ReadError>,
    logged_stale: bool,
    /// Connections that hooks are guaranteed and cannot have, as last logged.
    logged_missing: usize,
}

impl Rotator {
    /// Publishes to `current`; opens connections on `workers`; waits no longer than `drain_bound` for what is gone.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>, workers: Vec<Handle>, drain_bound: Duration) -> Self {
        Self {
            current,
            metrics,
            workers,
            on_hazard: OnHazard::default(),
            on_invalid: OnInvalid::default(),
            resources: Resources::unlimited(),
            judged: String::new(),
            known: CandidateCache::default(),
            kept: Kept::default(),
            kept_of: String::new(),
            in_force: None,
            probing: HashMap::new(),
            waiting: Waiting::new(drain_bound),
            unconfirmed: None,
            glasses: Reread::default(),
            may_be_cut: true,
            settled: false,
            probe_news: mpsc::channel(64),
            drain: Drain::new(drain_bound),
            failed_reads: Vec::new(),
            logged_stale: false,
            logged_missing: 0,
        }
    }

    /// Does this about hazards in what is read from now on.
    pub fn with_hazards(self, on_hazard: OnHazard) -> Self {
        Self { on_hazard, ..self }
    }

    /// These states of documents were in force before the process began.
    pub fn with_kept(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// The same, sending there what is in force after each read that confirms it.
    pub fn with_last_good(self, in_force: Option<watch::Sender<Option<InForce>>>) -> Self {
        Self { in_force, ..self }
    }

    /// Does this about documents that cannot be served, until something is in force.
    pub fn with_invalid(self, on_invalid: OnInvalid) -> Self {
        Self { on_invalid, ..self }
    }

    /// The same, warning of hooks that lead to these addresses.
    pub fn listening_at(self, own: OwnAddresses) -> Self {
        Self { known: CandidateCache::listening_at(own), ..self }
    }

    /// Takes conditions that ask the authorizer of a cluster, or refuses them. To be said after where it listens.
    pub fn with_authorizer(self, authorizer: bool) -> Self {
        Self { known: self.known.with_authorizer(authorizer), ..self }
    }

    /// The connections to all hooks share this.
    pub fn with_resources(self, resources: Resources) -> Self {
        Self { resources, ..self }
    }

    /// Takes readings until no more can come.
    pub async fn run(mut self, mut readings: mpsc::Receiver<TimedRead>) {
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
    pub async fn take(&mut self, reading: TimedRead) {
        let outcome = match reading.outcome {
            Ok(contents) => {
                let as_of = contents.as_of;
                self.report_recovery();
                let outcome = self.judge(contents).await;
                // Not before: until then what is in force is what an earlier read has found.
                self.stamp(reading.started);
                self.current.set_observed(as_of);
                outcome
            }
            Err(error) => {
                let kind = error.kind();
                if let Some(contents) = error.contents() {
                    self.take_undated(contents.clone()).await;
                }
                self.report_failed_read(error);
                ReadOutcome::Failed(kind)
            }
        };
        self.metrics.config_read(outcome, reading.took);
        self.report_retired();
    }

    /// A good read dates what is in force. Where nothing is yet, as the first configuration was not sound, there is
    /// nothing to be fresh, and reviews stay refused.
    fn stamp(&self, started: Moment) {
        let in_force = self.current.load();
        if in_force.number > 0 {
            self.current.stamp_read(started);
            if let Some(keeper) = &self.in_force {
                let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
                keeper.send_replace(Some(InForce { kept: self.kept.clone(), digest, revision, read: started }));
            }
        }
    }

    async fn judge(&mut self, contents: Contents) -> ReadOutcome {
        if contents.digest == self.judged {
            if let Some(candidate) = self.unconfirmed.take() {
                return self.put_in_force(candidate);
            }
            if let Some(documents) = self.glasses.again() {
                self.heed(documents);
            }
            self.settled |= self.kept_of == contents.digest;
            self.rename(&contents.digest, contents.revision);
            return ReadOutcome::Unchanged;
        }
        self.judged.clone_from(&contents.digest);
        self.unconfirmed = None;
        let revision = contents.revision.clone();
        let in_force = self.current.load();
        let waits = self.current.unconfirmed();
        self.may_be_cut = !contents.is_transactional();
        self.settled |= in_force.number > 0 && !self.may_be_cut;
        let may_be_cut = in_force.number > 0 && self.may_be_cut;
        // Compiling a large configuration takes a while, and this thread accepts connections too.
        let anew = self.known.anew();
        let mut known = std::mem::replace(&mut self.known, anew);
        let (on_hazard, starts) = (self.on_hazard, in_force.number == 0 && self.kept.is_empty());
        let around = (!starts || self.on_invalid == OnInvalid::Skip).then(|| self.kept.clone());
        let check = move || {
            let candidate = known.candidate(&contents, on_hazard, around.as_ref());
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
                    Ok((candidate, relaxations)) if relaxations.is_empty() => return self.put_in_force(candidate),
                    // It lets go of the same as the read before: other bytes of it may change at every read.
                    Ok((candidate, relaxations)) if waits.is_some_and(|waits| waits.relaxations == relaxations) => {
                        return self.put_in_force(candidate);
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
                tracing::error!(%panic, "gatepost panicked while checking the configuration; the last good one \
                                         stays in force");
                let (file, path) = ("configuration".to_owned(), String::new());
                let what = "gatepost panicked while checking it".to_owned();
                let why = "so whether it is good is not known".to_owned();
                self.reject(vec![Problem { file, path, what, why, fix: "report this bug".to_owned() }], revision);
            }
        }
        ReadOutcome::Rejected
    }

    /// It enforces less than what is in force, and may have been read half: a second read that lets the same go puts it
    /// in force. The rest of it waits as well, as a configuration is in force as a whole; but for what is opened in an
    /// emergency.
    fn hold(&mut self, candidate: Candidate, relaxations: Vec<Relaxation>) {
        let (first, count) = (relaxations.first().map(ToString::to_string), relaxations.len());
        tracing::info!(
            first,
            count,
            "the configuration enforces less than before; it is in force once a second read confirms that"
        );
        self.report_held(&candidate);
        self.open(candidate.break_glass.clone());
        let since = self.current.unconfirmed().map_or_else(SystemTime::now, |before| before.since);
        let revision = candidate.read.1.clone();
        self.current.set_unconfirmed(Some(Unconfirmed { relaxations, revision, since }));
        self.unconfirmed = Some(candidate);
    }

    /// Renames the configuration in force, which was written once more, unchanged: it bears the newer revision from now
    /// on, which a client may be waiting for.
    fn rename(&mut self, digest: &str, revision: Revision) {
        let in_force = self.current.load();
        if in_force.digest != digest {
            self.rename_rejected(revision);
        } else if in_force.revision != revision {
            let (digest, snapshot) = (in_force.digest.clone(), Arc::clone(&in_force.snapshot));
            self.publish(&in_force, digest, revision, snapshot, in_force.hooks.clone());
        }
    }

    /// Puts a candidate in force. Everything in the first one is asked at once, and what is added until it was read
    /// whole; what a later one adds is probed first.
    pub fn put_in_force(&mut self, candidate: Candidate) -> ReadOutcome {
        self.judged.clone_from(&candidate.read.0);
        if !candidate.restored {
            self.open(candidate.break_glass.clone());
            self.report_held(&candidate);
            self.report_source(&candidate);
        }
        self.unconfirmed = None;
        self.current.set_unconfirmed(None);
        let in_force = self.current.load();
        // A document held back is in force in a state that is not in these contents, however often they are read.
        self.kept_of = if candidate.held.is_empty() { candidate.read.0.clone() } else { String::new() };
        let former = std::mem::replace(&mut self.kept, candidate.kept.clone());
        // Where all that has changed is held back, what is in force bears the name that it has.
        if in_force.number > 0 && !candidate.held.is_empty() && former.is(&self.kept) {
            return ReadOutcome::Rejected;
        }
        let outcome = if candidate.held.is_empty() { ReadOutcome::Changed } else { ReadOutcome::HeldBack };
        if in_force.number > 0 && in_force.digest == candidate.digest {
            self.rename(&candidate.digest, candidate.revision);
            return outcome;
        }
        on_hazard::log_findings(candidate.snapshot.findings(), in_force.snapshot.findings());
        let hooks = self.placed(&in_force, &candidate);
        let wait: HashSet<_> =
            hooks.iter().filter(|live| !live.is_in_place()).map(|live| &live.hook.endpoint).collect();
        self.probing.retain(|endpoint, _| wait.contains(endpoint));
        self.publish(&in_force, candidate.digest, candidate.revision, candidate.snapshot, hooks);
        outcome
    }

    /// Hooks that have waited too long are reported as overdue, and enforced where they are to be.
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
        old.hooks.iter().for_each(|live| live.metrics.forget_timeout());
        hooks.iter().for_each(|live| live.metrics.set_timeout(live.target.timeout()));
        let number = old.number + 1;
        let bypassed = snapshot.bypasses().iter().map(|bypass| self.metrics.bypass(&bypass.name)).collect();
        let initializers =
            snapshot.initializer_names().map(|name| (Arc::clone(name), self.metrics.initializer(name))).collect();
        let published = SystemTime::now();
        let new = Arc::new(Generation { number, digest, revision, published, snapshot, hooks, bypassed, initializers });
        // Departures first: whoever looks finds a hook in force, or among the retired, and never in neither.
        let hub = self.current.hub();
        self.drain.replaced(old, &new, hub);
        if !self.settled {
            hub.enforce(new.snapshot.claimed());
        }
        self.report_retired();
        self.current.publish(Arc::clone(&new));
        self.report_workers();
        self.report_missing_connections(new.hooks.len());
        let probing = new.hooks.iter().filter(|live| !live.is_in_place()).count();
        let (revision, hooks) = (&new.revision, new.hooks.len());
        let initializers = new.snapshot.initializer_count();
        tracing::info!(generation = number, %revision, hooks, probing, initializers, "in force");
    }

    fn report_retired(&mut self) {
        if let Some(retired) = self.drain.sweep(self.current.hub()) {
            self.current.set_retired(retired);
        }
    }

    /// Has each worker let go of the generation it entered last: an idle one would keep it from draining.
    fn report_workers(&self) {
        for worker in &self.workers {
            let current = Arc::clone(&self.current);
            worker.spawn(async move { current.refresh() });
        }
    }
}

#[cfg(test)]
mod tests;
