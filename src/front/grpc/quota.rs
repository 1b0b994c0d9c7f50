//! Quota: how many calls there may be at once of health and reflection, and how many instances of initializers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{
    front::{connection::session::Session, refusal::Refusal},
    memory::{MemoryBudget, Purpose, Reservation},
};

/// On one connection.
const OF_CONNECTION: usize = 8;
/// Instances on one connection: a process may act for several names.
const ATTACHED_OF_CONNECTION: usize = 32;
/// Of all clients.
const OF_ALL: usize = 256;
/// One client, on all its connections, may have as many as a quarter of the places that are free: 51 while it is alone. So
/// it takes many addresses, and not four, to leave none for a kubelet that asks whether we live.
const PART: usize = 4;

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
    /// Of instances of initializers, which have places of their own: they stay, and must not keep a kubelet out.
    attached: bool,
}

impl Quota {
    /// Places of instances of initializers.
    pub(crate) fn of_attached() -> Self {
        Self { attached: true, ..Self::default() }
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
        let of_client = OF_ALL.saturating_sub(self.all.load(Relaxed)) / PART;
        let client = session.client();
        let (on_connection, most, of_one) = if self.attached {
            (&session.attached, ATTACHED_OF_CONNECTION, &client.attached)
        } else {
            (&session.aux_calls, OF_CONNECTION, &client.aux_calls)
        };
        let counters = [(on_connection, most), (of_one, of_client), (&self.all, OF_ALL)];
        for (place, (counter, most)) in taken.of.iter_mut().zip(counters) {
            *place = Some(counter);
            if counter.fetch_add(1, Relaxed) >= most {
                return Err(if self.attached { Refusal::TooManyInstances } else { Refusal::ColdTooMany });
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
}
