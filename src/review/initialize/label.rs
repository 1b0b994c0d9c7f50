//! Label: new objects of a resource that a stock apiserver stores unfinished, and what others write of them afterwards.
//!
//! The mutating phase marks an object instead of initializing it, and gives back the marks that an update has forgotten. The
//! validating phase comes after all that may change the object, and refuses what is left of wrong marks. Initializers act
//! later, on the stored object: a loop of the control plane has them do so.

use crate::model::initialization::{PENDING_LABEL, STATE_ANNOTATION, init_id, pending_warning};
use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    time::SystemTime,
};

use tokio::time::timeout_at;

use super::{
    super::{case::Case, status, status::StatusError},
    InitializingPhase,
    stored::Rights,
};
use crate::{
    clock::now,
    initialize::{
        Actor, Marks,
        marks::{self, InitState, MarkedObject, MarksOutcome},
    },
    model::{Operation, ResourceInitializers, Review},
    offload,
    wire::marks::{Found, of_object},
};

/// Marks of an object, and whether it has labels and annotations at all.
#[derive(Debug, Default)]
struct Marked {
    marks: Marks,
    has: (bool, bool),
    leaves: bool,
}

impl From<Found> for Marked {
    fn from(Found { label, annotation, leaves }: Found) -> Self {
        let has = (label.is_some(), annotation.is_some());
        Self { marks: Marks { label: label.flatten(), state: annotation.flatten() }, has, leaves }
    }
}

impl InitializingPhase<'_> {
    /// The mutating phase of such a resource.
    pub(super) async fn run_labelled(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        match self.case.review.operation {
            Operation::Create => self.mark(entry).await,
            Operation::Update => self.restore(entry).await,
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    /// Marks a new object with the list of those that must act.
    async fn mark(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let patched = self.initialized.patched.clone();
        let review = patched.as_ref().map_or(self.case.review, |patched| &patched.review);
        let mut lookup = self.case.lookup(review, None);
        let Marked { marks: written, has, .. } = self.marks(review, review.object.clone()).await?;
        let pending = self.pending(entry, review, None, &mut lookup).await;
        let list = pending.or_else(|refusal| self.unselected(entry, refusal).map(|()| None))?;
        let list = list.filter(|_| !self.case.review.dry_run);
        if list.is_none() && written.is_finished() {
            return Ok(());
        }
        let creator = serde_json::from_str(&self.requester().await?).unwrap_or_default();
        marks::check_new(&written, &creator).map_err(|refused| self.denied(refused))?;
        let Some(list) = list else {
            return self.apply(marks::unmarking_patch().to_string(), "removing the marks of the object").await;
        };
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let text = InitState::new(list, creator, &started).write().map_err(|why| Box::new(status::internal(&why)))?;
        let id = init_id(random());
        let marks = Marks { label: Some(id.as_str().into()), state: Some(text.into()) };
        self.apply(marks::marking_patch(has, &marks).to_string(), "marking the object").await?;
        self.initialized.pending = Some(pending_warning(&id));
        Ok(())
    }

    /// Gives an object back the marks that an update has forgotten.
    async fn restore(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let patched = self.initialized.patched.clone();
        let review = patched.as_ref().map_or(self.case.review, |patched| &patched.review);
        let old = self.marks(review, review.old_object.clone()).await?;
        let Marked { marks: new, has, .. } = self.marks(review, review.object.clone()).await?;
        match self.judge(entry, &old, &new).await? {
            MarksOutcome::Keep => Ok(()),
            MarksOutcome::Record => {
                let marks = marks::with_turn_recorded(&old.marks, &new);
                let marks = marks.map_err(|why| Box::new(status::internal(&why)))?;
                self.apply(marks::marking_patch(has, &marks).to_string(), "recording whose turn is over").await
            }
            MarksOutcome::Restore => {
                let patch = marks::marking_patch(has, &old.marks);
                self.apply(patch.to_string(), "restoring the marks of the object").await
            }
        }
    }

    /// The validating phase: the object has the marks that it is stored with.
    async fn guard(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let review = self.case.review;
        let new = self.marks(review, review.object.clone()).await?.marks;
        if review.operation == Operation::Create {
            return marks::check_marked_for(&new, &review.username).map_err(|refused| self.denied(refused));
        }
        let old = self.marks(review, review.old_object.clone()).await?;
        match self.judge(entry, &old, &new).await? {
            MarksOutcome::Keep | MarksOutcome::Record => Ok(()),
            MarksOutcome::Restore => Err(self.denied(marks::omitted_marks())),
        }
    }

    /// Consequence of an update from these marks to those, by the requester.
    async fn judge(
        &mut self,
        entry: &ResourceInitializers,
        old: &Marked,
        new: &Marks,
    ) -> Result<MarksOutcome, StatusError> {
        let Marked { marks: old, leaves, .. } = old;
        let head = match old.object() {
            MarkedObject::Unfinished(state) => state.list.head().map(Box::<str>::from),
            _ => None,
        };
        // Most updates are of objects that everybody sees, and need nobody's rights.
        let rights = if old.label.is_some() && !(*leaves && new == old) {
            self.rights(entry, head.as_deref()).await?
        } else {
            Rights::None
        };
        let own = [head.as_deref().unwrap_or_default()];
        let actor = Actor { may_initialize: rights != Rights::None, owns: rights.owns(&own) };
        marks::judge_update(old, new, *leaves, actor).map_err(|refused| self.denied(refused))
    }

    async fn marks(&self, review: &Review, place: Option<Range<usize>>) -> Result<Marked, StatusError> {
        let Some(place) = place else { return Ok(Marked::default()) };
        let (bytes, size) = (review.bytes.clone(), place.len());
        let reading = offload::run(size, move || of_object(&bytes, place, PENDING_LABEL, STATE_ANNOTATION));
        match timeout_at(self.case.caller.deadline.instant().into(), reading).await {
            Ok(Ok(found)) => Ok(found.into()),
            Ok(Err(why)) => Err(Box::new(status::internal(&why))),
            Err(_) => Err(Box::new(status::out_of_time())),
        }
    }
}

/// Is the request one whose marks are looked at in the validating phase?
pub(in super::super) fn is_guarded(case: Case<'_>) -> bool {
    let Case { review, generation, caller, .. } = case;
    let creates = review.operation == Operation::Create && review.sub_resource.is_empty();
    let entry = || generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource);
    (creates || review.operation == Operation::Update)
        && review.object.is_some()
        && !caller.stores_unfinished
        && entry().is_some_and(|entry| entry.by_label)
}

/// Checks the marks of an object that nothing changes any more.
pub(in super::super) async fn guard(case: Case<'_>) -> super::Initialized {
    let initialized = super::Initialized::default();
    let mut phase = InitializingPhase { case, initialized, creator: None, no_room: false };
    let Case { review, generation, .. } = case;
    if let Some(entry) = generation.snapshot.initializers_of(&review.resource.group, &review.resource.resource)
        && let Err(refusal) = phase.guard(entry).await
    {
        phase.initialized.refusal = Some(refusal);
    }
    phase.initialized
}

/// 128 bits that nobody can foresee: the keys of these hashers are the operating system's randomness.
fn random() -> [u64; 2] {
    let now = now();
    [RandomState::new().hash_one(now), RandomState::new().hash_one(now)]
}
