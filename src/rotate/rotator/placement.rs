//! Placement: the hooks of a new generation, each with where it is asked, and what the end of a probe changes.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use super::Rotator;
use crate::{
    hooks::{Channel, ProbePost},
    live::{CallTarget, Generation, LiveHook, Rotation, RotationEvent},
    model::{Endpoint, Hook},
    rotate::{
        Candidate,
        hook_placement::{HookInForce, Placement, place_hooks},
        probing::{ProbeNews, Probing, posts},
    },
};

impl Rotator {
    /// The candidate's hooks, placed.
    pub(super) fn placed(&mut self, in_force: &Generation, candidate: &Candidate) -> Vec<LiveHook> {
        let former: Vec<_> = in_force.hooks.iter().map(hook_in_force).collect();
        let new = candidate.snapshot.hooks.iter().map(|hook| (&*hook.id, &hook.endpoint));
        let left = self.drain.left();
        let proven: Vec<_> = left.iter().map(|(endpoint, _)| endpoint).collect();
        let mut placements = place_hooks((in_force.number > 0).then_some(&former), &proven, new);
        if !self.settled {
            placements.iter_mut().for_each(Placement::begin);
        }
        let posts = posts(&candidate.snapshot.hooks, &placements);
        let mut opened = HashMap::new();
        let mut hooks = Vec::with_capacity(placements.len());
        for (hook, placement) in candidate.snapshot.hooks.iter().zip(placements) {
            // Looking the counters up takes a lock and compares names.
            let metrics = |old: &LiveHook| match (&old.hook.name, old.hook.hook_type) == (&hook.name, hook.hook_type) {
                true => Arc::clone(&old.metrics),
                false => self.metrics.hook(hook.hook_type, &hook.name),
            };
            // One entry's endpoint, path, form and versions, or another's: never a mixture.
            let (target, rotation, replacing, metrics) = match placement {
                Placement::Bootstrap | Placement::Rejoin(_) => {
                    let open = || {
                        let (endpoint, tls) = (hook.endpoint.clone(), candidate.tls(&hook.endpoint));
                        Channel::open_within(&self.resources, endpoint, tls, &self.workers)
                    };
                    let held = match placement {
                        Placement::Rejoin(place) => left[place].1.clone(),
                        _ => None,
                    };
                    let channel = opened.entry(&hook.endpoint).or_insert_with(|| held.unwrap_or_else(open));
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(channel));
                    let rotation = Rotation::Active { since: SystemTime::now() };
                    (target, rotation, None, self.metrics.hook(hook.hook_type, &hook.name))
                }
                Placement::Reuse(place) => {
                    let old = &in_force.hooks[place];
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(old.target.channel()));
                    (target, old.rotation.clone(), None, metrics(old))
                }
                Placement::ProbeFirst => {
                    let metrics = self.metrics.hook(hook.hook_type, &hook.name);
                    let probing = self.probing(hook, candidate, posts.get(&hook.endpoint));
                    let target = CallTarget::new(Arc::clone(hook), Arc::clone(&probing.channel));
                    (target, probing.rotation(), None, metrics)
                }
                Placement::Migrate(place) => {
                    let old = &in_force.hooks[place];
                    let metrics = metrics(old);
                    let probing = self.probing(hook, candidate, posts.get(&hook.endpoint));
                    (old.target.clone(), old.rotation.clone(), Some(probing.replacement()), metrics)
                }
            };
            hooks.push(LiveHook { hook: Arc::clone(hook), target, rotation, replacing, overdue: None, metrics });
        }
        hooks
    }

    /// The hook's endpoint as it is being probed, by this post, from now on if it was not.
    fn probing(&mut self, hook: &Hook, candidate: &Candidate, post: Option<&ProbePost>) -> &Probing {
        let endpoint = &hook.endpoint;
        let probing = self.probing.entry(endpoint.clone()).or_insert_with(|| {
            tracing::info!(hook = %hook.name, %endpoint, "probing the hook before it is called there");
            let tls = candidate.tls(endpoint);
            let channel = Channel::open_within(&self.resources, endpoint.clone(), tls, &self.workers);
            Probing::begin(channel, post.cloned(), self.probe_news.0.clone())
        });
        probing.change_post(post);
        probing
    }

    /// Effect of a probe's end on the hooks in force.
    pub(super) fn hear(&mut self, news: ProbeNews) {
        let endpoint = news.channel.endpoint();
        let in_force = self.current.load();
        let Some(probing) = self.probing.get_mut(endpoint).filter(|probing| probing.believes(&news)) else { return };
        match news.outcome {
            Ok(()) => drop(self.probing.remove(endpoint)),
            Err(failure) if probing.last_failure() == Some(&failure) => return,
            Err(failure) => {
                // The hook's words may be logged: a probe sends no user's object, so that there is none to repeat.
                // Overdue hooks that are to be enforced are asked all the same.
                let asked =
                    in_force.hooks.iter().any(|live| live.target.endpoint() == endpoint && live.rotation.asks());
                let hook = if asked { "is asked there all the same" } else { "is not asked there" };
                tracing::warn!(%endpoint, step = %failure.step, %failure, "probe failed; the hook {hook}");
                probing.failed(failure);
            }
        }
        let hooks = in_force.hooks.iter().map(|live| after_probe(live, endpoint, self.probing.get(endpoint))).collect();
        let (digest, revision) = (in_force.digest.clone(), in_force.revision.clone());
        self.publish(&in_force, digest, revision, Arc::clone(&in_force.snapshot), hooks);
    }
}

fn hook_in_force(live: &LiveHook) -> HookInForce<'_> {
    HookInForce { id: &live.hook.id, endpoint: live.target.endpoint(), proven: live.is_proven() }
}

/// The hook after news of `endpoint`, which is still being probed, or no longer since it has passed.
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
