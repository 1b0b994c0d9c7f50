//! Act: one initializer's turn at the object, built in or by a process that has claimed its name.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use tokio::time::timeout_at;

use super::super::{
    case::Case,
    lookup::{Lookup, known},
    patched::{Patched, Unpatched, patched, room_for, scanned},
    status,
    status::StatusError,
};
use crate::{
    clock::now,
    initialize::{
        Initialization, TurnFailure, built_in,
        hub::{Contribution, TaskMessage},
        share,
    },
    memory::{Purpose, Reservation},
    model::{BuiltIn, FailurePolicy, HookType, Initializer, Labels, Phase, ResourceInitializers, Review, StatusInfo},
    offload::{self, LARGE},
    patch::{Document, Patch, TouchedFields},
};

/// The most of a request's time that is kept for the answer.
const MARGIN: Duration = Duration::from_millis(250);

/// Effect of an initializer on the object.
#[derive(Debug, Default)]
pub(super) struct Acted {
    /// The object, where it has changed it.
    pub(super) changed: Option<Arc<Patched>>,
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

/// Reasons why an initializer's turn has not ended as it should.
pub(super) enum Failure {
    /// Its time, or the request's, is over.
    Late(Duration),
    /// No process has claimed its name for long.
    Vacant,
    /// No process has claimed its name since it was configured.
    Unproven,
    /// It cannot act on this object.
    Unable(String),
    /// A dry run must not reach it.
    DryRun,
    /// Too many objects are held already.
    Full,
    /// There is no memory for the object, or for what is made of it.
    NoRoom,
    /// It refuses the object.
    Rejected(Box<StatusInfo>),
}

/// One initializer, and the object as it is.
pub(super) struct Turn<'a> {
    pub(super) case: Case<'a>,
    pub(super) one: &'a Initializer,
    /// The object, where something has changed it.
    pub(super) before: Option<Arc<Patched>>,
    pub(super) began: Instant,
    /// End of its time to act: the rest of the request's time is for those behind it, and for the answer.
    pub(super) until: Instant,
    /// The creator's name, where it is not who makes the request.
    pub(super) creator: Option<Arc<str>>,
}

