//! Turn: one initializer's turn at the object, built in or by a process that has claimed its name.
//!
//! Initializers that say `parallel` are asked at once, about the object as it is when the first has its turn
//! ([`ParallelCalls`]). Each is to touch fields of its own. An answer counts when its turn comes, unless it touches
//! fields that the answers before it have touched, or something else has acted in between: then the initializer is asked
//! again, in order. The turn of the first does not wait for the answers of the others.

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
    failure::{InitializerFailure, is_passed_over},
    object::{PatchFailure, PatchedObject, patched},
};
use gatepost_api::{BuiltIn, HookType, Initializer, Labels, Phase, ResourceInitializers, Review};
use gatepost_base::{
    clock::now,
    memory::{Purpose, Reservation},
    offload::{self, LARGE},
};
use gatepost_initializers::{
    Initialization, TurnFailure, built_in,
    hub::{Contribution, TaskMessage},
    share,
};
use gatepost_json_patch::{Document, Patch, TouchedFields};

/// The most of a request's time that is kept for the answer.
const MAX_ANSWER_MARGIN: Duration = Duration::from_millis(250);

/// Effect of an initializer on the object.
#[derive(Debug, Default)]
pub(super) struct TurnEffect {
    /// The object, where it has changed it.
    pub(super) changed: Option<Arc<PatchedObject>>,
    /// Initializers that must act behind it.
    pub(super) adds: Vec<Box<str>>,
}

/// Answer of a process, with its place in the memory budget.
pub(super) struct Answer {
    /// The patch, and the bytes of its text.
    patch: Option<(Patch, usize)>,
    /// The fields that it touches.
    pub(super) fields: TouchedFields,
    adds: Vec<Box<str>>,
    _room: Reservation,
}

/// One initializer, and the object as it is.
pub(super) struct Turn<'a> {
    pub(super) ctx: &'a ReviewContext<'a>,
    pub(super) one: &'a Initializer,
    /// The object, where something has changed it.
    pub(super) before: Option<Arc<PatchedObject>>,
    pub(super) began: Instant,
    /// End of its time to act: the rest of the request's time is for those behind it, and for the answer.
    pub(super) until: Instant,
    /// The creator's name, where it is not who makes the request.
    pub(super) creator: Option<Arc<str>>,
}

