//! Asking all selected hooks at once, from the same bytes.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep_until;

use super::{
    Caller, Gate, Reasons,
    outcome::{Ending, Outcome},
};
use crate::{
    hooks::{Call, Inbox, Method, Reply, Request},
    live::LiveHook,
    model::{Answer, CallFailure, FailurePolicy, Review, SideEffects},
    telemetry::HookOutcome,
    wire::answer,
};

/// Asks every hook at once and waits for what they say: until all have answered or run out of time, or (with
/// [`Reasons::First`]) until one rejects. Returns one outcome for each hook, in the order given.
///
/// One timer serves all hooks; one inbox receives all answers. Leaving early, in whatever way, cancels the calls still
/// running.
pub(super) async fn ask_all<'a>(
    gate: &Gate,
    asked: &[&'a LiveHook],
    review: &Review,
    caller: &Caller,
) -> Vec<Outcome<'a>> {
    let mut fanout = Fanout::begin(asked, review, caller);
    let mut alarm = pin!(sleep_until(fanout.next_alarm().unwrap_or(fanout.began).into()));
    while fanout.running > 0 && !(gate.reasons == Reasons::First && fanout.rejected) {
        tokio::select! {
            biased;
            arrived = fanout.inbox.take() => {
                let now = Instant::now();
                for (tag, result) in arrived {
                    fanout.arrived(tag, result, now);
                }
            }
            // It may ring for a hook that has answered meanwhile; then it is only set anew.
            () = &mut alarm => {
                fanout.ring(Instant::now());
                if let Some(next) = fanout.next_alarm() {
                    alarm.as_mut().reset(next.into());
                }
            }
        }
    }
    fanout.end()
}

/// One hook's call.
struct Slot<'a> {
    live: &'a LiveHook,
    deadline: Instant,
    retried: bool,
    /// The hook may still be working on it, whether or not we still wait.
    open: bool,
    outcome: Option<Outcome<'a>>,
}

struct Fanout<'a, 'r> {
    review: &'r Review,
    caller: &'r Caller,
    inbox: Arc<Inbox>,
    began: Instant,
    slots: Vec<Slot<'a>>,
    running: usize,
    rejected: bool,
}

