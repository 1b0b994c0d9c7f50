//! Draining: which hooks are no longer asked anew but still hold requests that began before.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{
    live::{Draining, Generation, LiveHook, Rotation},
    model::Hook,
    snapshot::Snapshot,
};

/// What is left of former generations. A generation ends when the last request that began under it does.
#[derive(Debug)]
pub(super) struct Drain {
    former: Vec<Former>,
    leaving: Vec<Leaving>,
    /// Requests end at their deadline; whatever lives longer than this is not waited for.
    bound: Duration,
}

#[derive(Debug)]
struct Former {
    generation: Weak<Generation>,
    /// Held until its generation has ended, so that it is freed here: on the worker whose request was the last, a
    /// thousand hooks would hold up all others.
    _snapshot: Arc<Snapshot>,
}

#[derive(Debug)]
struct Leaving {
    hook: Arc<Hook>,
    /// The last generation that asked it.
    last: u64,
    since: SystemTime,
    until: Instant,
}

impl Drain {
    pub(super) fn new(bound: Duration) -> Self {
        Self { former: Vec::new(), leaving: Vec::new(), bound }
    }

    /// `old` has been replaced by `new`.
    pub(super) fn replaced(&mut self, old: &Arc<Generation>, new: &Generation) {
        self.former.push(Former { generation: Arc::downgrade(old), _snapshot: Arc::clone(&old.snapshot) });
        let ids: HashSet<_> = new.hooks.iter().map(|live| &*live.hook.id).collect();
        let stays = |hook: &Hook| ids.contains(&*hook.id);
        self.leaving.retain(|leaving| !stays(&leaving.hook));
        // A hook that was still being probed holds no request.
        let asked = |live: &&LiveHook| matches!(live.rotation, Rotation::Active { .. });
        for live in old.hooks.iter().filter(asked).filter(|live| !stays(&live.hook)) {
            tracing::info!(hook = %live.hook.name, generation = new.number, "hook leaves rotation and drains");
            self.leaving.push(Leaving {
                hook: Arc::clone(&live.hook),
                last: old.number,
                since: SystemTime::now(),
                until: Instant::now() + self.bound,
            });
        }
    }

    /// Forgets what has drained; gives what has not. Tells the log.
    pub(super) fn sweep(&mut self) -> Vec<Draining> {
        let mut oldest = u64::MAX;
        self.former.retain(|former| {
            let alive = former.generation.upgrade();
            oldest = alive.as_ref().map_or(oldest, |former| oldest.min(former.number));
            alive.is_some()
        });
        let now = Instant::now();
        self.leaving.retain(|leaving| {
            let drained = oldest > leaving.last;
            let overdue = leaving.until <= now;
            if drained {
                tracing::info!(hook = %leaving.hook.name, "hook drained");
            } else if overdue {
                tracing::warn!(hook = %leaving.hook.name, after = ?self.bound, "hook has not drained in time; not waited for");
            }
            !drained && !overdue
        });
        let still = |leaving: &Leaving| Draining { hook: Arc::clone(&leaving.hook.name), since: leaving.since };
        self.leaving.iter().map(still).collect()
    }
}