impl Turn<'_> {
    /// Has the initializer act.
    pub(super) async fn act(&self, facts: &mut Facts<'_, '_>) -> Result<TurnEffect, InitializerFailure> {
        match (&self.one.built_in, &self.one.attach) {
            (Some(additions), _) => self.add(additions, facts).await,
            (None, Some(_)) => self.ask(facts).await,
            // No process may claim its name.
            (None, None) => Ok(TurnEffect::default()),
        }
    }

    async fn add(&self, additions: &BuiltIn, facts: &mut Facts<'_, '_>) -> Result<TurnEffect, InitializerFailure> {
        let labels = if additions.reads_namespace() {
            let found = self.by(self.until, facts.namespace_labels()).await?;
            Some(found.map_err(|refusal| InitializerFailure::Unable(refusal.message))?)
        } else {
            None
        };
        let (review, before, additions) = (self.review().clone(), self.before.clone(), additions.clone());
        let creator = self.creator.clone();
        let Some(place) = review.object.clone() else { return Ok(TurnEffect::default()) };
        // Additions are bounded: the object with them is at most twice as large.
        let room = self.ctx.deps.memory.reserve(Purpose::Answer, place.len() + Document::outline(place.len()));
        let room = room.ok_or(InitializerFailure::NoRoom)?;
        let additional =
            if place.len() < LARGE { built_in::work(&additions, review.bytes.slices(place.clone())) } else { 0 };
        let held = self.before.as_ref().map_or(0, |before| before.document.held());
        // It is gone through about twice: once for what is to be changed, once to change it.
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
                    patched(&review, before.as_ref(), &patch, room, Some(cancelled))
                }
                None => Ok(None),
            }
        });
        // It waits for nothing: it acts even where others have used up the time, as long as the request has not ended.
        Ok(TurnEffect { changed: changed(self.by(self.end(), adding).await?)?, adds: Vec::new() })
    }

    async fn ask(&self, facts: &mut Facts<'_, '_>) -> Result<TurnEffect, InitializerFailure> {
        let labels = self.by(self.until, labels(facts)).await?;
        let answer = self.answer(labels).await?;
        self.acted(answer).await
    }

    /// Answer of a process that has claimed the name.
    pub(super) async fn answer(&self, labels: Labels) -> Result<Answer, InitializerFailure> {
        if self.ctx.review.dry_run && !self.one.side_effects.none_for(true) {
            return Err(InitializerFailure::DryRun);
        }
        if self.until <= now() {
            return Err(self.late());
        }
        let review = self.review().clone();
        let size = review.bytes.len();
        let room = self.ctx.deps.memory.reserve(Purpose::Queue, size).ok_or(InitializerFailure::NoRoom)?;
        let name = Arc::clone(&self.one.name);
        // It is gone through twice: to be written, and for its digest.
        let writing = offload::run(2 * size, move || TaskMessage::new(&name, &review, &labels, room));
        let message = self.by(self.until, writing).await?.map_err(InitializerFailure::Unable)?;
        let hub = self.ctx.deps.current.hub();
        let (Contribution { patch, adds }, room) =
            hub.ask(&self.one.name, message, self.until).await.map_err(|why| match why {
                TurnFailure::Late => self.late(),
                TurnFailure::Vacant => InitializerFailure::Vacant,
                TurnFailure::Unproven => InitializerFailure::Unproven,
                TurnFailure::Full => InitializerFailure::Full,
                TurnFailure::NoRoom => InitializerFailure::NoRoom,
                TurnFailure::Unable(why) => InitializerFailure::Unable(why),
                TurnFailure::Rejected(status) => InitializerFailure::Rejected(status),
            })?;
        let Some(text) = patch else {
            return Ok(Answer { patch: None, fields: TouchedFields::default(), adds, _room: room });
        };
        let length = text.len();
        let parsing = offload::run(2 * length, move || {
            let patch = Patch::parse(text).map_err(|error| error.to_string())?;
            Ok::<_, String>((patch.fields(), patch))
        });
        // It has come in time.
        let parsed = self.by(self.end(), parsing).await?;
        let (fields, patch) = parsed.map_err(InitializerFailure::Unable)?;
        Ok(Answer { patch: Some((patch, length)), fields, adds, _room: room })
    }

    /// Does what the process has answered in time, however long it has waited for its turn.
    pub(super) async fn acted(&self, answer: Answer) -> Result<TurnEffect, InitializerFailure> {
        let Answer { patch, adds, _room, .. } = answer;
        let Some((patch, length)) = patch else { return Ok(TurnEffect { changed: None, adds }) };
        let applied = self.ctx.apply(patch, length, self.review(), self.before.as_ref()).await;
        Ok(TurnEffect { changed: changed(applied.map_err(|_| self.late())?)?, adds })
    }

    /// Result of this work, unless it ends after `until`.
    async fn by<T>(&self, until: Instant, work: impl Future<Output = T>) -> Result<T, InitializerFailure> {
        timeout_at(until.into(), work).await.map_err(|_| self.late())
    }

    fn review(&self) -> &Review {
        self.ctx.about(self.before.as_ref())
    }

    /// End of the time to do what an answer says that has come in time.
    fn end(&self) -> Instant {
        self.ctx.caller.deadline.instant()
    }

    pub(super) fn late(&self) -> InitializerFailure {
        InitializerFailure::Late(self.until.saturating_duration_since(self.began))
    }
}

/// The object as a patch has left it, where it has changed it.
fn changed(
    applied: Result<Option<PatchedObject>, PatchFailure>,
) -> Result<Option<Arc<PatchedObject>>, InitializerFailure> {
    match applied {
        Ok(changed) => Ok(changed.map(Arc::new)),
        Err(PatchFailure::NoRoom) => Err(InitializerFailure::NoRoom),
        Err(PatchFailure::Inapplicable(why) | PatchFailure::TooLarge(why)) => Err(InitializerFailure::Unable(why)),
    }
}

