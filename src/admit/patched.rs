//! Patched: an object, and all that the patches of hooks have made of it.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::{Case, outcome::Outcome, status};
use crate::{
    memory::{MemoryBudget, Purpose, Reservation},
    model::{Encoding, ProposedPatch, Review, Rope, StatusInfo},
    offload::{self, LARGE},
    patch::{Document, IdentityField, Limits, Patch},
    wire::encodings,
};

const MIB: usize = 1 << 20;

/// Change of the object in one turn.
#[derive(Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The patch, which changed it.
    Patched(Bytes),
    /// The patch cannot be applied: the request is rejected, whatever the hook's failure policy.
    Refused(Box<StatusInfo>),
}

/// An object, and all that patches have made of it.
#[derive(Debug)]
pub(super) struct Patched {
    pub(super) document: Document,
    /// One patch that makes of the object as it arrived what it is now.
    pub(super) difference: Option<Bytes>,
    /// The review about the object as it is now.
    pub(super) review: Review,
    /// Room in the memory budget for what is new of all that.
    room: Reservation,
    /// Bytes of all patches, slices of which the object may be made of.
    texts: usize,
}

/// Applies the patch of an answer, within the request's time. The object as it is then, where the patch changed it.
pub(super) async fn apply(
    outcome: &mut Outcome<'_>,
    review: &Review,
    before: Option<&Arc<Patched>>,
    case: Case<'_>,
) -> (Change, Option<Arc<Patched>>) {
    let parsed = outcome.take_parsed();
    let Some(ProposedPatch { text, .. }) = outcome.patch() else { return (Change::None, None) };
    let patch = match parsed.unwrap_or_else(|| Patch::parse(text.clone())) {
        Ok(patch) => patch,
        Err(error) => return (refused(outcome, &error.to_string()), None),
    };
    // What is gone through: all that the review holds, what patches have opened before, and what this one may copy.
    let opened = before.map_or(0, |before| before.document.held() + before.document.rope().len());
    let size = review.bytes.len() + text.len() + opened + copies(&patch);
    let Some(room) = room_for(&patch, text.len(), (review, before), &case.gate.memory) else {
        return (Change::Refused(Box::new(status::no_room(outcome.decider.name))), None);
    };
    let applied = if size < LARGE {
        patched(review, before, &patch, room)
    } else {
        let (review, before) = (review.clone(), before.cloned());
        let applying = offload::run(size, move || patched(&review, before.as_ref(), &patch, room));
        match timeout_at(case.caller.deadline.instant().into(), applying).await {
            Ok(applied) => applied,
            Err(_) => return (Change::Refused(Box::new(status::out_of_time())), None),
        }
    };
    match applied {
        Ok(None) => (Change::None, None),
        Ok(Some(changed)) => (Change::Patched(text.clone()), Some(Arc::new(changed))),
        Err(why) => (refused(outcome, &why), None),
    }
}

/// Bytes that a patch may copy besides its own.
fn copies(patch: &Patch) -> usize {
    if patch.copies() { 3 * MIB } else { 0 }
}

/// Room for what a patch of that many bytes makes of a review's object, which is what `before` has made of it; `None` where
/// there is none.
pub(super) fn room_for(
    patch: &Patch,
    text: usize,
    (review, before): (&Review, Option<&Arc<Patched>>),
    memory: &Arc<MemoryBudget>,
) -> Option<Reservation> {
    // What is new of the object, and once more of the difference; what was there is shared.
    let object = review.object.as_ref().map_or(0, Range::len);
    let held = before.map_or_else(|| Document::outline(object), |before| before.room.bytes());
    let most = 2 * (text + copies(patch)) + patch.compared(object) + held;
    memory.reserve(Purpose::Answer, most)
}

fn refused(outcome: &Outcome<'_>, why: &str) -> Change {
    Change::Refused(Box::new(status::patch_refused(outcome.decider.name, why)))
}

/// Applies a patch to the object of a review, which is what `before` has made of it, if anything. `None`: nothing changes.
///
/// # Errors
/// Why the patch cannot be applied.
pub(super) fn patched(
    review: &Review,
    before: Option<&Arc<Patched>>,
    patch: &Patch,
    mut room: Reservation,
) -> Result<Option<Patched>, String> {
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(place) = review.object.clone() else {
        return Err("it patches the object, and there is none".to_owned());
    };
    let default = Limits::default();
    // An object that arrived larger may be patched as well, and not grow.
    let limits = Limits { object: default.object.max(place.len()), ..default };
    let document = match before {
        Some(before) => before.document.patched(patch, limits),
        None => {
            let object = Rope::new(review.bytes.shared(place).collect::<Vec<_>>());
            let document = match review.encoding {
                // All of such a review was checked when it was read.
                Encoding::Json(_) => Document::checked(object),
                Encoding::Envelope(_) | Encoding::Grpc => Document::new(object),
            };
            document.and_then(|document| document.patched(patch, limits))
        }
    };
    let document = document.map_err(|error| error.to_string())?;
    let known_by = |field: &IdentityField| match field {
        IdentityField::Root | IdentityField::ApiVersion | IdentityField::Kind | IdentityField::Uid => true,
        // A hook may name what the apiserver would find a name for.
        IdentityField::Name => !review.name.is_empty(),
        // The apiserver refuses what does not fit the request.
        IdentityField::Namespace => false,
    };
    if let Some(field) = document.changed_identity().into_iter().find(known_by) {
        return Err(format!("it changes {field}, which identifies the object"));
    }
    let difference = document.difference().map(|rope| rope.copy_of(0..rope.len()));
    if difference == before.and_then(|before| before.difference.clone()) {
        return Ok(None);
    }
    let review = encodings::with_object(review, document.rope()).map_err(|failure| failure.to_string())?;
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let texts = patch.size() + before.map_or(0, |before| before.texts);
    room.shrink_to(document.held() + length(&difference) + texts);
    Ok(Some(Patched { document, difference, review, room, texts }))
}
