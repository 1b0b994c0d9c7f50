//! Limits on callers: sizes and times, the buffers of a connection, and the number of calls that are no reviews.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    accept::client::{QuotaKind, Session},
    refusal::Refusal,
};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};

/// Largest header list of one call. Namespace labels are sent in it.
pub(super) const MAX_HEADER_LIST: u32 = 16 << 10;
/// Refused calls whose late frames are still recognised (and ignored) for a second after the refusal.
pub(super) const MAX_REMEMBERED_REFUSALS: usize = 1024;
/// Late frames of forgotten refused calls in a connection's life; one more closes the connection.
pub(super) const MAX_FORGOTTEN_REFUSALS: usize = 65_536;
/// Timeout of a new connection's handshakes: of TLS, and again of the first bytes of HTTP.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a connection checks for expired unwritten verdicts and for a dead peer.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of an HTTP/1.1 request's head, counted from the end of the previous answer: hyper has one timer for both.
/// Longer than the 90 s for which client-go keeps an idle connection, so that the caller closes the connection, and
/// never we while its next request is under way. A caller that sends a head slowly occupies no more than an idle one:
/// one of the `connections`.
pub(super) const HEAD_OR_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Limits on callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontLimits {
    /// Largest review in bytes.
    ///
    /// The default fits a review with two objects of 3 MiB. Clients may send an apiserver no more than 3 MiB, also in
    /// protobuf or CBOR, and JSON is longer: base64 alone by a third, field names and escapes by more. With doubled
    /// sizes, `object` and `oldObject` make 12 MiB; 4 MiB remain for `userInfo`, `options` and objects that grow more.
    pub message_bytes: usize,
    /// Maximum time of a call, and the time of a call without a timeout.
    pub timeout: Duration,
    /// Concurrent calls on one connection.
    pub streams: u32,
    /// Concurrent connections.
    pub connections: usize,
    /// Time for calls under way to end at a shutdown.
    pub drain: Duration,
}

impl Default for FrontLimits {
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            timeout: Duration::from_secs(30),
            streams: 256,
            connections: 1024,
            drain: Duration::from_secs(30),
        }
    }
}

/// Limits on the buffers of one connection, in proportion to the memory budget. The buffers are not part of the budget:
/// all connections together have at most a quarter of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffers {
    /// Largest HTTP/2 frame: a big object then arrives in few pieces. The budget counts incomplete frames
    /// ([`FrameMeter`](super::connection::meter::FrameMeter)).
    pub(super) frame: u32,
    /// Flow-control window of one call.
    pub(super) stream_window: u32,
    /// Flow-control window of one connection.
    pub(super) connection_window: u32,
    /// Bytes that one read of an HTTP/1.1 connection returns, and so the largest piece of a body.
    pub(super) read: usize,
    /// Plaintext that a TLS connection buffers: a whole verdict.
    pub(super) tls: usize,
}

impl Buffers {
    /// Returns the limits for a budget: for the default 512 MiB, frames of 1 MiB and windows of 2 and 8 MiB.
    pub(super) fn of(budget: usize) -> Self {
        let share = |part: usize, least: usize, most: usize| (budget / part).clamp(least, most);
        let connection_window = share(64, 256 << 10, 8 << 20) as u32;
        Self {
            frame: share(512, 16 << 10, 1 << 20) as u32,
            stream_window: connection_window / 4,
            connection_window,
            read: share(4096, 16 << 10, 128 << 10),
            tls: share(4096, 16 << 10, 64 << 10),
        }
    }
}

/// Limit on the calls of one kind, of all clients together.
#[derive(Debug)]
pub(super) struct Quota {
    all: AtomicUsize,
    kind: QuotaKind,
    budget: Arc<MemoryBudget>,
}

impl Quota {
    pub(super) fn new(kind: QuotaKind, budget: Arc<MemoryBudget>) -> Self {
        Self { all: AtomicUsize::new(0), kind, budget }
    }

