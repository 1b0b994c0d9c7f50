//! Asking all selected hooks at once, from the same bytes.

use std::{
    collections::HashSet,
    panic::resume_unwind,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{sleep_until, timeout_at},
};

use super::{
    Caller, Gate, Reasons,
    outcome::{Ending, Outcome},
    select::Asked,
    slot::Slot,
};
use crate::{
    hooks::{Call, Channel, Inbox, Method, Reply, Request},
    model::{Answer, CallFailure, HttpForm, Protocol, Review, SideEffects},
    offload::{self, LARGE},
    telemetry::{HookOutcome, Repeat},
    wire::{
        answer,
        encodings::{Encodings, Form},
        http_answer,
    },
};

/// Asks every hook at once and waits for what they say: until all have answered or run out of time, or (but for
/// [`Reasons::All`]) until one has rejected and the time for others is over. Returns one outcome for each hook, in the
/// order given.
///
/// One timer serves all hooks; one inbox receives all answers. Leaving early, in whatever way, cancels the calls still
/// running.
pub(super) async fn ask_all<'a>(
    gate: &Gate,
    asked: &[Asked<'a>],
    review: &Review,
    caller: &Caller,
) -> Vec<Outcome<'a>> {
    let encodings = encodings(asked, review, caller).await;
    let mut fanout = Fanout::begin(gate.reasons, asked, review, caller, encodings);
    let mut set_for = fanout.next_alarm().unwrap_or(fanout.began);
    let mut alarm = pin!(sleep_until(set_for.into()));
    while fanout.running > 0 && fanout.ends.is_none_or(|end| end > Instant::now()) {
        tokio::select! {
            biased;
            arrived = fanout.inbox.take() => {
                let now = Instant::now();
                for (tag, result) in arrived {
                    fanout.arrived(tag, result, now);
                }
            }
            Some(decoded) = fanout.decoding.join_next(), if !fanout.decoding.is_empty() => match decoded {
                Ok((tag, answer)) => fanout.answered(tag, answer, Instant::now()),
                Err(error) => error.try_into_panic().map_or((), |panic| resume_unwind(panic)),
            },
            // It may ring for a hook that has answered meanwhile; then it is only set anew.
            () = &mut alarm => {
                fanout.ring(Instant::now());
                if let Some(next) = fanout.next_alarm() {
                    set_for = next;
                    alarm.as_mut().reset(next.into());
                }
            }
        }
        // A hook that rests may want to be woken, and a rejection to be given, before the alarm would ring. One that rings
        // earlier than needed is left as it is: that saves setting it anew for every answer.
        if let Some(next) = fanout.sooner.take().filter(|next| *next < set_for) {
            set_for = next;
            alarm.as_mut().reset(next.into());
        }
    }
    fanout.end()
}

/// The review's forms. Where it is large, those that must be written are written beside the worker; what cannot be
/// written in time fails the calls that want it.
async fn encodings<'r>(asked: &[Asked<'_>], review: &'r Review, caller: &Caller) -> Encodings<'r> {
    if review.bytes.len() < LARGE {
        return Encodings::of(review);
    }
    let forms = asked.iter().map(|asked| Form::from(asked.live.target.protocol()));
    let forms: HashSet<_> = forms.filter(|form| Encodings::must_write(review, *form)).collect();
    if forms.is_empty() {
        return Encodings::of(review);
    }
    let began = Instant::now();
    let (copy, wanted) = (review.clone(), forms.clone());
    let writing = offload::run(review.bytes.len(), move || {
        let encodings = Encodings::of(&copy);
        wanted.into_iter().map(|form| (form, encodings.get(form))).collect()
    });
    let written = timeout_at(caller.deadline.instant().into(), writing).await.unwrap_or_else(|_| {
        let late = CallFailure::Timeout(Duration::from_millis(began.elapsed().as_millis() as u64));
        forms.into_iter().map(|form| (form, Err(late.clone()))).collect()
    });
    Encodings::with(review, written)
}

