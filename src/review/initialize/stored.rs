//! Stored: objects that are stored before they are initialized, and the updates that initialize them.
//!
//! An apiserver that stores unfinished objects (`stores_unfinished`) has the list in `metadata.initializers` of the
//! object, beside the creator. A review depends on no state in Gatepost: the list is in the object. Each review
//! processes the list as far as it can. A built-in or attached initializer runs during the review that makes it the
//! head of the list (the CREATE, or the update that removes its predecessor). [`read_policy`] decides what reads of
//! such objects show.
//!
//! For a resource that a stock apiserver stores unfinished (`by_label`), the mutating phase marks a new object instead,
//! and restores marks that an update has omitted. The validating phase follows everything that may change the object,
//! and rejects wrong marks. A loop of the control plane later has the initializers act on the stored object.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    sync::Arc,
    time::{Instant, SystemTime},
};

use serde_json::json;
use tokio::time::timeout_at;

use super::{
    super::{
        access::user_of,
        context::{AdmissionDeps, ReviewContext},
        draft::{Flow, StoredList},
        facts::Facts,
        failure,
        object::PatchFailure,
        rejection::{self, StatusError},
    },
    InitializingPhase, permission,
};
use crate::live::Generation;
use gatepost_api::{
    Operation, ResourceInitializers, Review,
    bypass::UserFilter,
    initialization::{
        PENDING_LABEL, ReadVerb, ReadingUser, STATE_ANNOTATION, Visibility, init_id, pending_warning, visibility,
    },
};
use gatepost_base::clock::now;
use gatepost_cel::User;
use gatepost_initializers::{
    Actor, Initialization, Initializers, ListError, Marks, OwnedNames, ReadRepair,
    marks::{self, InitState, MarkedObject, MarksOutcome},
    stored_result, transition,
};
use gatepost_json_patch::Patch;
use gatepost_wire::{
    groups,
    metadata::{self, ObjectMarks},
};

/// User name of the apiserver itself, which carries out Gatepost's decisions.
// source: kubernetes/apiserver pkg/authentication/user, APIServerUser.
const APISERVER: &str = "system:apiserver";
/// An actor without rights on an uninitialized object.
const STRANGER: Actor<'static> = Actor { may_initialize: false, owns: OwnedNames::Names(&[]) };

/// Reads `metadata.initializers` of the object at `place` in the review.
pub(super) async fn stored_list(
    ctx: &ReviewContext<'_>,
    review: &Review,
    place: Option<Range<usize>>,
) -> Result<Option<StoredList>, StatusError> {
    let Some(place) = place else { return Ok(None) };
    let (bytes, size) = (review.bytes.clone(), place.len());
    let list = |text: &str| StoredList {
        list: Initializers::read(text.as_bytes()),
        creator: metadata::creator(text).map(str::to_owned),
    };
    ctx.run_reading(size, move || Ok(metadata::initializers(&bytes, place)?.as_deref().map(list))).await
}

/// Returns the configuration of a resource without initializers.
pub(super) fn no_initializers(review: &Review) -> ResourceInitializers {
    ResourceInitializers {
        api_group: (*review.resource.group).into(),
        resource: (*review.resource.resource).into(),
        initializers: Vec::new(),
        may_initialize: None,
        by_label: false,
    }
}

impl InitializingPhase<'_, '_> {
    /// Runs the phase for a caller that stores unfinished objects.
    pub(super) async fn run_stored(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let old = self.draft.stored_list.take().transpose();
        let object = self.draft.object.clone();
        let review = self.ctx.current_review(object.as_ref());
        let mut facts = Facts::new(self.ctx, review, None);
        let field = stored_list(self.ctx, review, review.object.clone()).await;
        // A request that skips all hooks by a bypass is not rejected because its list could not be read.
        let listed = [&old, &field].into_iter().any(|field| matches!(field, Ok(Some(_))));
        if self.ctx.bypass.skips_all() && !listed {
            return Ok(());
        }
        let (old, field) = (old?, field?);
        let creates = review.operation == Operation::Create;
        let (list, creator) = if creates {
            let field = list_and_creator(field).map_err(|refused| self.denied(refused))?.0;
            (self.pending(entry, review, field, &mut facts).await?, None)
        } else {
            if old.is_none() && field.is_none() {
                return Ok(());
            }
            let lists = list_and_creator(old).and_then(|old| Ok((old, list_and_creator(field)?)));
            let ((before, creator), (after, _)) = lists.map_err(|refused| self.denied(refused))?;
            (self.list_after_update(entry, before, after).await?, creator)
        };
        self.creator = creator.as_deref().and_then(metadata::username).map(Into::into);
        let mut initialization = Initialization::new(list.unwrap_or_default());
        let mut result = initialization.result().cloned();
        match self.run_list(entry, &mut initialization, &mut facts).await {
            // The object exists already, so the failure becomes the result in its list.
            Err(refusal) if !creates && !self.no_room => result = Some(*refusal),
            ended => ended?,
        }
        let pending = initialization.pending().map(Into::into).collect();
        let result = result.map(stored_result).map(Box::new);
        let list = Initializers { pending, result }.normalized();
        self.is_unfinished = list.is_some();
        let creator = match creator {
            None if list.is_some() => Some(self.requester().await?),
            creator => creator,
        };
        self.write_list(list.as_ref(), creator.as_deref()).await
    }

