//! Placements: where each hook is called. A pure function, [`place_hooks`], decides which hooks of a new snapshot are
//! called immediately and which must be probed first. [`Placements`] applies its decision, probes new endpoints, and
//! detects hooks that have waited too long for a probe to pass.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{runtime::Handle, sync::mpsc, time::Instant};

use super::{
    candidate::Candidate,
    probing::{ProbeResult, Probing},
};
use crate::{
    hooks::{Channel, ProbePost, Resources},
    live::{CallTarget, Generation, LiveHook, Overdue, Rotation, RotationEvent},
    telemetry::Metrics,
};
use gatepost_api::{Endpoint, Hook, OnProbeFailure, Rollout};
use gatepost_config::Snapshot;

/// Maximum number of removed hooks whose waiting time is remembered; beyond it, all of these are dropped.
const MAX_REMEMBERED_HOOKS: usize = 4096;

/// Hook in the generation in force.
#[derive(Clone, Copy, Debug)]
pub struct HookInForce<'a> {
    /// Id of the hook: names need not be unique.
    pub id: &'a str,
    /// Endpoint at which the hook is called, or would be.
    pub endpoint: &'a Endpoint,
    /// True if the hook is called, and its endpoint has passed a probe or is in the first configuration.
    pub proven: bool,
}

/// Placement of a hook of the new snapshot. Numbers are indices of hooks in the generation in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Called over a new connection: the process has just started, and a restart must never enforce less.
    Bootstrap,
    /// Called over the connection of that hook, which is already called at the same endpoint.
    Reuse(usize),
    /// Called over the connection of a proven hook that left the endpoint recently, or over a new one. The number is an
    /// index into `recently_left` of [`place_hooks`].
    Rejoin(usize),
    /// Not called before a probe of its endpoint has passed.
    ProbeFirst,
    /// Called at its former endpoint, over the connection of that hook (itself in the generation in force), until a
    /// probe of the new endpoint has passed.
    Migrate(usize),
}

impl Placement {
    /// Returns the placement while the process is starting, when no hook waits for a probe. The file that was read
    /// first may have been half written, and a restart must enforce the rest of it, too.
    pub fn while_starting(self) -> Self {
        if self.is_probed() { Self::Bootstrap } else { self }
    }

    fn is_probed(self) -> bool {
        matches!(self, Self::ProbeFirst | Self::Migrate(_))
    }
}

/// Places each hook (id and endpoint) of a new snapshot. `in_force` is `None` if there was no snapshot before;
/// `recently_left` are the endpoints that proven hooks left recently.
pub fn place_hooks<'a>(
    in_force: Option<&[HookInForce<'_>]>,
    recently_left: &[&Endpoint],
    new: impl Iterator<Item = (&'a str, &'a Endpoint)>,
) -> Vec<Placement> {
    let Some(in_force) = in_force else { return new.map(|_| Placement::Bootstrap).collect() };
    let (mut by_id, mut by_endpoint) = (HashMap::new(), HashMap::new());
    for (place, old) in in_force.iter().enumerate().filter(|(_, old)| old.proven) {
        by_id.entry(old.id).or_insert(place);
        by_endpoint.entry(old.endpoint).or_insert(place);
    }
    let recently_left: HashMap<&Endpoint, usize> = recently_left.iter().copied().zip(0..).collect();
    new.map(|(id, endpoint)| {
        // The hook's own endpoint has priority, so that the hook keeps its connections.
        let same_hook = by_id.get(id).copied();
        if let Some(place) = same_hook
            && in_force[place].endpoint == endpoint
        {
            return Placement::Reuse(place);
        }
        if let Some(place) = by_endpoint.get(endpoint) {
            return Placement::Reuse(*place);
        }
        if let Some(place) = recently_left.get(endpoint) {
            return Placement::Rejoin(*place);
        }
        same_hook.map_or(Placement::ProbeFirst, Placement::Migrate)
    })
    .collect()
}

