//! Waiting: since when each hook has waited for its endpoint to pass a probe, and which of them are overdue.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use tokio::time::Instant;

use crate::{
    live::{LiveHook, Overdue, Rotation},
    model::{OnProbeFailure, Rollout},
    snapshot::Snapshot,
};

/// Since when each hook has waited, by its id: another endpoint or an update of the entry does not begin it anew.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    since: HashMap<Arc<str>, Since>,
    /// When the next of them is overdue.
    alarm: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    instant: Instant,
    clock: SystemTime,
    /// It was told that this takes too long.
    told: bool,
}

impl Waiting {
    /// When the next hook is overdue, unless it has answered by then.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Says of each of these hooks, about to be published, whether it is overdue; one that then is to be enforced enters
    /// rotation unproven, and one that is not leaves it again.
    pub(super) fn settle(&mut self, snapshot: &Snapshot, hooks: &mut [LiveHook]) {
        let (now, clock) = (Instant::now(), SystemTime::now());
        self.alarm = None;
        let mut waiting = HashSet::new();
        for (index, live) in (0..).zip(hooks) {
            if live.is_in_place() {
                continue;
            }
            waiting.insert(Arc::clone(&live.hook.id));
            let rollout = snapshot.origin(index).map_or_else(Rollout::default, |origin| origin.rollout);
            let since = Since { instant: now, clock, told: false };
            let since = self.since.entry(Arc::clone(&live.hook.id)).or_insert(since);
            let due = since.instant + rollout.probe_within;
            if now < due {
                live.overdue = None;
                self.alarm = Some(self.alarm.map_or(due, |first| first.min(due)));
                continue;
            }
            let last_failure = match (&live.replacing, &live.rotation, &live.overdue) {
                (Some(replacing), ..) => replacing.last_failure.clone(),
                (None, Rotation::Probing { last_failure, .. }, _) => last_failure.clone(),
                (None, _, overdue) => overdue.as_ref().and_then(|overdue| overdue.last_failure.clone()),
            };
            if live.replacing.is_none() && rollout.on_probe_failure == OnProbeFailure::Enforce {
                live.rotation = Rotation::Active { since: since.clock + rollout.probe_within };
            }
            live.overdue = Some(Overdue { since: since.clock, within: rollout.probe_within, last_failure });
            if !std::mem::replace(&mut since.told, true) {
                tell(live);
            }
        }
        self.since.retain(|id, _| waiting.contains(id));
    }
}

fn tell(live: &LiveHook) {
    let Some(overdue) = &live.overdue else { return };
    let (hook, within) = (&*live.hook.name, humantime::format_duration(overdue.within));
    let failure = overdue.last_failure.as_ref().map_or_else(|| "no probe has ended".to_owned(), ToString::to_string);
    let what = live.overdue_means().unwrap_or_default();
    tracing::error!(hook, %within, failure, "hook has passed no probe in time: {what}");
}
