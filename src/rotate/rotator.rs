//! Rotator: checks each read, and puts valid configurations in force.

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
    params::{ParamReads, ParamsRead},
    placements::Placements,
    probing::ProbeResult,
};
use crate::{
    hooks::Resources,
    live::{
        BreakGlassDocuments, ClusterObjects, ConfigurationStatus, Current, FailedRead, Generation, LiveHook,
        PendingConfirmation, QuarantinedDocument, Rejection,
        break_glass::{BreakGlassOrigin, ConfirmedDocuments},
    },
    source::{Contents, ReadError, TimedRead},
    telemetry::{Metrics, ReadOutcome},
};
use gatepost_api::{BreakGlass, Revision};
use gatepost_base::clock::{Moment, now};
use gatepost_config::{HeldBackDocument, LastGoodDocuments, Problem, Relaxation, Snapshot, break_glass};

/// Maximum number of logged problems of one rejected configuration.
const MAX_LOGGED_PROBLEMS: usize = 100;

/// Maximum number of logged causes of failed reads until the next good read.
const MAX_LOGGED_CAUSES: usize = 16;

/// Configuration in force, to be written to disk.
#[derive(Clone, Debug)]
pub struct InForce {
    /// States of its documents.
    pub documents: LastGoodDocuments,
    /// Digest of the configuration.
    pub digest: String,
    /// Revision of the configuration.
    pub revision: Revision,
    /// Start of the last read that found the source in this state.
    pub read: Moment,
}

/// Options of a [`Rotator`].
#[derive(Debug)]
pub struct RotatorOptions {
    /// Receives configurations that were read and are not in force.
    pub status: Arc<ConfigurationStatus>,
    /// Receives the break-glass documents of the source.
    pub break_glass: Arc<BreakGlassDocuments>,
    /// Runtimes of the threads that call hooks.
    pub workers: Vec<Handle>,
    /// Maximum duration of a drain.
    pub drain_bound: Duration,
    /// Treatment of hazards.
    pub on_hazard: OnHazard,
    /// Treatment of invalid documents as long as no configuration has been in force.
    pub on_invalid: OnInvalid,
    /// Checker of contents, with its cache.
    pub cache: CandidateCache,
    /// Resources that the connections to all hooks share.
    pub resources: Resources,
    /// Objects of the cluster that has the params of policies; `None` without one.
    pub objects: Option<Arc<ClusterObjects>>,
    /// States of the documents in force; at first of those that were in force before the process began.
    pub last_good: LastGoodDocuments,
    /// Receives the configuration in force after each read that confirms it.
    pub in_force: Option<watch::Sender<Option<InForce>>>,
}

impl RotatorOptions {
    /// Returns the default options, with these workers and this bound.
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
            objects: None,
            last_good: LastGoodDocuments::default(),
            in_force: None,
        }
    }
}

/// Checks reads, and puts valid configurations in force. Nothing else publishes generations.
#[derive(Debug)]
pub struct Rotator {
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    /// Options, of which `cache` and `last_good` change with each configuration.
    options: RotatorOptions,
    placements: Placements,
    params: ParamReads,
    drain: Drain,
    /// Digest of the contents checked last, valid or not: equal contents are not checked again.
    checked_digest: String,
    /// Digest of the contents with exactly the states of documents in `options.last_good`, or empty.
    last_good_digest: String,
    /// Candidate that waits for a second read with the same relaxations.
    pending_confirmation: Option<Candidate>,
    break_glass_documents: ConfirmedDocuments,
    /// True if the source has no transactions, so that the last read might be half written.
    may_be_truncated: bool,
    /// True once the configuration in force was read whole: in a transaction, or twice and equal. Until then the
    /// process is still starting.
    settled: bool,
    /// Errors of reads that were logged since the last good read, and whether a stale configuration was.
    logged_failures: Vec<ReadError>,
    logged_stale: bool,
    /// Number of guaranteed connections beyond the limit, as last logged.
    logged_missing: usize,
}