/// Placements of the hooks in force, and the state that generations need for them.
#[derive(Debug)]
pub(super) struct Placements {
    metrics: Arc<Metrics>,
    workers: Vec<Handle>,
    /// Resources that the connections to all hooks share.
    resources: Resources,
    /// Endpoints that have not passed a probe yet.
    pub(super) probing: HashMap<Endpoint, Probing>,
    probe_results: (mpsc::Sender<ProbeResult>, mpsc::Receiver<ProbeResult>),
    /// Wait of each hook, by id. It continues if the hook's entry or endpoint changes, or is removed for a short time.
    waiting: HashMap<Arc<str>, Wait>,
    /// Time at which the next hook is overdue, unless a probe passes before.
    pub(super) overdue_at: Option<Instant>,
    /// Time for which the wait of a removed hook is remembered.
    remembered_for: Duration,
}

/// Wait of a hook for its endpoint to pass a probe.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: (Instant, SystemTime),
    /// True if the overdue hook was logged.
    overdue_logged: bool,
    /// Time since which the hook is not in the configuration.
    removed_at: Option<Instant>,
}

impl Placements {
    pub(super) fn new(
        metrics: Arc<Metrics>,
        workers: Vec<Handle>,
        resources: Resources,
        remembered_for: Duration,
    ) -> Self {
        Self {
            metrics,
            workers,
            resources,
            probing: HashMap::new(),
            probe_results: mpsc::channel(64),
            waiting: HashMap::new(),
            overdue_at: None,
            remembered_for,
        }
    }

    /// Waits for the result of a probe.
    pub(super) async fn probe_result(&mut self) -> Option<ProbeResult> {
        let (_, results) = &mut self.probe_results;
        results.recv().await
    }