    /// Counts one more call of the connection and reserves `bytes` of the memory budget, until the guard is dropped.
    pub(super) fn take<'a>(&'a self, session: &'a Session, bytes: usize) -> Result<QuotaGuard<'a>, Refusal> {
        // Not reserved as reviews are: health checks must succeed even when the review budget is exhausted.
        let mut guard = QuotaGuard { counters: [None; 3], _held: self.budget.empty(Purpose::Verdict) };
        // Limits on one connection, and of all clients. One client may have, on all its connections, the free part of
        // `all` divided by `client_part`.
        let (connection, all, client_part, refusal): (_, usize, _, _) = match self.kind {
            // One client alone has 51. So a few addresses cannot take the place of a kubelet's health check; that needs
            // many.
            QuotaKind::Aux => (8, 256, 4, Refusal::TooManyAuxCalls),
            // A process may act for several names.
            QuotaKind::Attached => (32, 256, 4, Refusal::TooManyInstances),
            // One client alone has 2,730. There are few apiservers; HTTP/2 has its own, lower bound on a connection.
            QuotaKind::Initialization => (1024, 8192, 2, Refusal::TooManyInitializationCalls),
        };
        let of_client = all.saturating_sub(self.all.load(Relaxed)) / client_part;
        let index = self.kind as usize;
        let counters = [
            (&session.quota_counts[index], connection),
            (&session.client.quota_counts[index], of_client),
            (&self.all, all),
        ];
        for (taken, (counter, limit)) in guard.counters.iter_mut().zip(counters) {
            *taken = Some(counter);
            if counter.fetch_add(1, Relaxed) >= limit {
                return Err(refusal);
            }
        }
        guard._held = self.budget.reserve(Purpose::Verdict, bytes).ok_or(Refusal::Overloaded { bytes })?;
        Ok(guard)
    }
}

/// Guard of one call that a [`Quota`] counts, with its memory reservation.
#[derive(Debug)]
pub(super) struct QuotaGuard<'a> {
    counters: [Option<&'a AtomicUsize>; 3],
    _held: Reservation,
}

impl Drop for QuotaGuard<'_> {
    fn drop(&mut self) {
        for counter in self.counters.into_iter().flatten() {
            counter.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::front::accept::{client::Identity, clients::Clients};

    #[test]
    fn quota_leaves_a_place_for_health_checks() {
        let (clients, budget) = (Clients::new(4096, Instant::now()), MemoryBudget::new(1000));
        let quota = Quota::new(QuotaKind::Aux, Arc::clone(&budget));
        let connect = |n: u32| {
            let address = Identity::of(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
            clients.admit(address, Instant::now()).expect("room")
        };
        let greedy: Vec<_> = (0..16).flat_map(|n| (0..8).map(move |_| n)).map(connect).collect();
        let mut taken = Vec::new();
        for admitted in &greedy {
            taken.extend((0..8).filter_map(|_| quota.take(&admitted.session, 1).ok()));
        }
        assert!((200..252).contains(&taken.len()), "{}", taken.len());
        let kubelet = connect(1000);
        assert!(quota.take(&kubelet.session, 1).is_ok());
        drop(taken);
        assert_eq!((quota.all.load(Relaxed), budget.held()), (0, 0));
    }

    #[test]
    fn quota_of_initialization_fills_a_connection() {
        let (clients, budget) = (Clients::new(4096, Instant::now()), MemoryBudget::new(10_000));
        let quota = Quota::new(QuotaKind::Initialization, Arc::clone(&budget));
        let connect = || clients.admit(Identity::of([10, 0, 0, 1].into()), Instant::now()).expect("room");
        let connections = [connect(), connect(), connect()];
        let mut taken = Vec::new();
        let mut take = |at: usize| {
            let results = (0..2000).map(|_| quota.take(&connections[at].session, 1));
            let before = taken.len();
            taken.extend(results.filter_map(Result::ok));
            taken.len() - before
        };
        assert_eq!([take(0), take(1)], [1024, 1024]);
        assert!((600..1024).contains(&take(2)), "a client alone has a third of all");
        drop(taken);
        assert_eq!((quota.all.load(Relaxed), budget.held()), (0, 0));
    }
}
