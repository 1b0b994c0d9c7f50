//! Rotator: takes readings and puts what is good into force.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{runtime::Handle, sync::mpsc, task::spawn_blocking};

use super::{
    Candidate, OnHazard,
    candidate::Known,
    draining::Drain,
    on_hazard,
    probing::{ProbeNews, Probing, posts},
    seating::{Seat, Seated, seat},
};
use crate::{
    clock::Moment,
    hooks::{Channel, ProbePost},
    live::{
        Current, Event, FailedRead, Generation, LiveHook, Rejection, Rotation, break_glass::Place, current::STALE_AFTER,
    },
    memory::MemoryBudget,
    model::{BreakGlass, Endpoint, Hook, Revision},
    snapshot::{Problem, Snapshot},
    source::{Contents, ReadError, Reading},
    telemetry::{Metrics, ReadOutcome},
};

/// So many causes of failed reads are told until one is good again.
const MOST_CAUSES: usize = 16;

/// Takes readings and puts what is good into force. The only one who publishes.
#[derive(Debug)]
pub struct Rotator {
    current: Arc<Current>,
    metrics: Arc<Metrics>,
    workers: Vec<Handle>,
    on_hazard: OnHazard,
    /// What hooks' answers are held in.
    budget: Arc<MemoryBudget>,
    /// Digest of what was judged last, good or not: it need not be judged again.
    judged: String,
    known: Known,
    /// Endpoints not yet seen to answer.
    probing: HashMap<Endpoint, Probing>,
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
            budget: MemoryBudget::unlimited(),
            judged: String::new(),
            known: Known::default(),
            probing: HashMap::new(),
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

    /// Hooks' answers are held in this budget, with what else it holds.
    pub fn with_budget(self, budget: Arc<MemoryBudget>) -> Self {
        Self { budget, ..self }
    }

