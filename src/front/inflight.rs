//! Reviews that are being read or decided, and their reservations in the memory budget.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use bytes::Bytes;

use super::{
    accept::{
        client::{ConnectedClient, Session, Share},
        clients::Clients,
    },
    outgoing::Outgoing,
    refusal::Refusal,
};
use gatepost_api::Deadline;
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};

/// Approximate memory of a review besides its bytes: its stream, its task, and its calls of a few hooks.
const REVIEW_OVERHEAD: usize = 8 << 10;
/// Approximate memory of a verdict besides its bytes: its stream, and the heads of its frames.
const VERDICT_OVERHEAD: usize = 1 << 10;

/// Reviews and verdicts in flight in the whole process.
#[derive(Debug)]
pub struct Inflight {
    budget: Arc<MemoryBudget>,
    /// Size of the largest review, the minimum of a client's share.
    max_review: usize,
    /// Memory of a review, and of a verdict, besides its bytes.
    overhead: (usize, usize),
    requests: AtomicUsize,
}

impl Inflight {
    /// Creates the state without reviews. Reviews and verdicts reserve memory in `budget`.
    pub fn new(budget: Arc<MemoryBudget>, max_review: usize) -> Arc<Self> {
        Arc::new(Self {
            budget,
            max_review,
            overhead: (REVIEW_OVERHEAD, VERDICT_OVERHEAD),
            requests: AtomicUsize::new(0),
        })
    }

    /// Begins a request of the connection whose head arrived at `arrived`; it ends when the guard is dropped.
    pub(super) fn enter<'a>(
        &'a self,
        clients: &Clients,
        session: &'a Session,
        arrived: Instant,
    ) -> Result<InflightGuard<'a>, Refusal> {
        self.requests.fetch_add(1, Relaxed);
        let second = clients.second(arrived);
        session.begin(second);
        let share = self.share(clients, &session.client, second);
        let held = self.budget.empty(Purpose::Review);
        let mut entered = InflightGuard { inflight: self, session, arrived, second, share, held };
        entered.reserve(0)?;
        Ok(entered)
    }

    /// Returns the share of `client` at `second`: at least one of the largest reviews.
    pub(super) fn share(&self, clients: &Clients, client: &ConnectedClient, second: u64) -> Share {
        let share = clients.share(client, self.budget.ceiling(Purpose::Review), second);
        Share { own: share.own.max(self.max_review), of_all: share.of_all.max(self.max_review) }
    }

    /// Refuses a call of `bytes` bytes that would not fit even alone: a retry could not succeed.
    fn check_size(&self, bytes: usize) -> Result<(), Refusal> {
        let limit = self.budget.ceiling(Purpose::Review).saturating_sub(self.overhead.0);
        if bytes > limit { Err(Refusal::TooLargeForMemory { bytes, limit }) } else { Ok(()) }
    }

    /// Reserves `more` bytes for a client with this share, for a call of `bytes` bytes in total.
    pub(super) fn try_grow(
        &self,
        held: &mut Reservation,
        client: &ConnectedClient,
        share: Share,
        more: usize,
        bytes: usize,
    ) -> Result<(), Refusal> {
        self.check_size(bytes)?;
        if !client.try_take(more, share.own) {
            // If the client may use everything, everything is full.
            let alone = share.own >= share.of_all;
            return Err(if alone { Refusal::Overloaded { bytes } } else { Refusal::Share { bytes } });
        }
        if !held.try_grow_below(share.of_all, more) {
            client.give_back(more);
            return Err(Refusal::Overloaded { bytes });
        }
        Ok(())
    }

    /// Returns the number of requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Returns the bytes reserved for the requests.
    pub fn bytes(&self) -> usize {
        self.budget.held_for(Purpose::Review)
    }

    /// Returns the memory budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }
}

/// One request in flight, with its reservation.
#[derive(Debug)]
pub struct InflightGuard<'a> {
    inflight: &'a Inflight,
    session: &'a Session,
    pub(super) arrived: Instant,
    second: u64,
    share: Share,
    held: Reservation,
}

impl InflightGuard<'_> {
    /// Refuses a call of `bytes` bytes for which there can never be room.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Refusal> {
        self.inflight.check_size(bytes)
    }

    /// Grows the reservation to `bytes`.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more = (bytes + self.inflight.overhead.0).saturating_sub(self.held.bytes());
        if more == 0 {
            return Ok(());
        }
        self.inflight.try_grow(&mut self.held, &self.session.client, self.share, more, bytes)
    }

    /// Shrinks the reservation to `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let before = self.held.bytes();
        self.held.shrink_to(bytes + self.inflight.overhead.0);
        self.session.client.give_back(before - self.held.bytes());
    }

    /// Ends the request. Its reservation becomes the verdict's until the verdict is written.
    pub(super) fn into_verdict(mut self, verdict: Bytes, deadline: Deadline) -> Result<Outgoing, Refusal> {
        let bytes = verdict.len();
        let mut held = mem::replace(&mut self.held, self.inflight.budget.empty(Purpose::Review));
        self.session.client.give_back(held.bytes());
        if !held.turn_into(Purpose::Verdict, bytes + self.inflight.overhead.1) {
            return Err(Refusal::Overloaded { bytes });
        }
        self.session.had_verdict();
        self.session.client.had_verdict(self.second);
        Ok(Outgoing::held(verdict, held, self.session.unsent.add(self.arrived, deadline.instant())))
    }
}

impl Drop for InflightGuard<'_> {
    fn drop(&mut self) {
        self.session.client.give_back(self.held.bytes());
        self.session.end();
        self.inflight.requests.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
#[path = "inflight/tests.rs"]
mod tests;
