//! Stored: new objects of an apiserver that stores them before they are initialized, and the updates that initialize them.
//!
//! The list is in `metadata.initializers` of the object, beside the creator; nothing of it is kept here. Each review goes as
//! far as it can: initializers that are built in or attached act in flight where their turn comes, at the CREATE or at the
//! update that removes the name before them.

use std::{ops::Range, sync::Arc};

use serde_json::json;
use tokio::time::timeout_at;

use super::{
    super::{
        access::user_of,
        case::Case,
        patched::{Unpatched, patched, room_for},
        status,
        status::StatusError,
    },
    InitializingPhase,
};
use crate::{
    initialize::{Actor, Initialization, Initializers, OwnedNames, RefusedList, stored_result, transition},
    model::{Operation, ResourceInitializers, Review},
    offload,
    patch::Patch,
    wire::{groups, metadata_initializers},
};

/// The apiserver itself: it carries out what Gatepost tells it.
// source: kubernetes/apiserver pkg/authentication/user, APIServerUser.
const APISERVER: &str = "system:apiserver";

/// `metadata.initializers` of an object, read.
#[derive(Debug)]
pub(in crate::review) struct Field {
    list: Result<Option<Initializers>, String>,
    /// The creator beside the list, as it is written.
    creator: Option<String>,
}

impl Field {
    fn of(text: &str) -> Self {
        let creator = metadata_initializers::creator(text).map(str::to_owned);
        Self { list: Initializers::read(text.as_bytes()), creator }
    }

    /// Is the object that has it unfinished? An empty list says nothing.
    pub(in crate::review) fn is_unfinished(&self) -> bool {
        let says = |list: &Initializers| !list.pending.is_empty() || list.result.is_some();
        self.list.as_ref().map_or(true, |list| list.as_ref().is_some_and(says))
    }
}

/// Is this an update that may find its object unfinished?
pub(in crate::review) fn finds_a_list(case: Case<'_>) -> bool {
    let Case { review, caller, .. } = case;
    caller.stores_unfinished && review.operation == Operation::Update && review.old_object.is_some()
}

/// `metadata.initializers` of the object that an update finds.
pub(in crate::review) async fn before(case: Case<'_>) -> Result<Option<Field>, StatusError> {
    field(case, case.review, case.review.old_object.clone()).await
}

/// `metadata.initializers` of an object of the review.
async fn field(case: Case<'_>, review: &Review, place: Option<Range<usize>>) -> Result<Option<Field>, StatusError> {
    let Some(place) = place else { return Ok(None) };
    let (bytes, size) = (review.bytes.clone(), place.len());
    let reading = offload::run(size, move || {
        Ok::<_, String>(metadata_initializers::of_object(&bytes, place)?.as_deref().map(Field::of))
    });
    match timeout_at(case.caller.deadline.instant().into(), reading).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(why)) => Err(Box::new(status::internal(&why))),
        Err(_) => Err(Box::new(status::out_of_time())),
    }
}

/// The initializers of a resource for which nothing is configured.
pub(super) fn nobody(review: &Review) -> ResourceInitializers {
    ResourceInitializers {
        api_group: (*review.resource.group).into(),
        resource: (*review.resource.resource).into(),
        initializers: Vec::new(),
        may_initialize: None,
        by_label: false,
    }
}

/// Rights of a user on one object that is not initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// None at all.
    None,
    /// To change the object, and not its list.
    Other,
    /// To do the part of the list's head as well.
    Head,
    /// To take away any head: what failure policies say is carried out so.
    Any,
}

