//! Rotator: takes readings and puts what is good into force.

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
    candidate::{Candidate, CandidateCache, OnInvalid},
    draining::Drain,
    hazards::{OnHazard, log_findings},
    placements::Placements,
    probing::ProbeResult,
};
use crate::{
    hooks::Resources,
    live::{
        BreakGlasses, ConfigurationStatus, Current, FailedRead, Generation, LiveHook, PendingConfirmation,
        QuarantinedDocument, Rejection,
        break_glass::{GlassOrigin, Reread},
    },
    source::{Contents, ReadError, TimedRead},
    telemetry::{Metrics, ReadOutcome},
};
use gatepost_api::{BreakGlass, Revision};
use gatepost_base::clock::Moment;
use gatepost_config::{HeldBackDocument, LastGoodDocuments, Problem, Relaxation, Snapshot, break_glass};

/// Problems of one rejected configuration that are logged.
const MAX_LOGGED_PROBLEMS: usize = 100;

/// Most causes of failed reads that are logged until one is good again.
const MAX_LOGGED_CAUSES: usize = 16;

/// Failures of reads since the last good one.
#[derive(Debug, Default)]
struct ReadFailures {
    logged: Vec<ReadError>,
    logged_stale: bool,
}

/// Configuration in force, for whoever writes it to disk.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The states of documents that it is made of.
    pub documents: LastGoodDocuments,
    /// Its digest.
    pub digest: String,
    /// Its name.
    pub revision: Revision,
    /// Time at which the source was last found in that state.
    pub read: Moment,
}

/// Terms of a rotator.
#[derive(Debug)]
pub struct RotatorOptions {
    /// Told what was read and is not in force.
    pub status: Arc<ConfigurationStatus>,
    /// Told what the source opens in an emergency.
    pub break_glass: Arc<BreakGlasses>,
    /// Threads that ask hooks.
    pub workers: Vec<Handle>,
    /// Bound on waiting for requests that still use a former generation.
    pub drain_bound: Duration,
    /// Treatment of hazards in what is read.
    pub on_hazard: OnHazard,
    /// Treatment of documents that cannot be served, until something is in force.
    pub on_invalid: OnInvalid,
    /// Checks what is read.
    pub cache: CandidateCache,
    /// Resources that the connections to all hooks share.
    pub resources: Resources,
    /// Documents that were in force before the process began.
    pub last_good: LastGoodDocuments,
    /// Receiver of what is in force after each read that confirms it.
    pub in_force: Option<watch::Sender<Option<InForce>>>,
}

impl RotatorOptions {
    /// The defaults, with these threads and this bound.
    pub fn new(workers: Vec<Handle>, drain_bound: Duration) -> Self {
        Self {
            status: Arc::default(),
            break_glass: Arc::default(),
            workers,
            drain_bound,
            on_hazard: OnHazard::default(),
            on_invalid: OnInvalid::default(),
            cache: CandidateCache::default(),
            resources: Resources::unlimited(),
            last_good: LastGoodDocuments::default(),
            in_force: None,
        }
    }
}

/// Takes readings and puts what is good into force. The only one who publishes.
#[derive(Debug)]
pub struct Rotator {
    current: Arc<Current>,
    status: Arc<ConfigurationStatus>,
    break_glass: Arc<BreakGlasses>,
    metrics: Arc<Metrics>,
    on_hazard: OnHazard,
    on_invalid: OnInvalid,
    placements: Placements,
    drain: Drain,
    /// Digest of what was judged last, good or not: it need not be judged again.
    judged: String,
    cache: CandidateCache,
    /// The states of documents that are in force, and the digest of the contents that hold all of them.
    last_good: LastGoodDocuments,
    last_good_digest: String,
    in_force: Option<watch::Sender<Option<InForce>>>,
    /// Read once, and waiting for a second read that lets the same go.
    pending_confirmation: Option<Candidate>,
    break_glass_documents: Reread,
    /// The source has no transactions: what was read last may be half written.
    may_be_cut: bool,
    /// The configuration in force was read whole: in a transaction, or twice and equal. Until then the process is still
    /// starting.
    settled: bool,
    read_failures: ReadFailures,
    /// Connections that hooks are guaranteed and cannot have, as last logged.
    logged_missing: usize,
}

