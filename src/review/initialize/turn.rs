//! Turn: one initializer's turn at the object, built in or by a process that has claimed its name.
//!
//! Consecutive initializers with `parallel` are called concurrently, with the object of the first one's turn
//! ([`ParallelCalls`]). Each of them should change fields of its own. An answer is applied in its initializer's turn,
//! unless it touches fields that earlier answers have touched, or something else has changed the object in between;
//! then the initializer is called again, in order. The turn of the first does not wait for the answers of the others.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout_at;

use super::super::{
    context::ReviewContext,
    facts::Facts,
    failure::is_skipped_on_failure,
    object::{PatchFailure, PatchedObject, apply_patch},
};
use gatepost_api::{HookType, Initializer, Labels, ObjectAdditions, Phase, ResourceInitializers, Review};
use gatepost_base::{
    clock::now,
    memory::{Purpose, Reservation},
    offload::{self, OFFLOAD_THRESHOLD},
};
use gatepost_initializers::{
    Initialization, TurnFailure, built_in,
    hub::{Contribution, TaskMessage},
    share,
};
use gatepost_json_patch::{Document, Patch, TouchedFields};

/// Maximum part of a request's time that is reserved for the answer.
const MAX_ANSWER_MARGIN: Duration = Duration::from_millis(250);

/// Effect of an initializer's turn on the object.
#[derive(Debug, Default)]
pub(super) struct TurnEffect {
    /// The object if the initializer has changed it.
    pub(super) changed: Option<Arc<PatchedObject>>,
    /// Names of initializers to add to the list.
    pub(super) adds: Vec<Box<str>>,
}

/// Answer of a process, with its memory reservation.
pub(super) struct Answer {
    /// The patch, and the size of its text in bytes.
    patch: Option<(Patch, usize)>,
    /// Fields that the patch touches.
    pub(super) fields: TouchedFields,
    adds: Vec<Box<str>>,
    _room: Reservation,
}

/// An initializer's turn at the current object.
pub(super) struct Turn<'a> {
    pub(super) ctx: &'a ReviewContext<'a>,
    pub(super) one: &'a Initializer,
    /// The object if something has changed it.
    pub(super) before: Option<Arc<PatchedObject>>,
    pub(super) began: Instant,
    /// Deadline of its turn. The rest of the request's time is for later initializers and the answer.
    pub(super) until: Instant,
    /// Name of the creator, if another user makes the request.
    pub(super) creator: Option<Arc<str>>,
}

