//! Waiting: since when each hook has waited for its endpoint to pass a probe, and which of them are overdue.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{
    live::{LiveHook, Overdue, Rotation},
    model::{OnProbeFailure, Rollout},
    snapshot::Snapshot,
};

/// Hooks out of the configuration that are remembered; beyond that, they are forgotten at once.
const MOST_GONE: usize = 4096;

/// Since when each hook has waited, by its id: another endpoint or an update of the entry does not begin it anew, nor
/// does an entry that is gone for a moment.
#[derive(Debug)]
pub(super) struct Waiting {
    since: HashMap<Arc<str>, Since>,
    /// Time at which the next of them is overdue.
    alarm: Option<Instant>,
    /// Time for which a hook may be out of the configuration and find its waiting time again.
    kept: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    instant: Instant,
    clock: SystemTime,
    /// It was logged that this takes too long.
    logged: bool,
    /// Since when it is out of the configuration.
    gone: Option<Instant>,
}

impl Waiting {
    /// None waits yet; a hook that is out of the configuration is remembered for so long.
    pub(super) fn new(kept: Duration) -> Self {
        Self { since: HashMap::new(), alarm: None, kept }
    }

    /// Time at which the next hook is overdue, unless it has answered by then.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Says of each of these hooks, about to be published, whether it is overdue; one that then is to be enforced
    /// enters rotation unproven, and one that is not leaves it again.
    pub(super) fn settle(&mut self, snapshot: &Snapshot, hooks: &mut [LiveHook]) {
        let (now, clock) = (Instant::now(), SystemTime::now());
        self.alarm = None;
        self.since.retain(|_, since| since.gone.is_none_or(|gone| now < gone + self.kept));
        let mut waiting = HashSet::new();
        for (index, live) in (0..).zip(hooks) {
            if live.is_in_place() {
                self.since.remove(&live.hook.id);
                continue;
            }
            waiting.insert(Arc::clone(&live.hook.id));
            let rollout = snapshot.origin(index).map_or_else(Rollout::default, |origin| origin.rollout);
            let since = Since { instant: now, clock, logged: false, gone: None };
            let since = self.since.entry(Arc::clone(&live.hook.id)).or_insert(since);
            since.gone = None;
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
            if !std::mem::replace(&mut since.logged, true) {
                log_waiting(live);
            }
        }
        for (_, since) in self.since.iter_mut().filter(|(id, _)| !waiting.contains(*id)) {
            since.gone.get_or_insert(now);
        }
        if self.since.len() - waiting.len() > MOST_GONE {
            self.since.retain(|_, since| since.gone.is_none());
        }
    }
}

fn log_waiting(live: &LiveHook) {
    let Some(overdue) = &live.overdue else { return };
    let (hook, within) = (&*live.hook.name, humantime::format_duration(overdue.within));
    let failure = overdue.last_failure.as_ref().map_or_else(|| "no probe has ended".to_owned(), ToString::to_string);
    let what = live.overdue_means().unwrap_or_default();
    tracing::error!(hook, %within, failure, "hook is overdue, it has passed no probe in time: {what}");
}