impl Rights {
    /// Names that are the user's, of which `head` is the list's first.
    pub(super) fn owns<'a>(self, head: &'a [&'a str]) -> OwnedNames<'a> {
        match self {
            Self::None | Self::Other => OwnedNames::Names(&[]),
            Self::Head => OwnedNames::Names(head),
            Self::Any => OwnedNames::Any,
        }
    }
}

impl InitializingPhase<'_> {
    /// The phase of such a caller.
    pub(super) async fn run_stored(
        &mut self,
        entry: &ResourceInitializers,
        old: Result<Option<Field>, StatusError>,
    ) -> Result<(), StatusError> {
        let patched = self.initialized.patched.clone();
        let review = patched.as_ref().map_or(self.case.review, |patched| &patched.review);
        let mut lookup = self.case.lookup(review, None);
        let field = field(self.case, review, review.object.clone()).await;
        // A request that the operator lets past all hooks is not rejected because nobody could look whether there is a
        // list.
        let listed = [&old, &field].into_iter().any(|field| matches!(field, Ok(Some(_))));
        if self.case.bypass.skips_all() && !listed {
            return Ok(());
        }
        let (old, field) = (old?, field?);
        let creates = review.operation == Operation::Create;
        let (list, creator) = if creates {
            let field = read(field).map_err(|refused| self.denied(refused))?.0;
            let pending = self.pending(entry, review, field, &mut lookup).await;
            (pending.or_else(|refusal| self.unselected(entry, refusal).map(|()| None))?, None)
        } else {
            if old.is_none() && field.is_none() {
                return Ok(());
            }
            let lists = read(old).and_then(|old| Ok((old, read(field)?)));
            let ((before, creator), (after, _)) = lists.map_err(|refused| self.denied(refused))?;
            (self.updated(entry, before, after).await?, creator)
        };
        self.creator = creator.as_deref().and_then(metadata_initializers::username).map(Into::into);
        let mut way = Initialization::new(list.unwrap_or_default());
        let mut result = way.result().cloned();
        match self.work_off(entry, &mut way, &mut lookup).await {
            // There is an object already: it fails, and its creator is told.
            Err(refusal) if !creates && !self.no_room => result = Some(*refusal),
            ended => ended?,
        }
        let pending = way.pending().map(Into::into).collect();
        let result = result.map(stored_result).map(Box::new);
        let list = Initializers { pending, result }.normalized();
        self.initialized.unfinished = list.is_some();
        let creator = match creator {
            None if list.is_some() => Some(self.requester().await?),
            creator => creator,
        };
        self.put(list.as_ref(), creator.as_deref()).await
    }

    /// The list after an update.
    async fn updated(
        &mut self,
        entry: &ResourceInitializers,
        old: Option<Initializers>,
        new: Option<Initializers>,
    ) -> Result<Option<Initializers>, StatusError> {
        let review = self.case.review;
        let old = old.and_then(Initializers::normalized);
        let Some(before) = &old else {
            let actor = Actor { may_initialize: false, owns: OwnedNames::Names(&[]) };
            return transition(None, new, actor).map_err(|refused| self.denied(refused));
        };
        if !review.sub_resource.is_empty() {
            let why = format!("an object that is not initialized has no {} to be changed yet", review.sub_resource);
            return Err(self.denied(RefusedList::Forbidden(why)));
        }
        let rights = self.rights(entry, before.head()).await?;
        let own = [before.head().unwrap_or_default()];
        let actor = Actor { may_initialize: rights != Rights::None, owns: rights.owns(&own) };
        transition(old.clone(), new, actor).map_err(|refused| self.denied(refused))
    }

    /// Rights of the requester on an object that is not initialized, whose list begins with this name.
    pub(super) async fn rights(&self, entry: &ResourceInitializers, head: Option<&str>) -> Result<Rights, StatusError> {
        let review = self.case.review;
        let ours = || self.case.gate.current.labelled().account().is_some_and(|ours| *ours == *review.username);
        if *review.username == *APISERVER || entry.by_label && ours() {
            return Ok(Rights::Any);
        }
        let in_group = |wanted: &[Box<str>]| groups::any_of(review, wanted);
        let is = |who: &crate::model::bypass::Who| who.is(&review.username, in_group);
        let named = entry.initializers.iter().find(|one| head == Some(&*one.name));
        let owners = named.and_then(|one| one.owners.as_ref());
        let listed = owners.is_some_and(is) || entry.may_initialize.as_ref().is_some_and(is);
        if !listed && !self.may_initialize(review).await? {
            return Ok(Rights::None);
        }
        Ok(match owners {
            Some(owners) if !is(owners) => Rights::Other,
            // The user is an owner, or none are configured: then any user who may initialize is one.
            _ => Rights::Head,
        })
    }