    /// Returns the list after an update.
    async fn list_after_update(
        &mut self,
        entry: &ResourceInitializers,
        old: Option<Initializers>,
        new: Option<Initializers>,
    ) -> Result<Option<Initializers>, StatusError> {
        let review = self.ctx.review;
        let old = old.and_then(Initializers::normalized);
        let Some(before) = &old else {
            return transition(None, new, STRANGER).map_err(|refused| self.denied(refused));
        };
        if !review.sub_resource.is_empty() {
            let why = format!("the subresource {} of an uninitialized object cannot be changed", review.sub_resource);
            return Err(self.denied(ListError::Forbidden(why)));
        }
        let head = [before.head().unwrap_or_default()];
        let actor = self.requester_as_actor(entry, &head).await?;
        transition(old.clone(), new, actor).map_err(|refused| self.denied(refused))
    }

    /// Returns the rights of the requester on an object that is not initialized, whose list begins with `head`.
    async fn requester_as_actor<'h>(
        &self,
        entry: &ResourceInitializers,
        head: &'h [&'h str; 1],
    ) -> Result<Actor<'h>, StatusError> {
        let review = self.ctx.review;
        let ours = || self.ctx.deps.current.labelled().account().is_some_and(|ours| *ours == *review.username);
        if *review.username == *APISERVER || entry.by_label && ours() {
            // The apiserver and Gatepost act for every initializer: they carry out failure policies.
            return Ok(Actor { may_initialize: true, owns: OwnedNames::Any });
        }
        let in_group = |wanted: &[Box<str>]| groups::any_of(review, wanted);
        let is = |who: &UserFilter| who.matches(&review.username, in_group);
        let named = entry.initializers.iter().find(|one| head[0] == &*one.name);
        let owners = named.and_then(|one| one.owners.as_ref());
        let listed = owners.is_some_and(is) || entry.may_initialize.as_ref().is_some_and(is);
        if !listed && !self.may_initialize(review).await? {
            return Ok(STRANGER);
        }
        // Without configured owners, any user who may initialize is an owner.
        let is_owner = owners.is_none_or(is);
        Ok(Actor { may_initialize: true, owns: OwnedNames::Names(if is_owner { head } else { &[] }) })
    }

    /// Returns the user who makes the request, as JSON.
    pub(super) async fn requester(&self) -> Result<String, StatusError> {
        let review = self.ctx.review.clone();
        let size = review.user.as_ref().map_or(0, Range::len);
        let reading = move || {
            let user = user_of(&review)?;
            let extra: serde_json::Map<_, _> =
                user.extra.into_iter().map(|(key, values)| (key, values.into())).collect();
            let creator = json!({
                "username": &*review.username, "uid": user.uid, "groups": user.groups, "extra": extra,
            });
            Ok(creator.to_string())
        };
        self.ctx.run_reading(size, reading).await
    }

    /// Writes the list into the current object, or removes it.
    async fn write_list(&mut self, list: Option<&Initializers>, creator: Option<&str>) -> Result<(), StatusError> {
        const PATH: &str = "/metadata/initializers";
        let before = self.draft.object.clone();
        let review = self.ctx.current_review(before.as_ref());
        let text = match list {
            Some(list) => {
                let value = metadata::with_creator(&list.write(), creator);
                format!(r#"[{{"op":"add","path":"{PATH}","value":{value}}}]"#)
            }
            None if stored_list(self.ctx, review, review.object.clone()).await?.is_some() => {
                format!(r#"[{{"op":"remove","path":"{PATH}"}}]"#)
            }
            None => return Ok(()),
        };
        self.apply(text, "writing metadata.initializers").await
    }

    /// Applies a patch of Gatepost's own to the current object.
    pub(super) async fn apply(&mut self, text: String, what: &str) -> Result<(), StatusError> {
        let before = self.draft.object.clone();
        let review = self.ctx.current_review(before.as_ref());
        let broken = |why: &str| Box::new(rejection::internal(&format!("{what}: {why}")));
        let length = text.len();
        let patch = Patch::parse(text.into()).map_err(|error| broken(&error.to_string()))?;
        match self.ctx.apply(patch, length, review, before.as_ref()).await? {
            Ok(Some(changed)) => self.draft.object = Some(Arc::new(changed)),
            Ok(None) => {}
            Err(PatchFailure::NoRoom) => return Err(Box::new(rejection::no_room_for_object())),
            Err(PatchFailure::Inapplicable(why) | PatchFailure::TooLarge(why)) => return Err(broken(&why)),
        }
        Ok(())
    }
}

/// Returns the list and the creator of an object.
fn list_and_creator(field: Option<StoredList>) -> Result<(Option<Initializers>, Option<String>), ListError> {
    let Some(StoredList { list, creator }) = field else { return Ok((None, None)) };
    let list = list.map_err(|why| ListError::Invalid { field: "metadata.initializers".into(), why })?;
    Ok((list, creator))
}

/// Marks of an object of a review, and what else their check needs.
#[derive(Debug, Default)]
struct ReviewedMarks {
    marks: Marks,
    /// True if the object has labels, and true if it has annotations.
    has_maps: (bool, bool),
    is_being_deleted: bool,
}

impl From<ObjectMarks> for ReviewedMarks {
    fn from(ObjectMarks { label, annotation, is_being_deleted }: ObjectMarks) -> Self {
        let has_maps = (label.is_some(), annotation.is_some());
        Self { marks: Marks { label: label.flatten(), state: annotation.flatten() }, has_maps, is_being_deleted }
    }
}

impl InitializingPhase<'_, '_> {
    /// Runs the mutating phase for a resource with `by_label`.
    pub(super) async fn run_labelled(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        match self.ctx.review.operation {
            Operation::Create => self.mark(entry).await,
            Operation::Update => self.restore(entry).await,
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    /// Marks a new object with the list of initializers that must act.
    async fn mark(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let object = self.draft.object.clone();
        let review = self.ctx.current_review(object.as_ref());
        let mut facts = Facts::new(self.ctx, review, None);
        let ReviewedMarks { marks: written, has_maps, .. } = self.marks(review, review.object.clone()).await?;
        let list = self.pending(entry, review, None, &mut facts).await?;
        let list = list.filter(|_| !self.ctx.review.dry_run);
        if list.is_none() && written.is_finished() {
            return Ok(());
        }
        let creator = serde_json::from_str(&self.requester().await?).unwrap_or_default();
        marks::check_new(&written, &creator).map_err(|refused| self.denied(refused))?;
        let Some(list) = list else {
            return self.apply(marks::unmarking_patch().to_string(), "removing the marks of the object").await;
        };
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let text =
            InitState::new(list, creator, &started).write().map_err(|why| Box::new(rejection::internal(&why)))?;
        let id = init_id(random());
        let marks = Marks { label: Some(id.as_str().into()), state: Some(text.into()) };
        self.apply(marks::marking_patch(has_maps, &marks).to_string(), "marking the object").await?;
        self.draft.pending_warning = Some(pending_warning(&id));
        Ok(())
    }

    /// Restores marks that an update has omitted.
    async fn restore(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let object = self.draft.object.clone();
        let review = self.ctx.current_review(object.as_ref());
        let old = self.marks(review, review.old_object.clone()).await?;
        let ReviewedMarks { marks: new, has_maps, .. } = self.marks(review, review.object.clone()).await?;
        match self.judge(entry, &old, &new).await? {
            MarksOutcome::Keep => Ok(()),
            MarksOutcome::Record => {
                let marks = marks::with_turn_recorded(&old.marks, &new);
                let marks = marks.map_err(|why| Box::new(rejection::internal(&why)))?;
                self.apply(marks::marking_patch(has_maps, &marks).to_string(), "recording whose turn is over").await
            }
            MarksOutcome::Restore => {
                let patch = marks::marking_patch(has_maps, &old.marks);
                self.apply(patch.to_string(), "restoring the marks of the object").await
            }
        }
    }

    /// Runs the validating phase: checks that the object carries the required marks.
    pub(super) async fn run_mark_check(mut self) -> Flow {
        let Some(entry) = self.ctx.initializers() else { return Flow::Continue(()) };
        match self.check_marks(entry).await {
            Ok(()) => Flow::Continue(()),
            Err(refusal) => self.draft.refuse(refusal),
        }
    }

    async fn check_marks(&mut self, entry: &ResourceInitializers) -> Result<(), StatusError> {
        let review = self.ctx.review;
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

    /// Returns the consequence of an update by the requester from the marks `old` to `new`.
    async fn judge(
        &mut self,
        entry: &ResourceInitializers,
        old: &ReviewedMarks,
        new: &Marks,
    ) -> Result<MarksOutcome, StatusError> {
        let ReviewedMarks { marks: old, is_being_deleted, .. } = old;
        let head = match old.object() {
            MarkedObject::Unfinished(state) => state.list.head().map(Box::<str>::from),
            _ => None,
        };
        let own = [head.as_deref().unwrap_or_default()];
        // Most updates are of visible objects, and need no permission.
        let actor = match old.label.is_some() && !(*is_being_deleted && new == old) {
            true => self.requester_as_actor(entry, &own).await?,
            false => STRANGER,
        };
        marks::judge_update(old, new, *is_being_deleted, actor).map_err(|refused| self.denied(refused))
    }

    async fn marks(&self, review: &Review, place: Option<Range<usize>>) -> Result<ReviewedMarks, StatusError> {
        let Some(place) = place else { return Ok(ReviewedMarks::default()) };
        let (bytes, size) = (review.bytes.clone(), place.len());
        self.ctx
            .run_reading(size, move || Ok(metadata::marks(&bytes, place, PENDING_LABEL, STATE_ANNOTATION)?.into()))
            .await
    }
}

/// Returns true if the validating phase checks the marks of this request's object.
pub(super) fn must_check_marks(ctx: &ReviewContext<'_>) -> bool {
    let ReviewContext { review, caller, .. } = ctx;
    let creates = review.operation == Operation::Create && review.sub_resource.is_empty();
    (creates || review.operation == Operation::Update)
        && review.object.is_some()
        && !caller.stores_unfinished
        && ctx.initializers().is_some_and(|entry| entry.by_label)
}

/// Returns 128 unpredictable bits: the keys of these hashers come from the operating system's randomness.
fn random() -> [u64; 2] {
    let now = now();
    [RandomState::new().hash_one(now), RandomState::new().hash_one(now)]
}

/// Read of an object, or of objects.
#[derive(Clone, Debug)]
pub struct ObjectRead {
    /// Verb of the read.
    pub verb: ReadVerb,
    /// Name of the user.
    pub username: Arc<str>,
    /// Attributes of the user.
    pub user: Arc<User>,
    /// API group.
    pub group: Box<str>,
    /// Resource.
    pub resource: Box<str>,
    /// Namespace; may be empty.
    pub namespace: Box<str>,
    /// Name; may be empty.
    pub name: Box<str>,
    /// True if the client has requested that the read includes unfinished objects.
    pub includes_unfinished: bool,
}

/// Decision on one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Objects that the read shows.
    pub visibility: Visibility,
    /// Names of initializers that do not fail open; `None` while the configuration is not known to be current.
    pub must_act: Option<Vec<Arc<str>>>,
    /// Age from which a read removes the head of a list if the head fails open.
    pub repair: ReadRepair,
    /// Revision of the configuration.
    pub revision: String,
}

/// Decides one read by `deadline`. If the authorizer does not answer, unfinished objects are hidden, which is safe.
pub async fn read_policy(deps: &AdmissionDeps, read: &ObjectRead, deadline: Instant) -> ReadPolicy {
    let fresh = deps.current.freshness().is_fresh(now());
    let generation = deps.current.load();
    let permitted = read.includes_unfinished && fresh && permitted(deps, &generation, read, deadline).await;
    let user = ReadingUser { user: &read.username, includes: read.includes_unfinished, may_initialize: permitted };
    ReadPolicy {
        visibility: visibility(read.verb, user),
        must_act: fresh.then(|| failure::must_act(generation.snapshot.initializers_of(&read.group, &read.resource))),
        repair: ReadRepair::of(generation.snapshot.initializers_of(&read.group, &read.resource)),
        revision: generation.revision.to_string(),
    }
}

/// Returns true if the user may see unfinished objects of the resource: owners of its initializers may, and users who
/// may `initialize` it.
async fn permitted(deps: &AdmissionDeps, generation: &Generation, read: &ObjectRead, deadline: Instant) -> bool {
    let entry = generation.snapshot.initializers_of(&read.group, &read.resource);
    let in_group =
        |wanted: &[Box<str>]| wanted.iter().any(|wanted| read.user.groups.iter().any(|one| **one == **wanted));
    let owners = entry.into_iter().flat_map(|entry| &entry.initializers).filter_map(|one| one.owners.as_ref());
    let named = entry.and_then(|entry| entry.may_initialize.as_ref());
    if owners.chain(named).any(|who| who.matches(&read.username, in_group)) {
        return true;
    }
    let Some(authorizer) = &deps.authorizer else { return false };
    let check = permission(&read.group, &read.resource, &read.namespace, &read.name);
    let Ok(decision) = authorizer.request(&read.username, &read.user, check) else { return false };
    matches!(timeout_at(deadline.into(), decision).await, Ok(Ok(Ok(decision))) if decision.allowed)
}
