//! Quota: how many calls there may be at once of health and reflection, how many instances of initializers, and how many
//! calls about objects that are stored unfinished.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{
    front::{connection::session::Session, refusal::Refusal},
    memory::{MemoryBudget, Purpose, Reservation},
};

/// Of all clients.
const OF_ALL: usize = 256;
/// One client, on all its connections, may have as many as a quarter of the places that are free: 51 while it is alone. So
/// it takes many addresses, and not four, to leave none for a kubelet that asks whether we live.
const PART: usize = 4;

/// Purpose of places. Calls that stay have places of their own, so that they do not keep a kubelet out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Places {
    /// Calls of health and reflection.
    #[default]
    Aux,
    /// Instances of initializers, and apiservers that report their unfinished objects.
    Attached,
    /// Calls about unfinished objects: an apiserver has one for each CREATE that it holds.
    Initialization,
}

impl Places {
    /// On one connection; of all clients; and the part of those that are free which one client may have.
    fn bounds(self) -> (usize, usize, usize) {
        match self {
            Self::Aux => (8, OF_ALL, PART),
            // A process may act for several names.
            Self::Attached => (32, OF_ALL, PART),
            // One client alone has 2,730. There are few apiservers; HTTP/2 has its own, lower bound on a connection.
            Self::Initialization => (1024, 8192, 2),
        }
    }
}

/// Quota of one call: bytes it may send, and bytes it holds of the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) sent: usize,
    pub(crate) held: usize,
}

/// The calls of all clients.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    all: AtomicUsize,
    places: Places,
}

impl Quota {
    /// Of these places.
    pub(crate) fn of(places: Places) -> Self {
        Self { places, ..Self::default() }
    }

    /// A place for one more call on that connection; given back when it is dropped.
    pub(crate) fn take<'a>(
        &'a self,
        session: &'a Session,
        budget: &Arc<MemoryBudget>,
        cost: Cost,
    ) -> Result<Taken<'a>, Refusal> {
        // Not as reviews are held: whoever asks whether we live is to hear it also when those have all that is theirs.
        let mut taken = Taken { of: [None; 3], _held: budget.empty(Purpose::Verdict) };
        let (of_connection, of_all, part) = self.places.bounds();
        let of_client = of_all.saturating_sub(self.all.load(Relaxed)) / part;
        let client = session.client();
        let (on_connection, of_one) = match self.places {
            Places::Aux => (&session.aux_calls, &client.aux_calls),
            Places::Attached => (&session.attached, &client.attached),
            Places::Initialization => (&session.initializing, &client.initializing),
        };
        let counters = [(on_connection, of_connection), (of_one, of_client), (&self.all, of_all)];
        for (place, (counter, most)) in taken.of.iter_mut().zip(counters) {
            *place = Some(counter);
            if counter.fetch_add(1, Relaxed) >= most {
                return Err(match self.places {
                    Places::Aux => Refusal::ColdTooMany,
                    Places::Attached => Refusal::TooManyInstances,
                    Places::Initialization => Refusal::TooManyHolds,
                });
            }
        }
        let bytes = cost.held;
        taken._held = budget.reserve(Purpose::Verdict, bytes).ok_or(Refusal::Overloaded { bytes })?;
        Ok(taken)
    }
}

/// The place of one call.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    of: [Option<&'a AtomicUsize>; 3],
    _held: Reservation,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for counter in self.of.into_iter().flatten() {
            counter.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::front::accept::{clients::Clients, identity::Identity};

    const COST: Cost = Cost { sent: 1, held: 1 };

    #[test]
    fn clients_that_keep_their_places_leave_one_for_who_asks_whether_we_live() {
        let (clients, quota, budget) = (Clients::new(4096, Instant::now()), Quota::default(), MemoryBudget::new(1000));
        let connect = |n: u32| {
            let address = Identity::of(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
            clients.admit(address, Instant::now()).expect("room")
        };
        let greedy: Vec<_> = (0..16).flat_map(|n| (0..8).map(move |_| n)).map(connect).collect();
        let mut taken = Vec::new();
        for admitted in &greedy {
            taken.extend((0..8).filter_map(|_| quota.take(admitted.session(), &budget, COST).ok()));
        }
        assert!((200..OF_ALL - PART).contains(&taken.len()), "{}", taken.len());
        let kubelet = connect(1000);
        assert!(quota.take(kubelet.session(), &budget, COST).is_ok());
        drop(taken);
        assert_eq!((quota.all.load(Relaxed), budget.held()), (0, 0));
    }

    #[test]
    fn an_apiserver_holds_as_many_as_a_connection_may() {
        let (clients, budget) = (Clients::new(4096, Instant::now()), MemoryBudget::new(10_000));
        let quota = Quota::of(Places::Initialization);
        let connect = || clients.admit(Identity::of([10, 0, 0, 1].into()), Instant::now()).expect("room");
        let connections = [connect(), connect(), connect()];
        let mut taken = Vec::new();
        let mut take = |at: usize| {
            let results = (0..2000).map(|_| quota.take(connections[at].session(), &budget, COST));
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