impl<'a, 'r> Fanout<'a, 'r> {
    fn begin(asked: &[&'a LiveHook], review: &'r Review, caller: &'r Caller) -> Self {
        let began = Instant::now();
        let slots = asked
            .iter()
            .map(|&live| Slot {
                live,
                deadline: caller.deadline.within(began, live.hook.timeout).instant(),
                retried: false,
                open: false,
                outcome: None,
            })
            .collect();
        let inbox = Arc::new(Inbox::default());
        let mut fanout = Self { review, caller, inbox, began, slots, running: 0, rejected: false };
        for tag in 0..asked.len() {
            fanout.ask(tag);
        }
        fanout
    }

    /// Asks one hook, unless the request is a dry run that must not reach it.
    fn ask(&mut self, tag: usize) {
        let Some(slot) = self.slots.get_mut(tag) else { return };
        let side_effects = slot.live.hook.side_effects;
        if self.review.dry_run && !side_effects.free() {
            if side_effects == SideEffects::Undeclared {
                self.settle(tag, Err(CallFailure::SideEffectsUndeclared), Duration::ZERO);
            } else {
                let live = slot.live;
                self.put(tag, Outcome { live, ending: Ending::DryRunRefused, took: Duration::ZERO });
            }
            return;
        }
        self.running += 1;
        slot.open = true;
        let (live, deadline) = (slot.live, slot.deadline);
        live.channel.ask(self.caller.worker, self.call(tag, deadline));
    }

    fn call(&self, tag: usize, deadline: Instant) -> Call {
        Call {
            request: Request::Grpc {
                method: Method::Validate,
                namespace_labels: self.caller.namespace_labels_text.clone(),
            },
            body: self.review.bytes.clone(),
            deadline,
            inbox: self.inbox.clone(),
            tag: tag as u32,
        }
    }

    /// When the next of the running calls runs out of time.
    fn next_alarm(&self) -> Option<Instant> {
        self.slots.iter().filter(|slot| slot.outcome.is_none()).map(|slot| slot.deadline).min()
    }

    /// Something came back from a hook.
    fn arrived(&mut self, tag: u32, result: Result<Reply, CallFailure>, now: Instant) {
        let tag = tag as usize;
        let Some(slot) = self.slots.get_mut(tag) else { return };
        if slot.outcome.is_some() {
            return;
        }
        let retries = slot.live.hook.failure_policy == FailurePolicy::Retry && !slot.retried;
        if retries && matches!(&result, Err(failure) if failure.may_retry()) && now < slot.deadline {
            slot.retried = true;
            let (live, deadline) = (slot.live, slot.deadline);
            live.channel.ask_elsewhere(self.call(tag, deadline));
            return;
        }
        slot.open = false;
        let answer = match result {
            Ok(Reply::Grpc(message)) => answer::decode(&self.review.uid, message),
            Ok(Reply::Http(reply)) => Err(CallFailure::Http { status: reply.status, message: String::new() }),
            // The hook was told our deadline, and its clock may ring a moment before ours.
            Err(CallFailure::Grpc { code: "DEADLINE_EXCEEDED" | "CANCELLED", .. })
                if now + RINGS_EARLY >= slot.deadline =>
            {
                Err(CallFailure::Timeout(in_millis(slot.deadline.duration_since(self.began))))
            }
            Err(failure) => Err(failure),
        };
        self.running -= 1;
        self.settle(tag, answer, now.duration_since(self.began));
    }

    /// Time is up for some.
    fn ring(&mut self, now: Instant) {
        for tag in 0..self.slots.len() {
            let slot = &self.slots[tag];
            if slot.outcome.is_none() && slot.deadline <= now {
                let allowed = slot.deadline.duration_since(self.began);
                self.running -= 1;
                self.settle(tag, Err(CallFailure::Timeout(in_millis(allowed))), now.duration_since(self.began));
            }
        }
    }

    fn settle(&mut self, tag: usize, result: Result<Answer, CallFailure>, took: Duration) {
        let Some(slot) = self.slots.get(tag) else { return };
        self.put(tag, Outcome::judge(slot.live, result, took));
    }

    fn put(&mut self, tag: usize, outcome: Outcome<'a>) {
        outcome.live.metrics.record(self.caller.worker, outcome.label(), outcome.took);
        self.rejected |= outcome.rejects();
        if let Some(slot) = self.slots.get_mut(tag) {
            slot.outcome = Some(outcome);
        }
    }

    /// The outcomes; calls still open are cancelled.
    fn end(mut self) -> Vec<Outcome<'a>> {
        self.leave();
        let took = self.began.elapsed();
        std::mem::take(&mut self.slots)
            .into_iter()
            .map(|slot| slot.outcome.unwrap_or(Outcome { live: slot.live, ending: Ending::Cancelled, took }))
            .collect()
    }

    /// Nobody waits any more: hooks that still work on this request are told to stop.
    fn leave(&mut self) {
        if !self.slots.iter().any(|slot| slot.open) {
            return;
        }
        self.inbox.close();
        let worker = self.caller.worker;
        for slot in self.slots.iter_mut().filter(|slot| slot.open) {
            slot.open = false;
            slot.live.channel.sweep(worker);
            if slot.outcome.is_none() {
                slot.live.metrics.record(worker, HookOutcome::Cancelled, self.began.elapsed());
            }
        }
    }
}

impl Drop for Fanout<'_, '_> {
    /// Also when the request itself was given up, because its caller hung up.
    fn drop(&mut self) {
        self.leave();
    }
}

/// A hook that ends the call itself so shortly before our deadline has run out of time.
const RINGS_EARLY: Duration = Duration::from_millis(5);

/// Durations in messages are whole milliseconds.
fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_micros().div_ceil(1000) as u64)
}
