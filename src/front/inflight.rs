//! Inflight: the reviews being read or decided, and what they hold of the memory budget.

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
    /// Size of the largest review: a client's share is never less.
    max_review: usize,
    /// Memory of every review and every verdict besides its bytes.
    overhead: (usize, usize),
    requests: AtomicUsize,
}

impl Inflight {
    /// Nothing in flight; reviews and verdicts will be held in that budget.
    pub fn new(budget: Arc<MemoryBudget>, max_review: usize) -> Arc<Self> {
        Arc::new(Self {
            budget,
            max_review,
            overhead: (REVIEW_OVERHEAD, VERDICT_OVERHEAD),
            requests: AtomicUsize::new(0),
        })
    }

    /// Begins a request whose head arrived then on that connection; it ends when the guard is dropped.
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

    /// Share of that client at that second. Never less than for one of the largest reviews.
    pub(super) fn share(&self, clients: &Clients, client: &ConnectedClient, second: u64) -> Share {
        let share = clients.share(client, self.budget.ceiling(Purpose::Review), second);
        Share { own: share.own.max(self.max_review), of_all: share.of_all.max(self.max_review) }
    }

    /// Refuses a call of so many bytes if there would be no room even for it alone: trying again is no use.
    fn check_size(&self, bytes: usize) -> Result<(), Refusal> {
        let limit = self.budget.ceiling(Purpose::Review).saturating_sub(self.overhead.0);
        if bytes > limit { Err(Refusal::TooLargeForMemory { bytes, limit }) } else { Ok(()) }
    }

    /// Reserves more bytes for a client with this share, of a call that is to have `bytes`.
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
            // A client that may have all of it is refused because all is full.
            let alone = share.own >= share.of_all;
            return Err(if alone { Refusal::Overloaded { bytes } } else { Refusal::Share { bytes } });
        }
        if !held.try_grow_below(share.of_all, more) {
            client.give_back(more);
            return Err(Refusal::Overloaded { bytes });
        }
        Ok(())
    }

    /// Requests in flight.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Bytes reserved for them.
    pub fn bytes(&self) -> usize {
        self.budget.held_for(Purpose::Review)
    }

    /// The budget that holds them.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }
}

/// One request in flight with what it has reserved.
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
    /// Refuses a call of so many bytes for which there can never be room.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Refusal> {
        self.inflight.check_size(bytes)
    }

    /// Reserves room until there is so much.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more = (bytes + self.inflight.overhead.0).saturating_sub(self.held.bytes());
        if more == 0 {
            return Ok(());
        }
        self.inflight.try_grow(&mut self.held, &self.session.client, self.share, more, bytes)
    }

    /// Gives back room beyond `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let before = self.held.bytes();
        self.held.shrink_to(bytes + self.inflight.overhead.0);
        self.session.client.give_back(before - self.held.bytes());
    }

    /// Ends the request: what it held holds its verdict from now on, until that is written.
    pub(super) fn decided(mut self, verdict: Bytes, deadline: Deadline) -> Result<Outgoing, Refusal> {
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