impl Rotator {
    /// Creates a rotator that publishes to `current`.
    pub fn new(current: Arc<Current>, metrics: Arc<Metrics>, options: RotatorOptions) -> Self {
        let RotatorOptions { workers, resources, drain_bound, .. } = &options;
        let placements = Placements::new(Arc::clone(&metrics), workers.clone(), resources.clone(), *drain_bound);
        let drain = Drain::new(*drain_bound);
        let params = ParamReads::new(options.objects.clone());
        Self {
            current,
            options,
            placements,
            params,
            metrics,
            drain,
            checked_digest: String::new(),
            last_good_digest: String::new(),
            pending_confirmation: None,
            break_glass_documents: ConfirmedDocuments::default(),
            may_be_truncated: true,
            settled: false,
            logged_failures: Vec::new(),
            logged_stale: false,
            logged_missing: 0,
        }
    }

    /// Applies reads until their channel is closed.
    pub async fn run(mut self, mut readings: mpsc::Receiver<TimedRead>) {
        loop {
            let overdue = self.placements.overdue_at;
            tokio::select! {
                reading = readings.recv() => match reading {
                    Some(reading) => self.apply_read(reading).await,
                    None => return,
                },
                Some(result) = self.placements.probe_result() => self.on_probe_result(result),
                Some(reads) = self.params.results() => self.on_params_read(reads),
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => self.mark_overdue_hooks(),
            }
        }
    }

    /// Applies one read: checks changed contents, and renews freshness.
    pub async fn apply_read(&mut self, reading: TimedRead) {
        let outcome = match reading.outcome {
            Ok(contents) => {
                let as_of = contents.as_of;
                self.report_recovery();
                let outcome = self.judge(contents).await;
                // After every outcome of a good read, but not before: until here, an older read is in force.
                self.stamp(reading.started, outcome);
                self.options.status.set_observed(as_of);
                outcome
            }
            Err(error) => {
                let kind = error.kind();
                if let Some(contents) = error.contents() {
                    self.apply_undated(contents.clone()).await;
                }
                self.report_failed_read(error);
                ReadOutcome::Failed(kind)
            }
        };
        self.metrics.config_read(outcome, reading.took);
        self.report_retired();
    }

    /// Renews freshness after a good read, if a configuration is in force.
    fn stamp(&self, started: Moment, outcome: ReadOutcome) {
        let in_force = self.current.load();
        // Before the first configuration, only the age `None` makes requests be rejected; see `runtime::last_good`.
        if in_force.number > 0 {
            match outcome {
                // Requests go on waiting for the change.
                ReadOutcome::Unconfirmed => self.current.freshness().renew(started),
                _ => self.current.freshness().stamp(started),
            }
            if let Some(sender) = &self.options.in_force {
                let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
                sender.send_replace(Some(InForce {
                    documents: self.options.last_good.clone(),
                    digest,
                    revision,
                    read: started,
                }));
            }
        }
    }