/// End of an initializer's time to act, where it begins at `began` and that many of the list have their turns before
/// those that it must leave time for. One without which the object is not created leaves none.
pub(super) fn until(
    ctx: &ReviewContext<'_>,
    entry: &ResourceInitializers,
    one: &Initializer,
    initialization: &Initialization,
    before: usize,
    began: Instant,
) -> Instant {
    let left = end_of(ctx).saturating_duration_since(began);
    if !is_passed_over(ctx, one) {
        return began + one.timeout.min(left);
    }
    let named = |name: &str| entry.initializers.iter().find(|one| *one.name == *name);
    let processes = |one: &&Initializer| one.built_in.is_none() && one.attach.is_some();
    let mut behind: Vec<_> =
        initialization.pending().skip(before).filter_map(named).filter(processes).map(|one| one.timeout).collect();
    if ctx.caller.phase == Phase::Review {
        let validating = ctx.generation.hooks.iter().filter(|live| live.hook.hook_type == HookType::Validating);
        // They are asked at once.
        behind.extend(validating.map(|live| live.target.timeout()).max());
    }
    began + share(left, one.timeout, &behind)
}

/// The end of a request's time for initializers.
pub(super) fn end_of(ctx: &ReviewContext<'_>) -> Instant {
    let (deadline, began) = (ctx.caller.deadline, ctx.began);
    let margin = MAX_ANSWER_MARGIN.min(deadline.left(began) / 10);
    deadline.instant().checked_sub(margin).unwrap_or(began).max(began.min(now()))
}

/// Labels of the request's namespace for a process; none where they are not known.
pub(super) async fn labels(facts: &mut Facts<'_, '_>) -> Labels {
    facts.namespace_labels().await.unwrap_or_default()
}

/// Answer of one, once it is there, by its name.
type Awaited = (Arc<str>, Option<Result<Answer, InitializerFailure>>);

/// Answer of one, by its name.
type Asking<'a> = Pin<Box<dyn Future<Output = (Arc<str>, Result<Answer, InitializerFailure>)> + Send + 'a>>;

/// Initializers that were asked before their turns.
#[derive(Default)]
pub(super) struct ParallelCalls<'a> {
    /// In the order of their turns, each with its answer once that is there.
    answers: VecDeque<Awaited>,
    /// Calls of initializers without an answer.
    asking: FuturesUnordered<Asking<'a>>,
    /// The object that they are about.
    of: Option<Arc<PatchedObject>>,
    /// Time at which they were asked.
    pub(super) began: Option<Instant>,
    /// Fields that the initializers before have touched, in their turns so far.
    touched: TouchedFields,
}

/// Initializers from the head on that may be asked at once; none where that is not more than one.
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
    /// Asks the head and those beside it.
    pub(super) async fn ask(
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
        let found = timeout_at(end_of(ctx).min(began + longest).into(), labels(facts)).await;
        let together = group.len();
        for one in group {
            let until = until(ctx, entry, one, initialization, together, began);
            let (name, turn) =
                (Arc::clone(&one.name), Turn { ctx, one, before: object.cloned(), began, until, creator: None });
            let Ok(labels) = &found else {
                self.answers.push_back((name, Some(Err(turn.late()))));
                continue;
            };
            self.answers.push_back((Arc::clone(&name), None));
            let labels = labels.clone();
            self.asking.push(Box::pin(async move { (name, turn.answer(labels).await) }));
        }
        (self.of, self.began, self.touched) = (object.cloned(), Some(began), TouchedFields::default());
    }

    /// Answer of the initializer whose turn it is, where it counts for the object as it is. Waits for it.
    ///
    /// # Errors
    /// One of them refuses the object, and which: it is not created, whatever the others say.
    pub(super) async fn take(
        &mut self,
        name: &str,
        object: Option<&Arc<PatchedObject>>,
    ) -> Result<Option<Result<Answer, InitializerFailure>>, (Arc<str>, InitializerFailure)> {
        let same = match (&self.of, object) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !same || self.answers.front().is_none_or(|(first, _)| **first != *name) {
            self.answers.clear();
            self.asking.clear();
            return Ok(None);
        }
        while let Some((_, None)) = self.answers.front() {
            match self.asking.next().await {
                Some((name, Err(failure @ InitializerFailure::Rejected(_)))) => return Err((name, failure)),
                Some((name, answer)) => {
                    if let Some(place) = self.answers.iter_mut().find(|(asked, _)| *asked == name) {
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

    /// The object as an answer that counted has left it: the others' answers still count for it.
    pub(super) fn is_now(&mut self, object: Option<&Arc<PatchedObject>>) {
        self.of = object.cloned();
    }

    /// Has every initializer that was asked had its turn?
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