impl Turn<'_> {
    /// Lets the initializer act.
    pub(super) async fn act(&self, facts: &mut Facts<'_, '_>) -> Result<TurnEffect, TurnFailure> {
        match (&self.one.built_in, &self.one.attach) {
            (Some(additions), _) => self.apply_built_in(additions, facts).await,
            (None, Some(_)) => self.call_process(facts).await,
            // No process can claim its name.
            (None, None) => Ok(TurnEffect::default()),
        }
    }

    async fn apply_built_in(
        &self,
        additions: &ObjectAdditions,
        facts: &mut Facts<'_, '_>,
    ) -> Result<TurnEffect, TurnFailure> {
        let labels = if additions.reads_namespace() {
            let found = self.run_until(self.until, facts.namespace_labels()).await?;
            Some(found.map_err(|refusal| TurnFailure::Unable(refusal.message))?)
        } else {
            None
        };
        let (review, before, additions) = (self.review().clone(), self.before.clone(), additions.clone());
        let creator = self.creator.clone();
        let Some(place) = review.object.clone() else { return Ok(TurnEffect::default()) };
        // Additions are bounded: the object with them is at most twice as large.
        let room = self.ctx.deps.memory.reserve(Purpose::Answer, place.len() + Document::outline(place.len()));
        let room = room.ok_or(TurnFailure::NoRoom)?;
        let additional = if place.len() < OFFLOAD_THRESHOLD {
            built_in::work(&additions, review.bytes.slices(place.clone()))
        } else {
            0
        };
        let held = self.before.as_ref().map_or(0, |before| before.document.held());
        // The object is processed about twice: to find what changes, and to change it.
        let size = 2 * (review.bytes.len() + held + additional);
        let adding = offload::run_unless_dropped(size, move |cancelled| {
            let object = review.bytes.copy_of(place);
            let facts = built_in::TemplateFacts {
                namespace: &review.namespace,
                name: &review.name,
                user: creator.as_deref().unwrap_or(&review.username),
                namespace_labels: labels.as_ref(),
            };
            match built_in::patch(&additions, &object, facts).map_err(PatchFailure::Inapplicable)? {
                Some(text) => {
                    let patch = Patch::parse(text).map_err(|error| PatchFailure::Inapplicable(error.to_string()))?;
                    apply_patch(&review, before.as_ref(), &patch, room, Some(cancelled))
                }
                None => Ok(None),
            }
        });
        // A built-in initializer waits for nothing. So it acts until the request's deadline, even if others have used
        // up its time.
        Ok(TurnEffect { changed: changed(self.run_until(self.request_deadline(), adding).await?)?, adds: Vec::new() })
    }

    async fn call_process(&self, facts: &mut Facts<'_, '_>) -> Result<TurnEffect, TurnFailure> {
        let labels = self.run_until(self.until, labels(facts)).await?;
        let answer = self.call(labels).await?;
        self.apply_answer(answer).await
    }

    /// Calls the process that has claimed the name, and returns its answer.
    pub(super) async fn call(&self, labels: Labels) -> Result<Answer, TurnFailure> {
        if self.ctx.review.dry_run && !self.one.side_effects.none_for(true) {
            return Err(TurnFailure::DryRun);
        }
        if self.until <= now() {
            return Err(self.late());
        }
        let review = self.review().clone();
        let size = review.bytes.len();
        let room = self.ctx.deps.memory.reserve(Purpose::Queue, size).ok_or(TurnFailure::NoRoom)?;
        let name = Arc::clone(&self.one.name);
        // The review is processed twice: it is encoded and hashed.
        let writing = offload::run(2 * size, move || TaskMessage::new(&name, &review, &labels, room));
        let message = self.run_until(self.until, writing).await?.map_err(TurnFailure::Unable)?;
        let hub = self.ctx.deps.current.hub();
        let (Contribution { patch, adds }, room) =
            hub.ask(&self.one.name, message, self.until).await.map_err(|why| match why {
                // Its turn began before the call.
                TurnFailure::Late(_) => self.late(),
                why => why,
            })?;
        let Some(text) = patch else {
            return Ok(Answer { patch: None, fields: TouchedFields::default(), adds, _room: room });
        };
        let length = text.len();
        let parsing = offload::run(2 * length, move || {
            let patch = Patch::parse(text).map_err(|error| error.to_string())?;
            Ok::<_, String>((patch.fields(), patch))
        });
        // The answer arrived in time, so its patch may be parsed until the request's deadline.
        let parsed = self.run_until(self.request_deadline(), parsing).await?;
        let (fields, patch) = parsed.map_err(TurnFailure::Unable)?;
        Ok(Answer { patch: Some((patch, length)), fields, adds, _room: room })
    }

    /// Applies an answer that arrived in time, however long it has waited for its turn.
    pub(super) async fn apply_answer(&self, answer: Answer) -> Result<TurnEffect, TurnFailure> {
        let Answer { patch, adds, _room, .. } = answer;
        let Some((patch, length)) = patch else { return Ok(TurnEffect { changed: None, adds }) };
        let applied = self.ctx.apply(patch, length, self.review(), self.before.as_ref()).await;
        Ok(TurnEffect { changed: changed(applied.map_err(|_| self.late())?)?, adds })
    }

    /// Waits for `work` until `until`.
    async fn run_until<T>(&self, until: Instant, work: impl Future<Output = T>) -> Result<T, TurnFailure> {
        timeout_at(until.into(), work).await.map_err(|_| self.late())
    }

    fn review(&self) -> &Review {
        self.ctx.current_review(self.before.as_ref())
    }

    /// Returns the request's deadline, which also bounds work on an answer that arrived in time.
    fn request_deadline(&self) -> Instant {
        self.ctx.caller.deadline.instant()
    }

    pub(super) fn late(&self) -> TurnFailure {
        TurnFailure::Late(self.until.saturating_duration_since(self.began))
    }
}

/// Returns the object if a patch has changed it.
fn changed(applied: Result<Option<PatchedObject>, PatchFailure>) -> Result<Option<Arc<PatchedObject>>, TurnFailure> {
    match applied {
        Ok(changed) => Ok(changed.map(Arc::new)),
        Err(PatchFailure::NoRoom) => Err(TurnFailure::NoRoom),
        Err(PatchFailure::Inapplicable(why) | PatchFailure::TooLarge(why)) => Err(TurnFailure::Unable(why)),
    }
}

/// Returns the deadline of an initializer whose turn begins at `began`. It leaves time for processes behind the first
/// `before` names of the list, and for validating hooks. An initializer without which the object is not created leaves
/// no time.
pub(super) fn turn_deadline(
    ctx: &ReviewContext<'_>,
    entry: &ResourceInitializers,
    one: &Initializer,
    initialization: &Initialization,
    before: usize,
    began: Instant,
) -> Instant {
    let left = initializers_deadline(ctx).saturating_duration_since(began);
    if !is_skipped_on_failure(ctx, one) {
        return began + one.timeout.min(left);
    }
    let named = |name: &str| entry.initializers.iter().find(|one| *one.name == *name);
    let processes = |one: &&Initializer| one.built_in.is_none() && one.attach.is_some();
    let mut behind: Vec<_> =
        initialization.pending().skip(before).filter_map(named).filter(processes).map(|one| one.timeout).collect();
    if ctx.caller.phase == Phase::Review {
        let validating = ctx.generation.hooks.iter().filter(|live| live.hook.hook_type == HookType::Validating);
        // They are called concurrently, so only the longest timeout counts.
        behind.extend(validating.map(|live| live.target.timeout()).max());
    }
    began + share(left, one.timeout, &behind)
}