    /// Checks changed contents, and puts them in force if they are valid.
    async fn judge(&mut self, contents: Contents) -> ReadOutcome {
        if contents.digest == self.checked_digest {
            if let Some(candidate) = self.pending_confirmation.take() {
                return self.put_in_force(candidate);
            }
            if let Some(documents) = self.break_glass_documents.confirm() {
                self.apply_break_glass(documents);
            }
            self.settled |= self.last_good_digest == contents.digest;
            self.update_revision(&contents.digest, contents.revision);
            return ReadOutcome::Unchanged;
        }
        self.checked_digest.clone_from(&contents.digest);
        self.pending_confirmation = None;
        let revision = contents.revision.clone();
        let in_force = self.current.load();
        let pending = self.options.status.pending_confirmation.get();
        self.may_be_truncated = !contents.is_transactional();
        self.settled |= in_force.number > 0 && !self.may_be_truncated;
        let may_be_truncated = in_force.number > 0 && self.may_be_truncated;
        // Compiling a large configuration is slow, and this thread also accepts connections.
        let empty = self.options.cache.empty_copy();
        let mut cache = std::mem::replace(&mut self.options.cache, empty);
        let (on_hazard, starts) = (self.options.on_hazard, in_force.number == 0 && self.options.last_good.is_empty());
        let around = (!starts || self.options.on_invalid == OnInvalid::Skip).then(|| self.options.last_good.clone());
        let check = move || {
            let candidate = cache.candidate(&contents, on_hazard, around.as_ref());
            let candidate = candidate.map(|candidate| {
                let relaxes = || candidate.snapshot.relaxes(&in_force.snapshot);
                let relaxations = may_be_truncated.then(relaxes).unwrap_or_default();
                (candidate, relaxations)
            });
            (candidate.map_err(|problems| (problems, cache.break_glass())), cache)
        };
        match spawn_blocking(check).await {
            Ok((candidate, cache)) => {
                self.options.cache = cache;
                match candidate {
                    // The previous read relaxed the same checks. Other bytes may change with every read.
                    Ok((candidate, relaxations))
                        if relaxations.is_empty() || pending.is_some_and(|it| it.relaxations == relaxations) =>
                    {
                        return self.put_in_force(candidate);
                    }
                    Ok((candidate, relaxations)) => {
                        self.await_confirmation(candidate, relaxations);
                        return ReadOutcome::Unconfirmed;
                    }
                    Err((problems, break_glass)) => {
                        self.options.status.pending_confirmation.set(None);
                        // Break-glass applies even if other documents are invalid.
                        self.apply_read_break_glass(break_glass);
                        self.reject(problems, revision);
                    }
                }
            }
            // A bug in Gatepost: the configuration in force stays, and these contents are reported as rejected.
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

    /// Delays a candidate that enforces less than the configuration in force and might be half written: a second read
    /// with the same relaxations puts it in force. All of it waits, since a configuration is in force as a whole,
    /// except its break-glass.
    fn await_confirmation(&mut self, candidate: Candidate, relaxations: Vec<Relaxation>) {
        let (first, count) = (relaxations.first().map(ToString::to_string), relaxations.len());
        tracing::info!(
            first,
            count,
            "the configuration enforces less than before; it is in force once a second read confirms that"
        );
        self.report_quarantined(&candidate);
        self.apply_read_break_glass(candidate.break_glass.clone());
        let since = self.options.status.pending_confirmation.get().map_or_else(SystemTime::now, |before| before.since);
        let (_, revision) = &candidate.read;
        let revision = revision.clone();
        self.options.status.pending_confirmation.set(Some(PendingConfirmation { relaxations, revision, since }));
        self.pending_confirmation = Some(candidate);
    }

    /// Publishes the configuration in force under the newer revision of equal contents, for which a client might be
    /// waiting. If other contents are in force, updates the revision of the rejection.
    fn update_revision(&mut self, digest: &str, revision: Revision) {
        let in_force = self.current.load();
        if in_force.digest != digest {
            self.update_rejected_revision(revision);
        } else if in_force.revision != revision {
            self.publish_again(&in_force, revision, in_force.hooks.clone());
        }
    }

    /// Puts a candidate in force. Hooks of the first configuration, and hooks added before it was read whole, are
    /// called immediately; hooks added later are probed first.
    pub fn put_in_force(&mut self, candidate: Candidate) -> ReadOutcome {
        let (read_digest, _) = &candidate.read;
        self.checked_digest.clone_from(read_digest);
        if !candidate.restored {
            self.apply_read_break_glass(candidate.break_glass.clone());
            self.report_quarantined(&candidate);
            self.report_last_good_unused(&candidate);
        }
        self.pending_confirmation = None;
        self.options.status.pending_confirmation.set(None);
        let in_force = self.current.load();
        // The state in force of a quarantined document is not in these contents, so equal reads confirm nothing.
        self.last_good_digest = if candidate.quarantined.is_empty() { read_digest.clone() } else { String::new() };
        let former = std::mem::replace(&mut self.options.last_good, candidate.documents.clone());
        // If all changed documents are quarantined, the configuration in force keeps its revision.
        if in_force.number > 0 && !candidate.quarantined.is_empty() && former.is(&self.options.last_good) {
            return ReadOutcome::Rejected;
        }
        let outcome = if candidate.quarantined.is_empty() { ReadOutcome::Changed } else { ReadOutcome::HeldBack };
        if in_force.number > 0 && in_force.digest == candidate.digest {
            self.update_revision(&candidate.digest, candidate.revision);
            return outcome;
        }
        log_findings(candidate.snapshot.findings(), in_force.snapshot.findings());
        let recently_left = self.drain.recently_left();
        let hooks = self.placements.place(&in_force, &candidate, &recently_left, !self.settled);
        self.publish(&in_force, candidate.digest, candidate.revision, candidate.snapshot, hooks);
        outcome
    }

    /// Applies contents that must not renew freshness: puts them in force, for their bypass rules and break-glass.
    /// While the configuration in force is fresh (from the last good one on disk), only break-glass applies.
    async fn apply_undated(&mut self, contents: Contents) {
        if self.current.freshness().is_fresh(now()) {
            self.apply_break_glass(break_glass(&contents.files));
        } else {
            self.judge(contents).await;
        }
    }

    /// Applies the break-glass documents of the last read. If it might be half written, some of them need a second
    /// read.
    fn apply_read_break_glass(&mut self, documents: Vec<BreakGlass>) {
        let documents = if self.may_be_truncated { self.break_glass_documents.apply(documents) } else { documents };
        self.apply_break_glass(documents);
    }

    fn apply_break_glass(&self, documents: Vec<BreakGlass>) {
        self.options.break_glass.set_documents(BreakGlassOrigin::Source, documents, now(), SystemTime::now());
    }

    fn on_probe_result(&mut self, result: ProbeResult) {
        let in_force = self.current.load();
        if let Some(hooks) = self.placements.on_probe_result(result, &in_force) {
            self.publish_again(&in_force, in_force.revision.clone(), hooks);
        }
    }

    /// Evaluates the bindings whose params have been read.
    fn on_params_read(&mut self, reads: Vec<ParamsRead>) {
        let in_force = self.current.load();
        match self.params.apply(reads, &in_force.policies) {
            true => self.publish_again(&in_force, in_force.revision.clone(), in_force.hooks.clone()),
            false => self.report_awaited_params(&in_force),
        }
    }

    fn report_awaited_params(&self, in_force: &Generation) {
        self.options.status.awaited_params.set(self.params.awaited(&in_force.policies));
    }

    /// Reports overdue hooks, and enforces those that have `onProbeFailure: Enforce`.
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
        let mut generation = Generation::of(snapshot, &self.metrics);
        self.params.place(old, &mut generation.policies, !self.settled);
        let new = Arc::new(Generation { number, digest, revision, hooks, ..generation });
        // Hooks are retired before the swap: a reader finds each hook in force or among the retired.
        let hub = self.current.hub();
        self.drain.retire_missing(old, &new, hub);
        if !self.settled {
            hub.desk(|desk| new.snapshot.claimable().for_each(|name| desk.enforce(name)));
        }
        self.report_retired();
        self.current.publish(Arc::clone(&new));
        self.report_awaited_params(&new);
        // Each worker drops its cached generation: that of an idle worker would never finish draining.
        for worker in &self.options.workers {
            let current = Arc::clone(&self.current);
            worker.spawn(async move { current.refresh() });
        }
        self.report_missing_connections(new.hooks.len());
        let probing = new.hooks.iter().filter(|live| !live.is_in_place()).count();
        let (revision, hooks) = (&new.revision, new.hooks.len());
        let initializers = new.snapshot.initializer_count();
        tracing::info!(generation = number, %revision, hooks, probing, initializers, "in force");
    }

    fn report_retired(&mut self) {
        if let Some(retired) = self.drain.retired_if_changed(self.current.hub()) {
            self.options.status.set_retired(retired);
        }
    }

    /// Reports that the last good configuration on disk is no longer in use, once no document in force comes from it.
    fn report_last_good_unused(&self, candidate: &Candidate) {
        let in_use = self.options.status.last_good.get().is_some_and(|state| state.in_use.is_some());
        if in_use && candidate.quarantined.iter().all(|held| !held.keeps) {
            tracing::info!("the last good configuration on disk is no longer in use");
            self.options.status.update_last_good(|state| state.in_use = None);
        }
    }

    /// Reports the quarantined documents of the newest configuration; clears the rejection if there are none.
    fn report_quarantined(&self, candidate: &Candidate) {
        if candidate.quarantined.is_empty() {
            if self.options.status.rejected.get().is_some() {
                tracing::info!("configuration is valid again");
                self.options.status.rejected.set(None);
            }
            return;
        }
        let (_, revision) = &candidate.read;
        let (before, revision) = (self.options.status.rejected.get(), revision.clone());
        let reported: HashMap<_, _> =
            before.iter().flat_map(|before| &before.quarantined).map(|held| (&*held.document, held)).collect();
        let held_back = |held: &HeldBackDocument| {
            let problem = held.problems.first()?.clone();
            let since = reported.get(&*held.file).map_or_else(SystemTime::now, |last| last.since);
            let (document, problems) = (held.file.clone(), held.problems.len());
            Some(QuarantinedDocument { document, last_good_in_force: held.keeps, since, problem, problems })
        };
        let held: Vec<_> = candidate.quarantined.iter().filter_map(held_back).collect();
        let news = held.iter().filter(|held| {
            reported
                .get(&*held.document)
                .is_none_or(|last| last.problem != held.problem || last.last_good_in_force != held.last_good_in_force)
        });
        for held in news.take(MAX_LOGGED_PROBLEMS) {
            let (document, problems, problem) = (&held.document, held.problems, &held.problem);
            tracing::error!(document, problems, %problem, "document held back: {}", held.effect());
        }
        let documents: HashSet<_> = held.iter().map(|held| &*held.document).collect();
        for gone in reported.keys().filter(|document| !documents.contains(**document)).take(MAX_LOGGED_PROBLEMS) {
            tracing::info!(document = gone, "document is no longer held back");
        }
        let problems: Vec<_> = candidate.quarantined.iter().flat_map(|held| held.problems.iter().cloned()).collect();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.quarantined == held) {
            return self.update_rejected_revision(revision);
        }
        let since = before.as_ref().map_or_else(SystemTime::now, |before| before.since);
        self.options.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: held }));
    }

    /// Updates the revision of the rejected contents.
    fn update_rejected_revision(&self, revision: Revision) {
        if let Some(rejected) = self.options.status.rejected.get().filter(|rejected| rejected.revision != revision) {
            self.options.status.rejected.set(Some(Rejection { revision, ..Rejection::clone(&rejected) }));
        }
    }

    fn reject(&self, problems: Vec<Problem>, revision: Revision) {
        debug_assert!(
            problems.iter().all(Problem::is_whole),
            "{problems:?} have one without a reason, or without advice"
        );
        let before = self.options.status.rejected.get();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.is_whole()) {
            return self.update_rejected_revision(revision);
        }
        tracing::error!(problems = problems.len(), "configuration rejected; the last good one stays in force");
        for problem in problems.iter().take(MAX_LOGGED_PROBLEMS) {
            tracing::error!("{problem}");
        }
        if let Some(more) = problems.len().checked_sub(MAX_LOGGED_PROBLEMS).filter(|more| *more > 0) {
            tracing::error!(more, "more problems: see /configz or `gatepost check`");
        }
        let since = before.map_or_else(SystemTime::now, |before| before.since);
        self.options.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: Vec::new() }));
    }

    /// Logs an error if hooks are guaranteed more connections than this process may open. The process serves
    /// nevertheless: one that does not start allows no write.
    fn report_missing_connections(&mut self, hooks: usize) {
        /// Number of additional open files that give hooks at least one more connection (`runtime::resources`).
        const FILES_PER_CONNECTION: usize = 4;
        let connections = &self.options.resources.connections;
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
        // A wrong peer alternates between several errors, so each is logged once.
        if !self.logged_failures.contains(&error) && self.logged_failures.len() < MAX_LOGGED_CAUSES {
            tracing::warn!(%error, "cannot read the configuration; the one in force is getting old");
            self.logged_failures.push(error.clone());
        }
        let before = self.options.status.failed_read.get();
        self.options.status.failed_read.set(Some(FailedRead {
            error: error.to_string(),
            since: before.as_ref().map_or_else(SystemTime::now, |before| before.since),
            count: before.map_or(0, |before| before.count) + 1,
        }));
        let stale = !self.current.freshness().is_fresh(now());
        if stale && !self.logged_stale {
            tracing::error!(after = ?self.current.freshness().stale_after(), "the configuration is stale: every request is refused until it \
                                                   can be read");
            self.logged_stale = true;
        }
    }

    fn report_recovery(&mut self) {
        if !std::mem::take(&mut self.logged_failures).is_empty() {
            tracing::info!(was_stale = self.logged_stale, "reading the configuration again");
            self.options.status.failed_read.set(None);
        }
        self.logged_stale = false;
    }
}

#[cfg(test)]
mod tests;