    /// The user who makes the request, as JSON.
    pub(super) async fn requester(&self) -> Result<String, StatusError> {
        let review = self.case.review.clone();
        let size = review.user.as_ref().map_or(0, Range::len);
        let reading = offload::run(size, move || {
            let user = user_of(&review)?;
            let extra: serde_json::Map<_, _> =
                user.extra.into_iter().map(|(key, values)| (key, values.into())).collect();
            let creator = json!({
                "username": &*review.username, "uid": user.uid, "groups": user.groups, "extra": extra,
            });
            Ok::<_, String>(creator.to_string())
        });
        match timeout_at(self.case.caller.deadline.instant().into(), reading).await {
            Ok(read) => read.map_err(|why| Box::new(status::internal(&why))),
            Err(_) => Err(Box::new(status::out_of_time())),
        }
    }

    /// Writes the list into the object as it is now, or takes it out.
    async fn put(&mut self, list: Option<&Initializers>, creator: Option<&str>) -> Result<(), StatusError> {
        const PATH: &str = "/metadata/initializers";
        let before = self.initialized.patched.clone();
        let review = before.as_ref().map_or(self.case.review, |before| &before.review);
        let text = match list {
            Some(list) => {
                let value = metadata_initializers::with_creator(&list.write(), creator);
                format!(r#"[{{"op":"add","path":"{PATH}","value":{value}}}]"#)
            }
            None if field(self.case, review, review.object.clone()).await?.is_some() => {
                format!(r#"[{{"op":"remove","path":"{PATH}"}}]"#)
            }
            None => return Ok(()),
        };
        self.apply(text, "writing metadata.initializers").await
    }

    /// Applies a patch of our own to the object as it is now.
    pub(super) async fn apply(&mut self, text: String, what: &str) -> Result<(), StatusError> {
        let before = self.initialized.patched.clone();
        let review = before.as_ref().map_or(self.case.review, |before| &before.review).clone();
        let broken = |why: &str| Box::new(status::internal(&format!("{what}: {why}")));
        let length = text.len();
        let patch = Patch::parse(text.into()).map_err(|error| broken(&error.to_string()))?;
        let room = room_for(&patch, length, (&review, before.as_ref()), &self.case.gate.memory);
        let room = room.ok_or_else(|| Box::new(status::no_room_for_object()))?;
        let held = before.as_ref().map_or(0, |before| before.document.held());
        let size = 2 * (review.bytes.len() + held + length);
        let writing = offload::run_unless_dropped(size, move |cancelled| {
            patched(&review, before.as_ref(), &patch, room, Some(cancelled))
        });
        match timeout_at(self.case.caller.deadline.instant().into(), writing).await {
            Ok(Ok(Some(changed))) => self.initialized.patched = Some(Arc::new(changed)),
            Ok(Ok(None)) => {}
            Ok(Err(Unpatched::NoRoom)) => return Err(Box::new(status::no_room_for_object())),
            Ok(Err(Unpatched::Inapplicable(why) | Unpatched::TooLarge(why))) => return Err(broken(&why)),
            Err(_) => return Err(Box::new(status::out_of_time())),
        }
        Ok(())
    }
}

/// The list and the creator, as an object has them.
fn read(field: Option<Field>) -> Result<(Option<Initializers>, Option<String>), RefusedList> {
    let Some(Field { list, creator }) = field else { return Ok((None, None)) };
    let list = list.map_err(|why| RefusedList::Invalid { field: "metadata.initializers".into(), why })?;
    Ok((list, creator))
}
