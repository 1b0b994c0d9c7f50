//! Follower: what every replica does with a read: which webhooks it calls, and what it may say of that to the leader.

use std::{collections::BTreeSet, time::Duration};

use super::{Announcement, Asked, Asking, Cause, Claims, Lease, Seen, heard::Heard};

/// An announcement of a leader that has been silent for so long is heeded no more: nobody would take what it announces, and
/// both would call it for ever. Another leads after [`LIVE`](super::LIVE), unless nothing can be written; and a write of the
/// one before may then still be on its way, as long as its kernel sends it again.
const HEEDED: Duration = Duration::from_secs(1200);

/// A replica whose own lease has been silent for so long may soon be taken to have ended: the leader takes webhooks
/// without waiting for it ([`ENDED`](super::lead::ENDED)), and it does not know when.
const UNHEARD: Duration = Duration::from_secs(15);

/// What every replica does with a read.
#[derive(Debug, Default)]
pub struct Follower {
    heard: Heard,
    asking: Asking,
}

/// What came of one read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Followed {
    /// What is called from now on.
    pub asked: Vec<Asked>,
    /// The announcement that it goes by.
    pub epoch: u64,
}

impl Follower {
    /// Takes one read that began at `now`, on the replica that holds leases by that name. The leases were read before the
    /// webhooks.
    pub fn read(&mut self, now: Duration, holder: &str, leases: &[Lease], seen: &[Seen]) -> Followed {
        self.heard.hear(now, leases);
        let leader = leases.iter().find(|lease| lease.is_leader());
        let heeded = leader.filter(|lease| self.heard.silence(now, lease) < HEEDED);
        let Announcement { epoch, ids } = heeded.map(Lease::announcement).unwrap_or_default();
        let own = leases.iter().find(|lease| !lease.is_leader() && lease.holder == holder);
        let unheard = own.is_none_or(|lease| self.heard.silence(now, lease) >= UNHEARD);
        Followed { asked: self.asking.step(now, seen, &ids, unheard), epoch }
    }
}

impl Followed {
    /// What may be said to the leader, given the ids of what is called in fact. A webhook that is called only for a while
    /// longer is none of it.
    pub fn claims(&self, in_force: &BTreeSet<String>) -> Claims {
        let lasting = self.asked.iter().filter(|asked| asked.cause != Cause::Grace);
        let ids = lasting.map(|asked| &asked.id).filter(|id| in_force.contains(*id));
        Claims { epoch: self.epoch, ids: ids.cloned().collect() }
    }
}
