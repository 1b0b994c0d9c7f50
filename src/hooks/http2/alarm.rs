//! Alarm: one timer for all deadlines of a connection.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::time::{Sleep, sleep_until};

/// One timer for all deadlines of a connection.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// Made when it is first needed.
    timer: Option<Pin<Box<Sleep>>>,
    set_for: Option<Instant>,
}

impl Alarm {
    /// Ready when the time given is over, or an earlier one that it was set for; without a time, never.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, next: Option<Instant>) -> Poll<()> {
        let Some(next) = next else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next.into())));
        // One that rings earlier than needed is left as it is: that saves setting it anew for every call.
        if self.set_for.is_none_or(|set_for| set_for > next) {
            timer.as_mut().reset(next.into());
            self.set_for = Some(next);
        }
        ready!(timer.as_mut().poll(cx));
        self.set_for = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_for_the_earliest_it_was_set_for() {
        let began = tokio::time::Instant::now().into_std();
        let at = |secs| began + Duration::from_secs(secs);
        let mut alarm = Alarm::default();
        for (set, other, rings) in [(3, 3, 3), (9, 5, 5), (7, 9, 7)] {
            let first = poll_fn(|cx| Poll::Ready(alarm.poll(cx, Some(at(set))))).await;
            assert!(first.is_pending());
            poll_fn(|cx| alarm.poll(cx, Some(at(other)))).await;
            let now = tokio::time::Instant::now().into_std();
            assert!(now >= at(rings) && now < at(rings + 1), "{:?}", now - began);
        }
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, None))).await.is_pending());
    }
}
