//! Rotation: how names come into the configuration and leave it, and the state of each.

use std::{sync::Arc, time::Instant};

use super::{Claim, Desk, NameState};

/// State of a name that has left the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetiredClaim {
    /// Until then its instances keep it, while somebody may have a task for them; and a name that comes back is proven.
    until: Instant,
    /// It will have no task any more.
    drained: bool,
}

impl Desk {
    /// A name may be claimed from now on: where no instance has it, it is vacant since now. It comes into rotation with
    /// its first instance, unless it was there a moment ago.
    pub fn configure(&mut self, name: &Arc<str>, now: Instant) {
        let claim = self.names.entry(Arc::clone(name)).or_default();
        let retired = claim.retired.take();
        if claim.instances.is_empty() {
            claim.vacant_since = Some(now);
            claim.proven &= retired.is_none_or(|retired| now < retired.until);
        }
    }

    /// A name is in rotation, whether or not an instance has had it.
    pub fn enforce(&mut self, name: &Arc<str>) {
        self.names.entry(Arc::clone(name)).or_default().proven = true;
    }

    /// True while no instance has had a configured name.
    pub fn is_unproven(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|claim| !claim.proven)
    }

    /// A name leaves the configuration. Its instances keep it for what is under way, until then at the latest.
    pub fn retire(&mut self, name: &str, until: Instant) {
        if let Some(claim) = self.names.get_mut(name) {
            claim.retired = Some(RetiredClaim { until, drained: false });
        }
    }

    /// Forgets names that left the configuration before an instance had them. Requests that began before skip them until
    /// then.
    pub(super) fn forget_unproven(&mut self, now: Instant) {
        self.names.retain(|_, claim| claim.proven || claim.retired.is_none_or(|retired| now < retired.until));
    }

    /// There will be no task any more for a name that has left the configuration.
    pub fn drained(&mut self, name: &str) {
        if let Some(retired) = self.names.get_mut(name).and_then(|claim| claim.retired.as_mut()) {
            retired.drained = true;
        }
    }

    /// Is it a name that has left the configuration, and may somebody still have a task for it?
    pub fn drains(&self, name: &str, now: Instant) -> bool {
        let retired = self.names.get(name).filter(|claim| claim.proven).and_then(|claim| claim.retired);
        retired.is_some_and(|retired| !retired.drained && now < retired.until)
    }

    /// Does any task of the name wait, or lie with an instance?
    pub fn has_tasks(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|claim| !claim.tasks.is_empty())
    }

    /// State of each name, by name.
    pub fn names(&self) -> Vec<NameState> {
        let state = |(name, claim): (&Arc<str>, &Claim)| NameState {
            name: Arc::clone(name),
            instances: claim.instances.len(),
            queued: claim.queue.len(),
            assigned: claim.tasks.len() - claim.queue.len(),
            oldest: claim.tasks.first().and_then(|id| self.tasks.get(id)).map(|task| task.since),
            vacant_since: claim.vacant_since,
            proven: claim.proven,
            ever_attached: claim.ever_attached,
        };
        self.names.iter().map(state).collect()
    }
}