/// What a hook sent back, to what it says; `form`: how it is spoken to, `None` for gRPC.
fn decode(form: Option<HttpForm>, uid: &str, reply: Reply) -> Result<Answer, CallFailure> {
    match (reply, form) {
        (Reply::Http(reply), Some(form)) => {
            // The seeds' contract is three statuses; in Kubernetes' the type comes before all else.
            if !reply.readable_type && form != HttpForm::Legacy {
                return Err(CallFailure::Undecodable("its Content-Type is no media type".into()));
            }
            http_answer::decode(form, uid, reply.status, reply.body()?)
        }
        (Reply::Grpc(message), _) => answer::decode(uid, message),
        // No channel answers in a language that was not spoken to it.
        (Reply::Http(reply), None) => Err(CallFailure::NotGrpc(format!("HTTP {}", reply.status))),
    }
}

struct Fanout<'a, 'r> {
    review: &'r Review,
    caller: &'r Caller,
    /// The review in every encoding that a hook has wanted so far.
    encodings: Encodings<'r>,
    inbox: Arc<Inbox>,
    began: Instant,
    slots: Vec<Slot<'a>>,
    /// Slots without an outcome.
    running: usize,
    /// Large answers that are being decoded beside the worker.
    decoding: JoinSet<(usize, Result<Answer, CallFailure>)>,
    /// The earliest of the rests and of the end that became known since this was taken.
    sooner: Option<Instant>,
    reasons: Reasons,
    /// When no further answer is waited for, once there is a rejection.
    ends: Option<Instant>,
}