impl Rotator {
    /// Publishes to `current`.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>, options: RotatorOptions) -> Self {
        let RotatorOptions {
            status,
            break_glass,
            workers,
            drain_bound,
            on_hazard,
            on_invalid,
            cache,
            resources,
            last_good,
            in_force,
        } = options;
        Self {
            current,
            status,
            break_glass,
            placements: Placements::new(Arc::clone(&metrics), workers, resources, drain_bound),
            metrics,
            on_hazard,
            on_invalid,
            drain: Drain::new(drain_bound),
            judged: String::new(),
            cache,
            last_good,
            last_good_digest: String::new(),
            in_force,
            pending_confirmation: None,
            break_glass_documents: Reread::default(),
            may_be_cut: true,
            settled: false,
            read_failures: ReadFailures::default(),
            logged_missing: 0,
        }
    }

    /// Takes readings until no more can come.
    pub async fn run(mut self, mut readings: mpsc::Receiver<TimedRead>) {
        loop {
            let overdue = self.placements.overdue_at();
            tokio::select! {
                reading = readings.recv() => match reading {
                    Some(reading) => self.take(reading).await,
                    None => return,
                },
                Some(result) = self.placements.probe_result() => self.on_probe_result(result),
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => self.mark_overdue_hooks(),
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
                self.status.set_observed(as_of);
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
            self.current.freshness().stamp_read(started);
            if let Some(keeper) = &self.in_force {
                let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
                keeper.send_replace(Some(InForce {
                    documents: self.last_good.clone(),
                    digest,
                    revision,
                    read: started,
                }));
            }
        }
    }

    async fn judge(&mut self, contents: Contents) -> ReadOutcome {
        if contents.digest == self.judged {
            if let Some(candidate) = self.pending_confirmation.take() {
                return self.put_in_force(candidate);
            }
            if let Some(documents) = self.break_glass_documents.again() {
                self.apply_break_glass(documents);
            }
            self.settled |= self.last_good_digest == contents.digest;
            self.rename(&contents.digest, contents.revision);
            return ReadOutcome::Unchanged;
        }
        self.judged.clone_from(&contents.digest);
        self.pending_confirmation = None;
        let revision = contents.revision.clone();
        let in_force = self.current.load();
        let waits = self.status.pending_confirmation.get();
        self.may_be_cut = !contents.is_transactional();
        self.settled |= in_force.number > 0 && !self.may_be_cut;
        let may_be_cut = in_force.number > 0 && self.may_be_cut;
        // Compiling a large configuration takes a while, and this thread accepts connections too.
        let anew = self.cache.anew();
        let mut cache = std::mem::replace(&mut self.cache, anew);
        let (on_hazard, starts) = (self.on_hazard, in_force.number == 0 && self.last_good.is_empty());
        let around = (!starts || self.on_invalid == OnInvalid::Skip).then(|| self.last_good.clone());
        let check = move || {
            let candidate = cache.candidate(&contents, on_hazard, around.as_ref());
            let candidate = candidate.map(|candidate| {
                let relaxes = || candidate.snapshot.relaxes(&in_force.snapshot);
                let relaxations = may_be_cut.then(relaxes).unwrap_or_default();
                (candidate, relaxations)
            });
            (candidate.map_err(|problems| (problems, cache.break_glass())), cache)
        };
        match spawn_blocking(check).await {
            Ok((candidate, cache)) => {
                self.cache = cache;
                match candidate {
                    Ok((candidate, relaxations)) if relaxations.is_empty() => return self.put_in_force(candidate),
                    // It lets go of the same as the read before: other bytes of it may change at every read.
                    Ok((candidate, relaxations)) if waits.is_some_and(|waits| waits.relaxations == relaxations) => {
                        return self.put_in_force(candidate);
                    }
                    Ok((candidate, relaxations)) => {
                        self.await_confirmation(candidate, relaxations);
                        return ReadOutcome::Unconfirmed;
                    }
                    Err((problems, break_glass)) => {
                        self.status.pending_confirmation.set(None);
                        // An emergency does not wait until somebody has mended another document.
                        self.take_break_glass(break_glass);
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
    fn await_confirmation(&mut self, candidate: Candidate, relaxations: Vec<Relaxation>) {
        let (first, count) = (relaxations.first().map(ToString::to_string), relaxations.len());
        tracing::info!(
            first,
            count,
            "the configuration enforces less than before; it is in force once a second read confirms that"
        );
        self.report_quarantined(&candidate);
        self.take_break_glass(candidate.break_glass.clone());
        let since = self.status.pending_confirmation.get().map_or_else(SystemTime::now, |before| before.since);
        let revision = candidate.read.1.clone();
        self.status.pending_confirmation.set(Some(PendingConfirmation { relaxations, revision, since }));
        self.pending_confirmation = Some(candidate);
    }

    /// Renames the configuration in force, which was written once more, unchanged: it bears the newer revision from now
    /// on, which a client may be waiting for.
    fn rename(&mut self, digest: &str, revision: Revision) {
        let in_force = self.current.load();
        if in_force.digest != digest {
            self.rename_rejected(revision);
        } else if in_force.revision != revision {
            self.publish_again(&in_force, revision, in_force.hooks.clone());
        }
    }

    /// Puts a candidate in force. Everything in the first one is asked at once, and what is added until it was read
    /// whole; what a later one adds is probed first.
    pub fn put_in_force(&mut self, candidate: Candidate) -> ReadOutcome {
        self.judged.clone_from(&candidate.read.0);
        if !candidate.restored {
            self.take_break_glass(candidate.break_glass.clone());
            self.report_quarantined(&candidate);
            self.report_source(&candidate);
        }
        self.pending_confirmation = None;
        self.status.pending_confirmation.set(None);
        let in_force = self.current.load();
        // A document held back is in force in a state that is not in these contents, however often they are read.
        self.last_good_digest = if candidate.quarantined.is_empty() { candidate.read.0.clone() } else { String::new() };
        let former = std::mem::replace(&mut self.last_good, candidate.documents.clone());
        // Where all that has changed is held back, what is in force bears the name that it has.
        if in_force.number > 0 && !candidate.quarantined.is_empty() && former.is(&self.last_good) {
            return ReadOutcome::Rejected;
        }
        let outcome = if candidate.quarantined.is_empty() { ReadOutcome::Changed } else { ReadOutcome::HeldBack };
        if in_force.number > 0 && in_force.digest == candidate.digest {
            self.rename(&candidate.digest, candidate.revision);
            return outcome;
        }
        log_findings(candidate.snapshot.findings(), in_force.snapshot.findings());
        let left = self.drain.left();
        let hooks = self.placements.place(&in_force, &candidate, &left, !self.settled);
        self.publish(&in_force, candidate.digest, candidate.revision, candidate.snapshot, hooks);
        outcome
    }

    /// Takes contents that must not decide anything yet, for what they let past unasked. A configuration that a former
    /// process has had in force decides while it is fresh.
    async fn take_undated(&mut self, contents: Contents) {
        if self.current.freshness().is_fresh(Instant::now().into_std()) {
            self.apply_break_glass(break_glass(&contents.files));
        } else {
            self.judge(contents).await;
        }
    }

    /// These are the break-glass documents that the source holds now, as it was read.
    fn take_break_glass(&mut self, documents: Vec<BreakGlass>) {
        let documents = if self.may_be_cut { self.break_glass_documents.heeded(documents) } else { documents };
        self.apply_break_glass(documents);
    }

    fn apply_break_glass(&self, documents: Vec<BreakGlass>) {
        self.break_glass.take(GlassOrigin::Source, documents, Instant::now().into_std(), SystemTime::now());
    }

    fn on_probe_result(&mut self, result: ProbeResult) {
        let in_force = self.current.load();
        if let Some(hooks) = self.placements.on_probe_result(result, &in_force) {
            self.publish_again(&in_force, in_force.revision.clone(), hooks);
        }
    }

    /// Hooks that have waited too long are reported as overdue, and enforced where they are to be.
    fn mark_overdue_hooks(&mut self) {
        let in_force = self.current.load();
        self.publish_again(&in_force, in_force.revision.clone(), in_force.hooks.clone());
    }

    /// Publishes the snapshot in force with these hooks.
    fn publish_again(&mut self, in_force: &Arc<Generation>, revision: Revision, hooks: Vec<LiveHook>) {
        self.publish(in_force, in_force.digest.clone(), revision, Arc::clone(&in_force.snapshot), hooks);
    }

    fn publish(
        &mut self,
        old: &Arc<Generation>,
        digest: String,
        revision: Revision,
        snapshot: Arc<Snapshot>,
        mut hooks: Vec<LiveHook>,
    ) {
        self.placements.mark_overdue_hooks(&snapshot, &mut hooks);
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
        self.refresh_workers();
        self.report_missing_connections(new.hooks.len());
        let probing = new.hooks.iter().filter(|live| !live.is_in_place()).count();
        let (revision, hooks) = (&new.revision, new.hooks.len());
        let initializers = new.snapshot.initializer_count();
        tracing::info!(generation = number, %revision, hooks, probing, initializers, "in force");
    }

    fn report_retired(&mut self) {
        if let Some(retired) = self.drain.sweep(self.current.hub()) {
            self.status.set_retired(retired);
        }
    }

    /// Has each worker let go of the generation it entered last: an idle one would keep it from draining.
    fn refresh_workers(&self) {
        for worker in self.placements.workers() {
            let current = Arc::clone(&self.current);
            worker.spawn(async move { current.refresh() });
        }
    }

    /// The newest configuration is sound.
    fn accept(&self) {
        if self.status.rejected.get().is_some() {
            tracing::info!("configuration is valid again");
            self.status.rejected.set(None);
        }
    }

    /// Once all that is in force is what the source holds, nothing on disk is in use any more.
    fn report_source(&self, candidate: &Candidate) {
        let in_use = self.status.last_good.get().is_some_and(|state| state.in_use.is_some());
        if in_use && candidate.quarantined.iter().all(|held| !held.keeps) {
            tracing::info!("the last good configuration on disk is no longer in use");
            self.status.update_last_good(|state| state.in_use = None);
        }
    }

    /// Which documents of the newest configuration are held back; where none is, it is sound.
    fn report_quarantined(&self, candidate: &Candidate) {
        if candidate.quarantined.is_empty() {
            return self.accept();
        }
        let (before, revision) = (self.status.rejected.get(), candidate.read.1.clone());
        let reported: HashMap<_, _> =
            before.iter().flat_map(|before| &before.quarantined).map(|held| (&*held.document, held)).collect();
        let held_back = |held: &HeldBackDocument| {
            let problem = held.problems.first()?.clone();
            let since = reported.get(&*held.file).map_or_else(SystemTime::now, |last| last.since);
            let (document, problems) = (held.file.clone(), held.problems.len());
            Some(QuarantinedDocument { document, keeps: held.keeps, since, problem, problems })
        };
        let held: Vec<_> = candidate.quarantined.iter().filter_map(held_back).collect();
        let news = held.iter().filter(|held| {
            reported.get(&*held.document).is_none_or(|last| last.problem != held.problem || last.keeps != held.keeps)
        });
        for held in news.take(MAX_LOGGED_PROBLEMS) {
            let (document, problems, problem) = (&held.document, held.problems, &held.problem);
            tracing::error!(document, problems, %problem, "document held back: {}", held.means());
        }
        let documents: HashSet<_> = held.iter().map(|held| &*held.document).collect();
        for gone in reported.keys().filter(|document| !documents.contains(**document)).take(MAX_LOGGED_PROBLEMS) {
            tracing::info!(document = gone, "document is no longer held back");
        }
        let problems: Vec<_> = candidate.quarantined.iter().flat_map(|held| held.problems.iter().cloned()).collect();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.quarantined == held) {
            return self.rename_rejected(revision);
        }
        let since = before.as_ref().map_or_else(SystemTime::now, |before| before.since);
        self.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: held }));
    }

    /// The same for what was rejected.
    fn rename_rejected(&self, revision: Revision) {
        if let Some(rejected) = self.status.rejected.get().filter(|rejected| rejected.revision != revision) {
            self.status.rejected.set(Some(Rejection { revision, ..Rejection::clone(&rejected) }));
        }
    }

    fn reject(&self, problems: Vec<Problem>, revision: Revision) {
        debug_assert!(
            problems.iter().all(Problem::is_whole),
            "{problems:?} have one without a reason, or without advice"
        );
        let before = self.status.rejected.get();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.is_whole()) {
            return self.rename_rejected(revision);
        }
        tracing::error!(problems = problems.len(), "configuration rejected; the last good one stays in force");
        for problem in problems.iter().take(MAX_LOGGED_PROBLEMS) {
            tracing::error!("{problem}");
        }
        if let Some(more) = problems.len().checked_sub(MAX_LOGGED_PROBLEMS).filter(|more| *more > 0) {
            tracing::error!(more, "more problems: see /configz or `gatepost check`");
        }
        let since = before.map_or_else(SystemTime::now, |before| before.since);
        self.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: Vec::new() }));
    }

    /// Warning that hooks are guaranteed more connections than this process may have. It serves all the same: one that
    /// does not start lets no write pass.
    fn report_missing_connections(&mut self, hooks: usize) {
        /// Of so many files more, hooks get one at least (`runtime::resources`).
        const FILES_PER_CONNECTION: usize = 4;
        let connections = &self.placements.resources.connections;
        let (missing, limit) = (connections.missing(), connections.limit());
        if std::mem::replace(&mut self.logged_missing, missing) == missing || missing == 0 {
            return;
        }
        let effect = if hooks > limit { "calls to some hooks always fail" } else { "calls fail under load" };
        tracing::error!(
            hooks,
            connections = limit,
            missing,
            "too few open files for connections to this many hooks: {effect}; raise the hard limit of RLIMIT_NOFILE \
             (LimitNOFILE=, ulimit -Hn) by {}, which is always enough",
            FILES_PER_CONNECTION * missing
        );
    }

    fn report_failed_read(&mut self, error: ReadError) {
        // A peer that is no store of ours fails in several ways, in turn.
        if !self.read_failures.logged.contains(&error) && self.read_failures.logged.len() < MAX_LOGGED_CAUSES {
            tracing::warn!(%error, "cannot read the configuration; the one in force is getting old");
            self.read_failures.logged.push(error.clone());
        }
        let before = self.status.failed_read.get();
        self.status.failed_read.set(Some(FailedRead {
            error: error.to_string(),
            since: before.as_ref().map_or_else(SystemTime::now, |before| before.since),
            count: before.map_or(0, |before| before.count) + 1,
        }));
        let stale = !self.current.freshness().is_fresh(Instant::now().into_std());
        if stale && !self.read_failures.logged_stale {
            tracing::error!(after = ?self.current.freshness().trusted_for(), "the configuration is stale: every request is refused until it \
                                                   can be read");
            self.read_failures.logged_stale = true;
        }
    }

    fn report_recovery(&mut self) {
        if !std::mem::take(&mut self.read_failures.logged).is_empty() {
            tracing::info!(was_stale = self.read_failures.logged_stale, "reading the configuration again");
            self.status.failed_read.set(None);
        }
        self.read_failures.logged_stale = false;
    }
}

#[cfg(test)]
mod tests;
