//! Share: one client's share of a limit on all clients together.
//!
//! Where the limit is N, a client that is known (see [`Identity::is_known`]; or it had a verdict lately) may take all
//! of it while no other known client is connected, else half. One that is not known may take half, and only while three
//! quarters are not taken: the last quarter is kept for known clients, whoever floods us from wherever.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::identity::Identity;

/// For how long a client that had a verdict is known, in seconds.
const KNOWN_FOR: u64 = 600;
/// Interval at which that is renewed, in seconds.
const RENEWED_EVERY: u64 = 60;

/// One client, however many connections it has.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    identity: Identity,
    /// Bytes of reviews it has in the memory budget.
    bytes: AtomicUsize,
    /// Health watches and the like that it has open.
    pub(crate) aux_calls: AtomicUsize,
    /// Instances of initializers that it has attached.
    pub(crate) attached: AtomicUsize,
    /// Calls about unfinished objects that it has open.
    pub(crate) initializing: AtomicUsize,
    /// Until when it is known for its verdicts, in seconds since the front began; 0 for never.
    known_until: AtomicU64,
}

/// Share of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The client's own.
    pub(crate) own: usize,
    /// Of what all together have; above it only others may take more.
    pub(crate) of_all: usize,
}

impl Share {
    /// Of `limit`, for a client that is known or not, beside other known ones or not.
    pub(crate) fn of(limit: usize, known: bool, beside_others: bool) -> Self {
        match (known, beside_others) {
            (true, false) => Self { own: limit, of_all: limit },
            (true, true) => Self { own: limit.div_ceil(2), of_all: limit },
            (false, _) => Self { own: limit.div_ceil(2), of_all: limit - limit / 4 },
        }
    }
}

impl ConnectedClient {
    pub(crate) fn new(identity: Identity) -> Self {
        let [bytes, aux_calls, attached, initializing] = [const { AtomicUsize::new(0) }; 4];
        Self { identity, bytes, aux_calls, attached, initializing, known_until: AtomicU64::new(0) }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Is it known at that second?
    pub(crate) fn is_known(&self, second: u64) -> bool {
        self.identity.is_known() || second < self.known_until.load(Relaxed)
    }

    /// It has had a verdict. Written once a minute, as every worker reads it.
    pub(crate) fn had_verdict(&self, second: u64) {
        if !self.identity.is_known() && self.known_until.load(Relaxed) < second + KNOWN_FOR - RENEWED_EVERY {
            self.known_until.store(second + KNOWN_FOR, Relaxed);
        }
    }

    /// Takes so many bytes of its share; `false`, and nothing changed, when that is too much.
    pub(crate) fn try_take(&self, bytes: usize, most: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > most {
            self.bytes.fetch_sub(bytes, Relaxed);
            return false;
        }
        true
    }

    /// Gives them back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_is_kept_for_known_clients_and_half_for_the_others() {
        assert_eq!(Share::of(1024, true, false), Share { own: 1024, of_all: 1024 });
        assert_eq!(Share::of(1024, true, true), Share { own: 512, of_all: 1024 });
        assert_eq!(Share::of(1024, false, true), Share { own: 512, of_all: 768 });
        assert_eq!(Share::of(1, false, false), Share { own: 1, of_all: 1 }, "one is one");
    }

    #[test]
    fn a_client_is_known_for_ten_minutes_after_a_verdict() {
        let client = ConnectedClient::new(Identity::of([192, 0, 2, 1].into()));
        assert!(!client.is_known(0));
        client.had_verdict(100);
        client.had_verdict(130);
        assert!(client.is_known(699) && !client.is_known(700));
        client.had_verdict(170);
        assert!(client.is_known(769) && !client.is_known(770));
        assert!(ConnectedClient::new(Identity::Loopback).is_known(0));
    }
}