impl<'a, 'r> Fanout<'a, 'r> {
    fn begin(
        reasons: Reasons,
        asked: &[Asked<'a>],
        review: &'r Review,
        caller: &'r Caller,
        encodings: Encodings<'r>,
    ) -> Self {
        let began = Instant::now();
        let slots = asked
            .iter()
            .map(|asked| {
                let deadline = caller.deadline.within(began, asked.live.target.timeout());
                Slot::new(asked.live, asked.opened, deadline.instant())
            })
            .collect();
        let mut fanout = Self {
            review,
            caller,
            encodings,
            inbox: Arc::new(Inbox::default()),
            began,
            slots,
            running: asked.len(),
            decoding: JoinSet::new(),
            sooner: None,
            reasons,
            ends: None,
        };
        for (tag, asked) in asked.iter().enumerate() {
            fanout.first(tag, asked);
        }
        fanout
    }

    /// Asks one hook, unless the request is a dry run that must not reach it, or it cannot be asked about this request.
    fn first(&mut self, tag: usize, asked: &Asked<'a>) {
        let live = asked.live;
        let side_effects = live.target.side_effects();
        if self.review.dry_run && !side_effects.free() {
            if side_effects == SideEffects::Undeclared {
                self.settle(tag, Err(CallFailure::SideEffectsUndeclared), Duration::ZERO);
            } else {
                self.put(tag, Outcome { live, ending: Ending::DryRunRefused, took: Duration::ZERO });
            }
        } else if let Some(unable) = &asked.unable {
            self.settle(tag, Err((**unable).clone()), Duration::ZERO);
        } else {
            self.ask(tag, Channel::ask);
        }
    }

    /// Sends the review, in the encoding this hook wants, over a connection that `send` chooses.
    fn ask(&mut self, tag: usize, send: impl FnOnce(&Channel, usize, Call)) {
        let Some(slot) = self.slots.get_mut(tag) else { return };
        let target = &slot.live.target;
        let protocol = target.protocol();
        let body = match self.encodings.get(protocol.into()) {
            Ok(body) => body,
            Err(failure) => return self.settle(tag, Err(failure), self.began.elapsed()),
        };
        let request = match protocol {
            Protocol::Grpc => {
                Request::Grpc { method: Method::Validate, namespace_labels: self.caller.namespace_labels_text.clone() }
            }
            // Also where it is asked again, as upstream.
            Protocol::Http { path, form } => {
                Request::Http { path: path.clone(), form: *form, timeout: slot.allowed(self.began) }
            }
        };
        slot.open = true;
        let call = Call {
            request,
            body,
            deadline: slot.deadline,
            inbox: self.inbox.clone(),
            tag: tag as u32,
            again: target.side_effects().free(),
            resends: 0,
            hops: self.caller.hops.passed_on(),
        };
        send(target.channel(), self.caller.worker, call);
    }

    /// When the next thing is to be done that no answer does.
    fn next_alarm(&self) -> Option<Instant> {
        self.slots.iter().filter_map(Slot::alarm).chain(self.ends).min()
    }

    /// Something came back from a hook.
    fn arrived(&mut self, tag: u32, result: Result<Reply, CallFailure>, now: Instant) {
        let tag = tag as usize;
        let Some(slot) = self.slots.get_mut(tag).filter(|slot| slot.outcome.is_none()) else { return };
        slot.open = false;
        if let Ok(Reply::Http(reply)) = &result
            && let Some(end) = slot.rests(reply, now)
        {
            let (hook, delay) = (&slot.live.hook.name, end.duration_since(now));
            tracing::debug!(%hook, status = reply.status, ?delay, "a hook asks to be called later (Retry-After)");
            return self.rings_by(end);
        }
        let form = match slot.live.target.protocol() {
            Protocol::Http { form, .. } => Some(*form),
            Protocol::Grpc => None,
        };
        let answer = match result {
            Ok(reply) if reply.cost() >= LARGE => {
                let uid = self.review.uid.clone();
                let decoding = offload::run(reply.cost(), move || decode(form, &uid, reply));
                self.decoding.spawn(async move { (tag, decoding.await) });
                return;
            }
            Ok(reply) => decode(form, &self.review.uid, reply),
            // The hook was told our deadline, and its clock may ring a moment before ours.
            Err(CallFailure::Grpc { code: "DEADLINE_EXCEEDED" | "CANCELLED", .. })
                if now + RINGS_EARLY >= slot.deadline =>
            {
                Err(CallFailure::Timeout(slot.allowed(self.began)))
            }
            Err(failure) => Err(failure),
        };
        self.answered(tag, answer, now);
    }

    /// What came back from a hook is understood.
    fn answered(&mut self, tag: usize, answer: Result<Answer, CallFailure>, now: Instant) {
        let Some(slot) = self.slots.get_mut(tag).filter(|slot| slot.outcome.is_none()) else { return };
        if matches!(&answer, Err(failure) if slot.retries(failure, now)) {
            slot.live.metrics.repeated(Repeat::Policy);
            return self.ask(tag, |channel, _, call| channel.ask_elsewhere(call));
        }
        self.settle(tag, answer, now.duration_since(self.began));
    }

    /// It is time for something: for some, time is up; others are asked again.
    fn ring(&mut self, now: Instant) {
        for tag in 0..self.slots.len() {
            let slot = &mut self.slots[tag];
            if slot.is_late(now) {
                let allowed = slot.allowed(self.began);
                self.settle(tag, Err(CallFailure::Timeout(allowed)), now.duration_since(self.began));
            } else if slot.wakes(now) {
                slot.live.metrics.repeated(Repeat::RetryAfter);
                self.ask(tag, Channel::ask);
            }
        }
    }

    fn settle(&mut self, tag: usize, result: Result<Answer, CallFailure>, took: Duration) {
        let Some(slot) = self.slots.get(tag) else { return };
        self.put(tag, Outcome::judge(slot.live, slot.opened, result, took));
    }

    fn put(&mut self, tag: usize, outcome: Outcome<'a>) {
        outcome.live.metrics.record(self.caller.worker, outcome.label(), outcome.took);
        if outcome.rejects() && self.ends.is_none() {
            self.rejected();
        }
        if let Some(slot) = self.slots.get_mut(tag) {
            slot.outcome = Some(outcome);
            self.running -= 1;
        }
    }

    /// There is a first reason to reject.
    fn rejected(&mut self) {
        let grace = match self.reasons {
            Reasons::First => Duration::ZERO,
            Reasons::Within(grace) => grace,
            Reasons::All => return,
        };
        let end = self.caller.deadline.within(Instant::now(), grace).instant();
        self.ends = Some(end);
        self.rings_by(end);
    }

    /// The alarm is to ring by then.
    fn rings_by(&mut self, moment: Instant) {
        self.sooner = Some(self.sooner.map_or(moment, |first| first.min(moment)));
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
        let worker = self.caller.worker;
        if self.slots.iter().any(|slot| slot.open) {
            self.inbox.close();
        }
        for slot in &mut self.slots {
            if std::mem::take(&mut slot.open) {
                slot.live.target.channel().sweep(worker);
            }
            // One that rests is not open, and cancelled all the same.
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
