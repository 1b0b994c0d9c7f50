//! Follower: the part of every replica: from one read, the webhooks to call, and the claims to publish for the leader.

use std::{collections::BTreeSet, time::Duration};

use super::{Asked, Asking, Cause, Claims, Lease, SeenWebhook, Unserved, heard::Heard};

/// Time without a renewal by the leader after which its announcement is ignored: with no leader to apply the condition,
/// replicas and apiserver would both call the webhook for ever. Another replica leads after [`LEADS`](super::LEADS),
/// unless nothing can be written; a write of the former leader may be in flight for as long as its kernel retransmits
/// it.
const HEEDED: Duration = Duration::from_secs(1200);

/// Time without a renewal of a replica's own lease after which the leader may soon count it as dead
/// ([`ENDED`](super::lead::ENDED)) and take webhooks without waiting for it.
const UNHEARD: Duration = Duration::from_secs(15);

/// Age from which a replica that the leader does not wait for may not go by a read: the leader takes a webhook as soon as
/// it has been announced for a little longer ([`LEAST_ANNOUNCED`](super::leader::LEAST_ANNOUNCED)).
pub const UNHEARD_FOR: Duration = Duration::from_millis(1400);

/// State that every replica keeps between reads.
#[derive(Debug, Default)]
pub struct Follower {
    heard: Heard,
    asking: Asking,
}

/// Result of one read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Followed {
    /// Webhooks to call from now on.
    pub asked: Vec<Asked>,
    /// Epoch of the announcement that it follows.
    pub epoch: u64,
    /// Webhooks that a replica which starts now cannot call, and that an apiserver may count on it for.
    pub unserved: Vec<Unserved>,
    /// The leader may not wait for this replica: it may go by no read that is older than [`UNHEARD_FOR`].
    pub unheard: bool,
}

impl Follower {
    /// Processes one read that began at `now`, on the replica with this holder identity. The leases were read before
    /// the webhooks.
    pub fn read(&mut self, now: Duration, holder: &str, leases: &[Lease], seen: &[SeenWebhook]) -> Followed {
        self.heard.hear(now, leases);
        let leader = leases.iter().find(|lease| lease.is_leader());
        let heeded = leader.filter(|lease| self.heard.silence(now, lease) < HEEDED);
        let announcement = heeded.map(Lease::announcement).unwrap_or_default();
        let own = leases.iter().find(|lease| !lease.is_leader() && lease.holder == holder);
        let unheard = own.is_none_or(|lease| self.heard.silence(now, lease) >= UNHEARD);
        let asked = self.asking.step(now, seen, &announcement, unheard);
        let epoch = announcement.epoch;
        Followed { asked, epoch, unserved: self.asking.unserved(now), unheard }
    }
}

impl Followed {
    /// Claims to publish for the leader, given the ids of the webhooks that are called in fact. A webhook in its grace
    /// period is not claimed.
    pub fn claims(&self, in_force: &BTreeSet<String>) -> Claims {
        let lasting = self.asked.iter().filter(|asked| asked.cause != Cause::Grace);
        let ids = lasting.map(|asked| &asked.id).filter(|id| in_force.contains(*id));
        Claims { epoch: self.epoch, ids: ids.cloned().collect() }
    }
}