/// Returns the deadline of all initializers of a request: its own deadline less a margin for the answer.
pub(super) fn initializers_deadline(ctx: &ReviewContext<'_>) -> Instant {
    let (deadline, began) = (ctx.caller.deadline, ctx.began);
    let margin = MAX_ANSWER_MARGIN.min(deadline.left(began) / 10);
    deadline.instant().checked_sub(margin).unwrap_or(began).max(began.min(now()))
}

/// Returns the labels of the request's namespace for a process; none if they are unknown.
pub(super) async fn labels(facts: &mut Facts<'_, '_>) -> Labels {
    facts.namespace_labels().await.unwrap_or_default()
}

/// Name of an initializer, and its answer once that has arrived.
type ParallelAnswer = (Arc<str>, Option<Result<Answer, TurnFailure>>);

/// Future of an initializer's name and answer.
type AnswerFuture<'a> = Pin<Box<dyn Future<Output = (Arc<str>, Result<Answer, TurnFailure>)> + Send + 'a>>;

/// Speculative calls of initializers.
#[derive(Default)]
pub(super) struct ParallelCalls<'a> {
    /// Answers in the order of the turns; `None` until an answer arrives.
    answers: VecDeque<ParallelAnswer>,
    /// Calls of initializers without an answer.
    calls: FuturesUnordered<AnswerFuture<'a>>,
    /// The object that the initializers were called with.
    called_with: Option<Arc<PatchedObject>>,
    /// Time at which the initializers were called.
    pub(super) began: Option<Instant>,
    /// Fields that the answers applied so far have touched.
    touched: TouchedFields,
}

/// Returns the initializers, from the head of the list on, that may be called concurrently; none if that is only one.
fn group<'e>(entry: &'e ResourceInitializers, initialization: &Initialization) -> Vec<&'e Initializer> {
    let mut group = Vec::new();
    for name in initialization.pending() {
        let Some(one) = entry.initializers.iter().find(|one| *one.name == *name) else { break };
        let behind = |other: &&Initializer| one.after.contains(&Box::from(&*other.name));
        if !one.parallel || one.attach.is_none() || group.iter().any(behind) {
            break;
        }
        group.push(one);
    }
    if group.len() > 1 { group } else { Vec::new() }
}

impl<'a> ParallelCalls<'a> {
    /// Calls the head of the list, and the initializers that may be called with it.
    pub(super) async fn start(
        &mut self,
        ctx: &'a ReviewContext<'a>,
        entry: &'a ResourceInitializers,
        initialization: &Initialization,
        object: Option<&Arc<PatchedObject>>,
        facts: &mut Facts<'_, '_>,
    ) {
        let group = group(entry, initialization);
        let Some(longest) = group.iter().map(|one| one.timeout).max() else { return };
        let began = now();
        let found = timeout_at(initializers_deadline(ctx).min(began + longest).into(), labels(facts)).await;
        let together = group.len();
        for one in group {
            let until = turn_deadline(ctx, entry, one, initialization, together, began);
            let (name, turn) =
                (Arc::clone(&one.name), Turn { ctx, one, before: object.cloned(), began, until, creator: None });
            let Ok(labels) = &found else {
                self.answers.push_back((name, Some(Err(turn.late()))));
                continue;
            };
            self.answers.push_back((Arc::clone(&name), None));
            let labels = labels.clone();
            self.calls.push(Box::pin(async move { (name, turn.call(labels).await) }));
        }
        (self.called_with, self.began, self.touched) = (object.cloned(), Some(began), TouchedFields::default());
    }

    /// Waits for the answer of the initializer whose turn it is, and returns it; `None` if it has none that applies to
    /// the current object.
    ///
    /// # Errors
    /// An initializer that was called rejects the object: its name, and the rejection. The object is then not created,
    /// even if all other answers accept it.
    pub(super) async fn wait_for_answer(
        &mut self,
        name: &str,
        object: Option<&Arc<PatchedObject>>,
    ) -> Result<Option<Result<Answer, TurnFailure>>, (Arc<str>, TurnFailure)> {
        let same = match (&self.called_with, object) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !same || self.answers.front().is_none_or(|(first, _)| **first != *name) {
            self.answers.clear();
            self.calls.clear();
            return Ok(None);
        }
        while let Some((_, None)) = self.answers.front() {
            match self.calls.next().await {
                Some((name, Err(failure @ TurnFailure::Rejected(_)))) => return Err((name, failure)),
                Some((name, answer)) => {
                    if let Some(place) = self.answers.iter_mut().find(|(called, _)| *called == name) {
                        place.1 = Some(answer);
                    }
                }
                None => break,
            }
        }
        let Some((_, Some(answer))) = self.answers.pop_front() else { return Ok(None) };
        if let Ok(found) = &answer {
            if self.touched.overlaps(&found.fields) {
                return Ok(None);
            }
            self.touched.join(found.fields.clone());
        }
        Ok(Some(answer))
    }

    /// Sets the object that an applied answer has changed: the other answers still apply to it.
    pub(super) fn set_object(&mut self, object: Option<&Arc<PatchedObject>>) {
        self.called_with = object.cloned();
    }

    /// Returns true if every initializer that was called has had its turn.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