    /// Places the candidate's hooks, and probes endpoints that must pass first. `recently_left` are the endpoints that
    /// proven hooks left recently, with their channels. While `starting`, no hook waits for a probe.
    pub(super) fn place(
        &mut self,
        in_force: &Generation,
        candidate: &Candidate,
        recently_left: &[(Endpoint, Option<Arc<Channel>>)],
        starting: bool,
    ) -> Vec<LiveHook> {
        let former = in_force.hooks.iter().map(|live| HookInForce {
            id: &live.hook.id,
            endpoint: live.target.endpoint(),
            proven: live.is_proven(),
        });
        let former: Vec<_> = former.collect();
        let new = candidate.snapshot.hooks.iter().map(|hook| (&*hook.id, &hook.endpoint));
        let proven: Vec<_> = recently_left.iter().map(|(endpoint, _)| endpoint).collect();
        let mut placements = place_hooks((in_force.number > 0).then_some(&former), &proven, new);
        if starting {
            placements.iter_mut().for_each(|placement| *placement = placement.while_starting());
        }
        let posts = probe_posts(&candidate.snapshot.hooks, &placements);
        let mut channels = HashMap::new();
        let mut hooks = Vec::with_capacity(placements.len());
        for (hook, placement) in candidate.snapshot.hooks.iter().zip(placements) {
            // Getting the metrics takes a lock and compares names.
            let metrics = |old: &LiveHook| match (&old.hook.name, old.hook.hook_type) == (&hook.name, hook.hook_type) {
                true => Arc::clone(&old.metrics),
                false => self.metrics.hook(hook.hook_type, &hook.name),
            };
            // Endpoint, path, form and versions are all of one entry, never a mixture of two.
            let (target, rotation, replacing, metrics) = match placement {
                Placement::Bootstrap | Placement::Rejoin(_) => {
                    let held = match placement {
                        Placement::Rejoin(place) => recently_left[place].1.clone(),
                        _ => None,
                    };
                    let open = || held.unwrap_or_else(|| self.open(&hook.endpoint, candidate));
                    let channel = channels.entry(&hook.endpoint).or_insert_with(open);
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(channel));
                    let rotation = Rotation::Active { since: SystemTime::now() };
                    (target, rotation, None, self.metrics.hook(hook.hook_type, &hook.name))
                }
                Placement::Reuse(place) => {
                    let old = &in_force.hooks[place];
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(&old.target.channel));
                    (target, old.rotation.clone(), None, metrics(old))
                }
                Placement::ProbeFirst => {
                    let metrics = self.metrics.hook(hook.hook_type, &hook.name);
                    let probing = self.probe(hook, candidate, posts.get(&hook.endpoint));
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(&probing.channel));
                    (target, probing.rotation(), None, metrics)
                }
                Placement::Migrate(place) => {
                    let old = &in_force.hooks[place];
                    let metrics = metrics(old);
                    let probing = self.probe(hook, candidate, posts.get(&hook.endpoint));
                    (old.target.clone(), old.rotation.clone(), Some(probing.replacement()), metrics)
                }
            };
            hooks.push(LiveHook { hook: Arc::clone(hook), target, rotation, replacing, overdue: None, metrics });
        }
        let wait: HashSet<_> =
            hooks.iter().filter(|live| !live.is_in_place()).map(|live| &live.hook.endpoint).collect();
        self.probing.retain(|endpoint, _| wait.contains(endpoint));
        hooks
    }

    fn open(&self, endpoint: &Endpoint, candidate: &Candidate) -> Arc<Channel> {
        Channel::open_within(&self.resources, endpoint.clone(), candidate.tls(endpoint), &self.workers)
    }

    /// Returns the probing of the hook's endpoint with this review; starts it if there is none.
    fn probe(&mut self, hook: &Hook, candidate: &Candidate, post: Option<&ProbePost>) -> &Probing {
        let endpoint = &hook.endpoint;
        if !self.probing.contains_key(endpoint) {
            tracing::info!(hook = %hook.name, %endpoint, "probing the hook before it is called there");
            let channel = self.open(endpoint, candidate);
            let (results, _) = &self.probe_results;
            let probing = Probing::begin(channel, post.cloned(), results.clone());
            self.probing.insert(endpoint.clone(), probing);
        }
        let probing = &self.probing[endpoint];
        probing.change_post(post);
        probing
    }

    /// Returns the hooks in force after this result of a probe; `None` if it changes nothing.
    pub(super) fn on_probe_result(&mut self, result: ProbeResult, in_force: &Generation) -> Option<Vec<LiveHook>> {
        let endpoint = result.channel.endpoint();
        let probing = self.probing.get_mut(endpoint).filter(|probing| probing.is_current(&result))?;
        match result.outcome {
            Ok(()) => drop(self.probing.remove(endpoint)),
            Err(failure) if probing.last_failure.as_ref() == Some(&failure) => return None,
            Err(failure) => {
                // The hook's text may be logged: a probe sends no user's object that the text could repeat. Enforced
                // overdue hooks are called although their probe fails.
                let called =
                    in_force.hooks.iter().any(|live| live.target.endpoint() == endpoint && live.rotation.is_called());
                let hook = if called { "is asked there all the same" } else { "is not asked there" };
                tracing::warn!(%endpoint, step = %failure.step, %failure, "probe failed; the hook {hook}");
                probing.last_failure = Some(failure);
            }
        }
        let probing = self.probing.get(endpoint);
        Some(in_force.hooks.iter().map(|live| after_probe(live, endpoint, probing)).collect())
    }

    /// Marks the overdue ones of these hooks, which are about to be published. An overdue hook with `onProbeFailure:
    /// Enforce` enters rotation unproven.
    pub(super) fn mark_overdue_hooks(&mut self, snapshot: &Snapshot, hooks: &mut [LiveHook]) {
        let (now, clock) = (Instant::now(), SystemTime::now());
        self.overdue_at = None;
        self.waiting.retain(|_, wait| wait.removed_at.is_none_or(|removed_at| now < removed_at + self.remembered_for));
        let mut waiting = HashSet::new();
        for (index, live) in (0..).zip(hooks) {
            if live.is_in_place() {
                self.waiting.remove(&live.hook.id);
                continue;
            }
            waiting.insert(Arc::clone(&live.hook.id));
            let rollout = snapshot.origin(index).map_or_else(Rollout::default, |origin| origin.rollout);
            let wait = Wait { since: (now, clock), overdue_logged: false, removed_at: None };
            let wait = self.waiting.entry(Arc::clone(&live.hook.id)).or_insert(wait);
            wait.removed_at = None;
            let (since, since_clock) = wait.since;
            let due = since + rollout.probe_within;
            if now < due {
                live.overdue = None;
                self.overdue_at = Some(self.overdue_at.map_or(due, |first| first.min(due)));
                continue;
            }
            let last_failure = match (&live.replacing, &live.rotation, &live.overdue) {
                (Some(replacing), ..) => replacing.last_failure.clone(),
                (None, Rotation::Probing { last_failure, .. }, _) => last_failure.clone(),
                (None, _, overdue) => overdue.as_ref().and_then(|overdue| overdue.last_failure.clone()),
            };
            if live.replacing.is_none() && rollout.on_probe_failure == OnProbeFailure::Enforce {
                live.rotation = Rotation::Active { since: since_clock + rollout.probe_within };
            }
            live.overdue = Some(Overdue { since: since_clock, within: rollout.probe_within, last_failure });
            if !std::mem::replace(&mut wait.overdue_logged, true) {
                log_overdue(live);
            }
        }
        for (_, wait) in self.waiting.iter_mut().filter(|(id, _)| !waiting.contains(*id)) {
            wait.removed_at.get_or_insert(now);
        }
        if self.waiting.len() - waiting.len() > MAX_REMEMBERED_HOOKS {
            self.waiting.retain(|_, wait| wait.removed_at.is_none());
        }
    }
}