impl Turn<'_> {
    /// Has the initializer act.
    pub(super) async fn act(&self, lookup: &mut Lookup<'_>) -> Result<Acted, Failure> {
        match (&self.one.built_in, &self.one.attach) {
            (Some(additions), _) => self.add(additions, lookup).await,
            (None, Some(_)) => self.ask(lookup).await,
            // No process may claim its name.
            (None, None) => Ok(Acted::default()),
        }
    }

    async fn add(&self, additions: &BuiltIn, lookup: &mut Lookup<'_>) -> Result<Acted, Failure> {
        let labels = if additions.reads_namespace() {
            let finding = timeout_at(self.until.into(), known(lookup, Lookup::namespace_labels));
            let Ok(found) = finding.await else { return Err(self.late()) };
            Some(found.map_err(|refusal| Failure::Unable(refusal.message))?)
        } else {
            None
        };
        let (review, before, additions) = (self.review().clone(), self.before.clone(), additions.clone());
        let creator = self.creator.clone();
        let Some(place) = review.object.clone() else { return Ok(Acted::default()) };
        // Additions are bounded: the object with them is at most twice as large.
        let Some(room) = self.case.gate.memory.reserve(Purpose::Answer, place.len() + Document::outline(place.len()))
        else {
            return Err(Failure::NoRoom);
        };
        let additional =
            if place.len() < LARGE { built_in::work(&additions, review.bytes.slices(place.clone())) } else { 0 };
        // It waits for nobody: whoever has used up the time, it acts while there is an answer to be given.
        self.changed(additional, self.end(), move |cancelled| {
            let object = review.bytes.copy_of(place);
            let facts = built_in::TemplateFacts {
                namespace: &review.namespace,
                name: &review.name,
                user: creator.as_deref().unwrap_or(&review.username),
                namespace_labels: labels.as_ref(),
            };
            match built_in::patch(&additions, &object, facts).map_err(Unpatched::Inapplicable)? {
                Some(text) => {
                    let patch = Patch::parse(text).map_err(|error| Unpatched::Inapplicable(error.to_string()))?;
                    patched(&review, before.as_ref(), &patch, room, Some(cancelled))
                }
                None => Ok(None),
            }
        })
        .await
    }

    async fn ask(&self, lookup: &mut Lookup<'_>) -> Result<Acted, Failure> {
        let Ok(labels) = timeout_at(self.until.into(), labels(lookup)).await else { return Err(self.late()) };
        let answer = self.answer(labels).await?;
        self.acted(answer).await
    }

    /// Answer of a process that has claimed the name.
    pub(super) async fn answer(&self, labels: Labels) -> Result<Answer, Failure> {
        if self.case.review.dry_run && !self.one.side_effects.none_for(true) {
            return Err(Failure::DryRun);
        }
        if self.until <= now() {
            return Err(self.late());
        }
        let review = self.review().clone();
        let size = review.bytes.len();
        let room = self.case.gate.memory.reserve(Purpose::Queue, size).ok_or(Failure::NoRoom)?;
        let name = Arc::clone(&self.one.name);
        // It is gone through twice: to be written, and for its digest.
        let writing = offload::run(2 * size, move || TaskMessage::new(&name, &review, &labels, room));
        let message = match timeout_at(self.until.into(), writing).await {
            Ok(message) => message.map_err(Failure::Unable)?,
            Err(_) => return Err(self.late()),
        };
        let hub = self.case.gate.current.hub();
        let (Contribution { patch, adds }, room) =
            hub.ask(&self.one.name, message, self.until).await.map_err(|why| match why {
                TurnFailure::Late => self.late(),
                TurnFailure::Vacant => Failure::Vacant,
                TurnFailure::Unproven => Failure::Unproven,
                TurnFailure::Full => Failure::Full,
                TurnFailure::NoRoom => Failure::NoRoom,
                TurnFailure::Unable(why) => Failure::Unable(why),
                TurnFailure::Rejected(status) => Failure::Rejected(status),
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
        let parsed = timeout_at(self.end().into(), parsing).await.map_err(|_| self.late())?;
        let (fields, patch) = parsed.map_err(Failure::Unable)?;
        Ok(Answer { patch: Some((patch, length)), fields, adds, _room: room })
    }

    /// Does what the process has answered in time, however long it has waited for its turn.
    pub(super) async fn acted(&self, answer: Answer) -> Result<Acted, Failure> {
        let Answer { patch, adds, _room, .. } = answer;
        let Some((patch, length)) = patch else { return Ok(Acted { changed: None, adds }) };
        let (review, before) = (self.review().clone(), self.before.clone());
        let scanned = scanned(&patch, length);
        let room = room_for(&patch, length, (&review, before.as_ref()), &self.case.gate.memory);
        let room = room.ok_or(Failure::NoRoom)?;
        let change = move |cancelled: &_| patched(&review, before.as_ref(), &patch, room, Some(cancelled));
        let acted = self.changed(scanned, self.end(), change).await?;
        Ok(Acted { adds, ..acted })
    }

    /// Does what changes the object, beside the worker where there is much to go through, and by `end`.
    async fn changed(
        &self,
        patch: usize,
        end: Instant,
        change: impl FnOnce(&Arc<AtomicBool>) -> Result<Option<Patched>, Unpatched> + Send + 'static,
    ) -> Result<Acted, Failure> {
        let held = self.before.as_ref().map_or(0, |before| before.document.held());
        // It is gone through about twice: once for what is to be changed, once to change it.
        let size = 2 * (self.review().bytes.len() + held + patch);
        let ended = match timeout_at(end.into(), offload::run_unless_dropped(size, change)).await {
            Ok(ended) => ended,
            Err(_) => return Err(self.late()),
        };
        let changed = ended.map_err(|why| match why {
            Unpatched::NoRoom => Failure::NoRoom,
            Unpatched::Inapplicable(why) | Unpatched::TooLarge(why) => Failure::Unable(why),
        })?;
        Ok(Acted { changed: changed.map(Arc::new), adds: Vec::new() })
    }

    fn review(&self) -> &Review {
        self.before.as_ref().map_or(self.case.review, |before| &before.review)
    }

    /// End of the time to do what an answer says that has come in time.
    fn end(&self) -> Instant {
        self.case.caller.deadline.instant()
    }

    pub(super) fn late(&self) -> Failure {
        Failure::Late(self.until.saturating_duration_since(self.began))
    }
}

/// Does the object go on without the initializer, where it does not act?
pub(super) fn is_passed_over(case: Case<'_>, one: &Initializer) -> bool {
    let bypass = case.bypass;
    let opened = bypass.fails_open(&one.name) || bypass.break_glass_covers(&one.name);
    opened || one.failure_policy == FailurePolicy::Ignore || is_unproven(case, one)
}

/// Is it an initializer whose name no process has claimed since it was configured?
pub(super) fn is_unproven(case: Case<'_>, one: &Initializer) -> bool {
    let waits = one.built_in.is_none() && one.attach.is_some();
    waits && case.gate.current.hub().is_unproven(&one.name)
}

/// End of an initializer's time to act, where it begins at `began` and that many of the list have their turns before
/// those that it must leave time for. One without which the object is not created leaves none.
pub(super) fn until(
    case: Case<'_>,
    (entry, one): (&ResourceInitializers, &Initializer),
    (way, before): (&Initialization, usize),
    began: Instant,
) -> Instant {
    let left = end_of(case).saturating_duration_since(began);
    if !is_passed_over(case, one) {
        return began + one.timeout.min(left);
    }
    let named = |name: &str| entry.initializers.iter().find(|one| *one.name == *name);
    let processes = |one: &&Initializer| one.built_in.is_none() && one.attach.is_some();
    let mut behind: Vec<_> =
        way.pending().skip(before).filter_map(named).filter(processes).map(|one| one.timeout).collect();
    if case.caller.phase == Phase::Review {
        let validating = case.generation.hooks.iter().filter(|live| live.hook.hook_type == HookType::Validating);
        // They are asked at once.
        behind.extend(validating.map(|live| live.target.timeout()).max());
    }
    began + share(left, one.timeout, &behind)
}

/// The end of a request's time for initializers.
pub(super) fn end_of(case: Case<'_>) -> Instant {
    let Case { caller, began, .. } = case;
    let margin = MARGIN.min(caller.deadline.left(began) / 10);
    caller.deadline.instant().checked_sub(margin).unwrap_or(began).max(began.min(now()))
}

/// Labels of the request's namespace as a process is told: what is known of them, and that may be nothing.
pub(super) async fn labels(lookup: &mut Lookup<'_>) -> Labels {
    known(lookup, Lookup::namespace_labels).await.unwrap_or_default()
}

impl Failure {
    /// Is it passed over under `Ignore`? Not where the initializer itself says no, nor for our own want of room: whoever
    /// sends much would then create objects without it.
    pub(super) fn may_open(&self) -> bool {
        !self.is_rejection() && !self.is_no_room()
    }

    /// Is there no room to wait?
    pub(super) fn is_shed(&self) -> bool {
        matches!(self, Self::Full)
    }

    /// Is it our own want of room, whatever its answer's code? Of an object that exists it says nothing: the update is tried
    /// again.
    pub(super) fn is_no_room(&self) -> bool {
        matches!(self, Self::Full | Self::NoRoom)
    }

    pub(super) fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }

    pub(super) fn refusal(self, name: &str) -> StatusError {
        Box::new(match self {
            Self::Late(after) => status::initializer_late(name, after, None),
            Self::Vacant | Self::Unproven => status::initializer_vacant(name),
            Self::Unable(why) => status::initializer_failed(name, &why),
            Self::DryRun => status::initializer_on_dry_run(name),
            Self::Full => status::too_many_holds(name),
            Self::NoRoom => status::no_room_to_initialize(name),
            Self::Rejected(said) => status::initializer_rejected(name, *said),
        })
    }

    /// The warning to whoever creates the object.
    pub(super) fn passed_over(&self, name: &str) -> String {
        let why = match self {
            Self::Late(after) => format!("did not act within {} ms", after.as_millis()),
            Self::Vacant => "has no instance attached".to_owned(),
            Self::Unproven => "is not in rotation until its first instance attaches".to_owned(),
            Self::Unable(why) => format!("could not act: {why}"),
            Self::DryRun => "has side effects and is not asked in a dry run".to_owned(),
            Self::Full | Self::NoRoom | Self::Rejected(_) => "did not act".to_owned(),
        };
        format!("initializer \"{name}\" {why}; the object goes on without it")
    }
}
