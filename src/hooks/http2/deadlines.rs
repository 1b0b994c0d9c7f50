//! Deadlines: when the next of a connection's calls runs out of time. One timer serves them all.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::time::{Sleep, sleep_until};

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Without a stream, by its ticket.
    Waiting(u64),
    /// On this stream.
    Stream(u32),
}

/// When the next of a connection's calls runs out of time. Most calls end before: theirs stay until they come to the
/// front, or are too many.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, Place)>>,
    /// Made when it is first needed.
    alarm: Option<Pin<Box<Sleep>>>,
    set_for: Option<Instant>,
}

/// Fewer are not worth tidying.
const FEW: usize = 256;

impl Deadlines {
    pub(super) fn push(&mut self, deadline: Instant, place: Place) {
        self.heap.push(Reverse((deadline, place)));
    }

    /// Forgets calls that are over, where there are too many of them beside `live` ones.
    pub(super) fn tidy(&mut self, live: usize, is_live: impl Fn(Place) -> bool) {
        if self.heap.len() > FEW + 2 * live {
            self.heap.retain(|Reverse((_, place))| is_live(*place));
        }
    }

    /// The next call that is under way and has no time left; those that are over are passed by.
    pub(super) fn next_late(&mut self, now: Instant, is_live: impl Fn(Place) -> bool) -> Option<Place> {
        while let Some(&Reverse((deadline, place))) = self.heap.peek() {
            let live = is_live(place);
            if live && deadline > now {
                return None;
            }
            self.heap.pop();
            if live {
                return Some(place);
            }
        }
        None
    }

    /// Ready when somebody's time, or the time given, is over; a call that is over may ring as well.
    pub(super) fn poll_ring(&mut self, cx: &mut Context<'_>, other: Option<Instant>) -> Poll<()> {
        let first = self.heap.peek().map(|Reverse((deadline, _))| *deadline);
        let Some(next) = first.into_iter().chain(other).min() else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(next.into())));
        // One that rings earlier than needed is left as it is: that saves setting it anew for every call.
        if self.set_for.is_none_or(|set_for| set_for > next) {
            alarm.as_mut().reset(next.into());
            self.set_for = Some(next);
        }
        ready!(alarm.as_mut().poll(cx));
        self.set_for = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_deadline_rings_and_calls_that_are_over_are_passed_by() {
        let began = tokio::time::Instant::now().into_std();
        let at = |secs| began + Duration::from_secs(secs);
        let mut deadlines = Deadlines::default();
        for (secs, id) in [(3, 1), (1, 3), (2, 5)] {
            deadlines.push(at(secs), Place::Stream(id));
        }
        poll_fn(|cx| deadlines.poll_ring(cx, None)).await;
        let now = tokio::time::Instant::now().into_std();
        assert!(now >= at(1) && now < at(2), "{:?}", now - began);
        let is_live = |place| place != Place::Stream(3);
        assert_eq!(deadlines.next_late(now, is_live), None);
        assert_eq!(deadlines.next_late(at(2), is_live), Some(Place::Stream(5)));
        poll_fn(|cx| deadlines.poll_ring(cx, Some(at(2)))).await;
        assert_eq!(deadlines.next_late(at(3), is_live), Some(Place::Stream(1)));
        assert_eq!(deadlines.next_late(at(9), is_live), None);
    }

    #[test]
    fn calls_that_are_over_do_not_pile_up() {
        let mut deadlines = Deadlines::default();
        for id in 0..100_000 {
            deadlines.push(Instant::now(), Place::Stream(id));
            deadlines.tidy(1, |place| place == Place::Stream(id));
        }
        assert!(deadlines.heap.len() <= FEW + 2, "{}", deadlines.heap.len());
    }
}
