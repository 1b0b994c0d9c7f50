//! Waiting: calls for which there is no stream yet.

use std::{collections::VecDeque, time::Instant};

use super::super::call::Call;

/// Calls for which there is no stream yet, first come, first served. Each has a ticket, by which it can be taken out.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Those taken out leave their place free until they would have been in front.
    calls: VecDeque<Option<Call>>,
    /// The ticket of the one in front, and of the first whose deadline was not yet told.
    first: u64,
    untold: u64,
    len: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lets a call wait, and returns its ticket.
    pub(super) fn push(&mut self, call: Call) -> u64 {
        self.calls.push_back(Some(call));
        self.len += 1;
        self.first + self.calls.len() as u64 - 1
    }

    /// The next call that waits and whose deadline was not told before: its ticket, and the deadline. Most calls begin
    /// before anybody asks.
    pub(super) fn next_deadline(&mut self) -> Option<(u64, Instant)> {
        self.untold = self.untold.max(self.first);
        loop {
            let place = usize::try_from(self.untold - self.first).ok()?;
            let call = self.calls.get(place)?;
            self.untold += 1;
            if let Some(call) = call {
                return Some((self.untold - 1, call.deadline));
            }
        }
    }

    /// The call that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Call> {
        while let Some(place) = self.calls.pop_front() {
            self.first += 1;
            if let Some(call) = place {
                self.len -= 1;
                return Some(call);
            }
        }
        None
    }

    /// Takes out the call with that ticket, where it still waits.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Call> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let call = self.calls.get_mut(place)?.take()?;
        self.len -= 1;
        self.tidy();
        Some(call)
    }

    pub(super) fn waits(&self, ticket: u64) -> bool {
        let place = ticket.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.calls.get(place)).is_some_and(Option::is_some)
    }

    /// Lets go of the calls for which nobody waits.
    pub(super) fn sweep(&mut self) {
        for place in &mut self.calls {
            if place.as_ref().is_some_and(Call::is_abandoned) {
                *place = None;
                self.len -= 1;
            }
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        while let Some(None) = self.calls.front() {
            self.calls.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        hooks::{Inbox, Method, Request},
        model::Rope,
    };

    fn call(tag: u32) -> Call {
        let request = Request::Grpc { method: Method::Validate, namespace_labels: None };
        let (body, inbox) = (Rope::new([]), Arc::new(Inbox::default()));
        Call {
            request,
            body,
            deadline: Instant::now(),
            inbox,
            tag,
            again: false,
            resends: 0,
            hops: crate::model::Hops::FIRST,
        }
    }

    #[test]
    fn calls_go_in_order_and_by_ticket() {
        let mut waiting = Waiting::default();
        let tickets: Vec<u64> = (0..5).map(|tag| waiting.push(call(tag))).collect();
        let tag = |call: Option<Call>| call.map(|call| call.tag);
        assert_eq!(tag(waiting.pop()), Some(0));
        assert_eq!(tag(waiting.take(tickets[0])), None, "gone already");
        assert_eq!(tag(waiting.take(tickets[1])), Some(1));
        assert_eq!(tag(waiting.take(tickets[3])), Some(3));
        assert!(waiting.waits(tickets[2]) && !waiting.waits(tickets[3]));
        assert_eq!((tag(waiting.pop()), tag(waiting.pop()), tag(waiting.pop())), (Some(2), Some(4), None));
        let ticket = waiting.push(call(9));
        assert_eq!((waiting.len(), tag(waiting.take(ticket)), waiting.len()), (1, Some(9), 0));
    }

    #[test]
    fn each_deadline_is_told_once() {
        let mut waiting = Waiting::default();
        let tickets: Vec<u64> = (0..4).map(|tag| waiting.push(call(tag))).collect();
        waiting.pop();
        waiting.take(tickets[2]);
        let told = |waiting: &mut Waiting| waiting.next_deadline().map(|(ticket, _)| ticket);
        assert_eq!(
            [told(&mut waiting), told(&mut waiting), told(&mut waiting)],
            [Some(tickets[1]), Some(tickets[3]), None]
        );
        let ticket = waiting.push(call(4));
        assert_eq!([told(&mut waiting), told(&mut waiting)], [Some(ticket), None]);
    }
}