    /// Takes readings until no more can come.
    pub async fn run(mut self, mut readings: mpsc::Receiver<Reading>) {
        loop {
            tokio::select! {
                reading = readings.recv() => match reading {
                    Some(reading) => self.take(reading).await,
                    None => return,
                },
                Some(news) = self.probe_news.1.recv() => self.hear(news),
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
            self.rename(&contents.digest, contents.revision);
            return ReadOutcome::Unchanged;
        }
        self.judged.clone_from(&contents.digest);
        let revision = contents.revision.clone();
        // Compiling a large configuration takes a while, and this thread accepts connections too.
        let mut known = std::mem::take(&mut self.known);
        let on_hazard = self.on_hazard;
        let check = move || {
            let candidate = known.candidate(&contents, on_hazard);
            (candidate.map_err(|problems| (problems, known.break_glass())), known)
        };
        match spawn_blocking(check).await {
            Ok((candidate, known)) => {
                self.known = known;
                match candidate {
                    Ok(candidate) => {
                        self.put_in_force(candidate);
                        return ReadOutcome::Changed;
                    }
                    Err((problems, break_glass)) => {
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
    fn open(&self, documents: Vec<BreakGlass>) {
        let now = tokio::time::Instant::now().into_std();
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
        for problem in &problems {
            tracing::error!("{problem}");
        }
        let since = before.map_or_else(SystemTime::now, |before| before.since);
        self.current.set_rejected(Some(Rejection { problems, revision, since }));
    }

    /// Puts a candidate in force. Everything in the first one is asked at once; what a later one adds is probed first.
    pub fn put_in_force(&mut self, candidate: Candidate) {
        self.judged.clone_from(&candidate.digest);
        self.open(candidate.break_glass.clone());
        if self.current.rejected().is_some() {
            tracing::info!("configuration is good again");
            self.current.set_rejected(None);
        }
        let in_force = self.current.load();
        if in_force.number > 0 && in_force.digest == candidate.digest {
            self.rename(&candidate.digest, candidate.revision);
            return;
        }
        on_hazard::tell(candidate.snapshot.findings(), in_force.snapshot.findings());
        let hooks = self.seated(&in_force, &candidate);
        let wait: HashSet<_> =
            hooks.iter().filter(|live| !at_its_place(live)).map(|live| &live.hook.endpoint).collect();
        self.probing.retain(|endpoint, _| wait.contains(endpoint));
        self.publish(&in_force, candidate.digest, candidate.revision, candidate.snapshot, hooks);
    }

    fn seated(&mut self, in_force: &Generation, candidate: &Candidate) -> Vec<LiveHook> {
        let seated: Vec<_> = in_force.hooks.iter().map(seated).collect();
        let new = candidate.snapshot.hooks.iter().map(|hook| (&*hook.id, &hook.endpoint));
        let seats = seat((in_force.number > 0).then_some(&seated), new);
        let posts = posts(&candidate.snapshot.hooks, &seats);
        let mut opened = HashMap::new();
        let mut hooks = Vec::with_capacity(seats.len());
        for (hook, seat) in candidate.snapshot.hooks.iter().zip(seats) {
            // Looking the counters up takes a lock and compares names.
            let metrics = |old: &LiveHook| match old.hook.name == hook.name {
                true => Arc::clone(&old.metrics),
                false => self.metrics.hook(&hook.name),
            };
            let (channel, rotation, replacing, metrics) = match seat {
                Seat::First => {
                    let open = || {
                        let (endpoint, tls) = (hook.endpoint.clone(), candidate.tls(&hook.endpoint));
                        Channel::open_within(Arc::clone(&self.budget), endpoint, tls, &self.workers)
                    };
                    let channel = opened.entry(&hook.endpoint).or_insert_with(open);
                    (
                        Arc::clone(channel),
                        Rotation::Active { since: SystemTime::now() },
                        None,
                        self.metrics.hook(&hook.name),
                    )
                }
                Seat::Proven(place) => {
                    let old = &in_force.hooks[place];
                    (Arc::clone(&old.channel), old.rotation.clone(), None, metrics(old))
                }
                Seat::Unproven => {
                    let metrics = self.metrics.hook(&hook.name);
                    let probing = self.probing(hook, candidate, posts.get(&hook.endpoint));
                    (Arc::clone(&probing.channel), probing.rotation(), None, metrics)
                }
                Seat::Moving(place) => {
                    let old = &in_force.hooks[place];
                    let metrics = metrics(old);
                    let probing = self.probing(hook, candidate, posts.get(&hook.endpoint));
                    let replacement = probing.replacement();
                    (Arc::clone(&old.channel), old.rotation.clone(), Some(replacement), metrics)
                }
            };
            hooks.push(LiveHook { hook: Arc::clone(hook), channel, rotation, replacing, metrics });
        }
        hooks
    }

    /// The hook's endpoint as it is being probed, by this post, from now on if it was not.
    fn probing(&mut self, hook: &Hook, candidate: &Candidate, post: Option<&ProbePost>) -> &Probing {
        let endpoint = &hook.endpoint;
        let probing = self.probing.entry(endpoint.clone()).or_insert_with(|| {
            tracing::info!(hook = %hook.name, %endpoint, "hook is probed before it is asked there");
            let (budget, tls) = (Arc::clone(&self.budget), candidate.tls(endpoint));
            let channel = Channel::open_within(budget, endpoint.clone(), tls, &self.workers);
            Probing::begin(channel, post.cloned(), self.probe_news.0.clone())
        });
        probing.change_post(post);
        probing
    }

    fn hear(&mut self, news: ProbeNews) {
        let endpoint = news.channel.endpoint();
        let Some(probing) = self.probing.get_mut(endpoint).filter(|probing| probing.believes(&news)) else { return };
        match news.outcome {
            Ok(()) => drop(self.probing.remove(endpoint)),
            Err(failure) if probing.last_failure() == Some(&failure) => return,
            Err(failure) => {
                tracing::warn!(%endpoint, step = %failure.step, %failure, "probe failed; the hook is not asked there");
                probing.failed(failure);
            }
        }
        let in_force = self.current.load();
        let hooks = in_force.hooks.iter().map(|live| reseated(live, endpoint, self.probing.get(endpoint))).collect();
        let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
        self.publish(&in_force, digest, revision, Arc::clone(&in_force.snapshot), hooks);
    }

    fn publish(
        &mut self,
        old: &Arc<Generation>,
        digest: String,
        revision: Revision,
        snapshot: Arc<Snapshot>,
        hooks: Vec<LiveHook>,
    ) {
        let number = old.number + 1;
        let bypassed = snapshot.bypasses().iter().map(|bypass| self.metrics.bypass(&bypass.name)).collect();
        let published = SystemTime::now();
        let new = Arc::new(Generation { number, digest, revision, published, snapshot, hooks, bypassed });
        // Departures first: whoever looks finds a hook in force, or among the departed, and never in neither.
        self.drain.replaced(old, &new);
        self.tell_departed();
        self.current.publish(Arc::clone(&new));
        self.tell_workers();
        let probing = new.hooks.iter().filter(|live| !at_its_place(live)).count();
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
        let stale = !self.current.is_fresh(tokio::time::Instant::now().into_std());
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

fn seated(live: &LiveHook) -> Seated<'_> {
    Seated { id: &live.hook.id, endpoint: live.channel.endpoint(), asked: live.rotation.asks() }
}

/// Asked, and where the configuration says.
fn at_its_place(live: &LiveHook) -> bool {
    live.rotation.asks() && live.replacing.is_none()
}

/// The hook after news of `endpoint`, which is still being probed, or no longer since it has passed.
fn reseated(live: &LiveHook, endpoint: &Endpoint, probing: Option<&Probing>) -> LiveHook {
    let mut live = live.clone();
    if live.hook.endpoint != *endpoint || at_its_place(&live) {
        return live;
    }
    match probing {
        Some(probing) if live.replacing.is_some() => live.replacing = Some(probing.replacement()),
        Some(probing) => live.rotation = probing.rotation(),
        None => {
            tracing::info!(hook = %live.hook.name, %endpoint, "hook enters rotation");
            live.channel = live.replacing.take().map_or(live.channel, |replacement| replacement.channel);
            live.rotation = live.rotation.after(Event::ProbePassed, SystemTime::now()).unwrap_or(live.rotation);
        }
    }
    live
}

#[cfg(test)]
mod tests;