fn log_overdue(live: &LiveHook) {
    let Some(overdue) = &live.overdue else { return };
    let (hook, within) = (&*live.hook.name, humantime::format_duration(overdue.within));
    let failure = overdue.last_failure.as_ref().map_or_else(|| "no probe has ended".to_owned(), ToString::to_string);
    let what = live.overdue_effect().unwrap_or_default();
    tracing::error!(hook, %within, failure, "hook is overdue, it has passed no probe in time: {what}");
}

/// Returns the review to post to each endpoint that must pass a probe: that of its first hook in the configuration to
/// which a canned review may be posted.
fn probe_posts<'a>(hooks: &'a [Arc<Hook>], placements: &[Placement]) -> HashMap<&'a Endpoint, ProbePost> {
    let mut posts = HashMap::new();
    for (hook, _) in hooks.iter().zip(placements).filter(|(_, placement)| placement.is_probed()) {
        if let Some(post) = ProbePost::for_hook(hook) {
            posts.entry(&hook.endpoint).or_insert(post);
        }
    }
    posts
}

/// Returns the hook after a probe of `endpoint`. `probing` is `None` if the probe has passed.
fn after_probe(live: &LiveHook, endpoint: &Endpoint, probing: Option<&Probing>) -> LiveHook {
    let mut live = live.clone();
    if live.hook.endpoint != *endpoint || live.is_in_place() {
        return live;
    }
    match probing {
        Some(probing) if live.replacing.is_some() => live.replacing = Some(probing.replacement()),
        Some(probing) => live.rotation = probing.rotation(),
        None => {
            tracing::info!(hook = %live.hook.name, %endpoint, "hook enters rotation");
            if let Some(replacement) = live.replacing.take() {
                live.target = CallTarget::new(Arc::clone(&live.hook), replacement.channel);
            }
            live.overdue = None;
            live.rotation = live.rotation.after(RotationEvent::ProbePassed, SystemTime::now()).unwrap_or(live.rotation);
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_api::{Transport, hook::Address};

    fn at(port: u16) -> Endpoint {
        Endpoint {
            address: Address::Tcp { host: "::1".into(), port },
            tls: None,
            transport: Transport::Grpc,
            authorization: None,
        }
    }

    fn placements(in_force: Option<&[(&str, u16, bool)]>, new: &[(&str, u16)]) -> Vec<Placement> {
        placements_after(in_force, &[], new)
    }

    fn placements_after(
        in_force: Option<&[(&str, u16, bool)]>,
        recently_left: &[u16],
        new: &[(&str, u16)],
    ) -> Vec<Placement> {
        let endpoints: Vec<_> = in_force.unwrap_or_default().iter().map(|(_, port, _)| at(*port)).collect();
        let former: Vec<_> = in_force
            .unwrap_or_default()
            .iter()
            .zip(&endpoints)
            .map(|((id, _, proven), endpoint)| HookInForce { id, endpoint, proven: *proven })
            .collect();
        let new: Vec<_> = new.iter().map(|(id, port)| (*id, at(*port))).collect();
        let recently_left: Vec<_> = recently_left.iter().map(|port| at(*port)).collect();
        place_hooks(
            in_force.map(|_| &*former),
            &recently_left.iter().collect::<Vec<_>>(),
            new.iter().map(|(id, endpoint)| (*id, endpoint)),
        )
    }

    #[test]
    fn first_snapshot_is_called_at_once_and_later_hooks_are_probed() {
        assert_eq!(placements(None, &[("a", 1), ("b", 2)]), [Placement::Bootstrap, Placement::Bootstrap]);
        assert_eq!(placements(Some(&[]), &[("a", 1)]), [Placement::ProbeFirst]);
        assert_eq!(
            placements(Some(&[("a", 1, true)]), &[("b", 2), ("a", 1)]),
            [Placement::ProbeFirst, Placement::Reuse(0)]
        );
    }

    #[test]
    fn placement_while_starting_waits_for_no_probe() {
        let all = [
            Placement::Bootstrap,
            Placement::Reuse(1),
            Placement::Rejoin(2),
            Placement::ProbeFirst,
            Placement::Migrate(3),
        ];
        assert_eq!(
            all.map(Placement::while_starting),
            [
                Placement::Bootstrap,
                Placement::Reuse(1),
                Placement::Rejoin(2),
                Placement::Bootstrap,
                Placement::Bootstrap
            ]
        );
    }

    #[test]
    fn placement_at_a_proven_endpoint_reuses_its_connection() {
        assert_eq!(placements(Some(&[("a", 1, true)]), &[("renamed", 1)]), [Placement::Reuse(0)]);
        let twins = [("a", 1, true), ("b", 1, true)];
        assert_eq!(placements(Some(&twins), &[("b", 1), ("c", 1)]), [Placement::Reuse(1), Placement::Reuse(0)]);
    }

    #[test]
    fn moved_hook_keeps_old_endpoint_until_new_one_is_proven() {
        assert_eq!(placements(Some(&[("a", 1, true)]), &[("a", 2)]), [Placement::Migrate(0)]);
        let both = [("a", 1, true), ("b", 2, true)];
        assert_eq!(placements(Some(&both), &[("a", 2)]), [Placement::Reuse(1)], "the new place is proven already");
    }

    #[test]
    fn placement_at_an_endpoint_left_a_moment_ago_rejoins_it() {
        assert_eq!(
            placements_after(Some(&[]), &[7, 1], &[("a", 1), ("b", 2)]),
            [Placement::Rejoin(1), Placement::ProbeFirst]
        );
        let moving_back = placements_after(Some(&[("a", 2, true)]), &[1], &[("a", 1)]);
        assert_eq!(moving_back, [Placement::Rejoin(0)]);
        assert_eq!(placements_after(Some(&[("a", 1, true)]), &[1], &[("b", 1)]), [Placement::Reuse(0)]);
        assert_eq!(placements_after(None, &[1], &[("a", 1)]), [Placement::Bootstrap]);
    }

    #[test]
    fn placement_at_an_endpoint_that_never_answered_is_probed_first() {
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("a", 1)]), [Placement::ProbeFirst]);
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("a", 2)]), [Placement::ProbeFirst]);
        assert_eq!(placements(Some(&[("a", 1, false)]), &[("b", 1)]), [Placement::ProbeFirst]);
    }
}
