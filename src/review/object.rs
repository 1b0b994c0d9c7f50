//! PatchedObject: an object that patches have changed.
//!
//! `mutate`, `policies` and `initialize` change objects, all as [`Document`]s of `gatepost_json_patch`. [`completed`]
//! makes the rest from the changed document: the patch for the caller, and the review with the new object, which is JSON
//! even if it arrived in protobuf ([`encodings::with_object`]). The next hooks are called with that review.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;

use super::{context::ReviewContext, rejection::StatusError};
use gatepost_api::{Encoding, Review, Rope};
use gatepost_base::{
    memory::{MemoryBudget, Purpose, Reservation},
    offload::{self, OFFLOAD_THRESHOLD},
};
use gatepost_json_patch::{Changes, Document, IdentityField, Patch, PatchError, PatchLimits};
use gatepost_wire::encodings;

const MIB: usize = 1 << 20;
/// Memory for expanded parts of an object, in bytes: the amount of the first try, enough for small objects, and the
/// maximum.
const MIN_EXPANDED_BYTES: usize = 64 << 10;
const MAX_EXPANDED_BYTES: usize = 64 << 20;

/// Reason why a patch is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatchFailure {
    /// There is no memory for the patched object.
    NoRoom,
    /// The patch cannot be applied, for this reason.
    Inapplicable(String),
    /// The patch adds more than a limit allows, as this text states.
    TooLarge(String),
}

/// An object that patches have changed.
#[derive(Debug)]
pub(super) struct PatchedObject {
    pub(super) document: Document,
    /// Patch from the object as it arrived to the current object.
    pub(super) difference: Option<Bytes>,
    /// The review with the current object.
    pub(super) review: Review,
    /// Reservation in the memory budget for the new parts of all that.
    room: Reservation,
    /// Size of all patches in bytes; the object may contain slices of them.
    patch_bytes: usize,
    /// Size of the object as it arrived, in bytes.
    arrived: usize,
}

impl<'a> ReviewContext<'a> {
    /// Returns the review with this patched object, or the review as it arrived if there is none.
    pub(super) fn current_review<'r>(&self, object: Option<&'r Arc<PatchedObject>>) -> &'r Review
    where
        'a: 'r,
    {
        object.map_or(self.review, |object| &object.review)
    }

    /// Applies a patch of `text` bytes to the object of `review`; `before` is that object if something has changed it.
    /// Runs off the worker's thread if there are many bytes to process, and until the request's deadline.
    pub(super) async fn apply(
        &self,
        patch: Patch,
        text: usize,
        review: &Review,
        before: Option<&Arc<PatchedObject>>,
    ) -> Result<Result<Option<PatchedObject>, PatchFailure>, StatusError> {
        // Bytes of the review, of the parts that earlier patches have expanded, and of the patch.
        let before_bytes = before.map_or(0, |before| before.document.held() + before.document.rope().len());
        let size = review.bytes.len() + before_bytes + bytes_to_scan(&patch, text);
        let Some(room) = room_for(&patch, text, review, before, &self.deps.memory) else {
            return Ok(Err(PatchFailure::NoRoom));
        };
        if size < OFFLOAD_THRESHOLD {
            return Ok(apply_patch(review, before, &patch, room, None));
        }
        let (review, before) = (review.clone(), before.cloned());
        let applying = move |cancelled: &_| apply_patch(&review, before.as_ref(), &patch, room, Some(cancelled));
        self.in_time(offload::run_unless_dropped(size, applying)).await
    }
}

/// Returns the maximum number of bytes that a patch may copy besides its own.
fn max_copied_bytes(patch: &Patch) -> usize {
    if patch.copies() { 3 * MIB } else { 0 }
}

/// Returns the number of bytes to scan for a patch of `text` bytes: its own, and those that it may copy.
fn bytes_to_scan(patch: &Patch, text: usize) -> usize {
    text + max_copied_bytes(patch)
}

/// Reserves memory to apply a patch of `text` bytes to a review's object; `before` is that object if something has
/// changed it. `None` if there is not enough.
fn room_for(
    patch: &Patch,
    text: usize,
    review: &Review,
    before: Option<&Arc<PatchedObject>>,
    memory: &Arc<MemoryBudget>,
) -> Option<Reservation> {
    // Memory for the new parts of the object, and as much for those of the difference. Old parts are shared.
    let object = review.object.as_ref().map_or(0, Range::len);
    let held = before.map_or_else(|| Document::outline(object), |before| before.room.bytes());
    let most = 2 * (text + max_copied_bytes(patch)) + patch.compared(object) + held;
    memory.reserve(Purpose::Answer, most)
}

/// Applies a patch to the object of a review; `before` is that object if something has changed it. Returns `None` if
/// nothing changes. Ends early once `cancelled` is set.
///
/// # Errors
/// [`PatchFailure`]: the patch cannot be applied, it is beyond a limit, or there is no memory for its result.
pub(super) fn apply_patch(
    review: &Review,
    before: Option<&Arc<PatchedObject>>,
    patch: &Patch,
    mut room: Reservation,
    cancelled: Option<&Arc<AtomicBool>>,
) -> Result<Option<PatchedObject>, PatchFailure> {
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(place) = review.object.clone() else {
        return Err(PatchFailure::Inapplicable("it patches the object, and there is none".to_owned()));
    };
    let default = PatchLimits::default();
    // The client chooses the size of the object, and that must not decide whether a hook's patch applies. The limit is
    // on what all hooks together add.
    let arrived = before.map_or(place.len(), |before| before.arrived);
    let limits = PatchLimits { object: arrived + default.object, ..default };
    let document = document_of(review, place, before, &mut room)?;
    let document = try_apply(&document, patch, limits, &mut room, cancelled)?;
    completed(review, before, document, patch.size(), room)
}

/// Returns the object at `place` of a review as a document; `before` is that object if something has changed it.
///
/// # Errors
/// The object is not JSON, or there is no memory for it.
pub(super) fn document_of(
    review: &Review,
    place: Range<usize>,
    before: Option<&Arc<PatchedObject>>,
    room: &mut Reservation,
) -> Result<Document, PatchFailure> {
    if let Some(before) = before {
        return Ok(before.document.clone());
    }
    let object = Rope::new(review.bytes.shared(place).collect::<Vec<_>>());
    let joined = if object.chunks().len() > 1 { object.len() } else { 0 };
    grow_to(room, joined)?;
    let document = match review.encoding {
        // A JSON review was validated when it was read.
        Encoding::Json(_) => Document::checked(object),
        Encoding::Envelope(_) | Encoding::Grpc => Document::new(object),
    };
    document.map_err(|error| PatchFailure::Inapplicable(error.to_string()))
}

/// Returns the patched object with this document, which patches of `patch_size` bytes have made from the object of the
/// review. `None` if nothing has changed.
///
/// # Errors
/// The document is another object, or there is no memory for it.
pub(super) fn completed(
    review: &Review,
    before: Option<&Arc<PatchedObject>>,
    document: Document,
    patch_size: usize,
    mut room: Reservation,
) -> Result<Option<PatchedObject>, PatchFailure> {
    let arrived = before.map_or_else(|| review.object.as_ref().map_or(0, Range::len), |before| before.arrived);
    let known_by = |field: &IdentityField| match field {
        IdentityField::Root | IdentityField::ApiVersion | IdentityField::Kind | IdentityField::Uid => true,
        // A hook may set a name that the apiserver would generate.
        IdentityField::Name => !review.name.is_empty(),
        // The apiserver rejects a namespace that does not fit the request.
        IdentityField::Namespace => false,
    };
    if let Some(field) = document.changed_identity().into_iter().find(known_by) {
        return Err(PatchFailure::Inapplicable(format!("it changes {field}, which identifies the object")));
    }
    if before.is_some_and(|before| before.document.rope().is_same(document.rope())) {
        return Ok(None);
    }
    let changes = document.changes();
    if changes.is_none() && before.is_none() {
        return Ok(None);
    }
    let patch_bytes = patch_size + before.map_or(0, |before| before.patch_bytes);
    // The difference is in memory twice for a moment: in pieces, and joined.
    grow_to(&mut room, document.held() + patch_bytes + 2 * changes.as_ref().map_or(0, Changes::size))?;
    let difference = changes.map(|changes| changes.to_patch());
    let held = document.held() + difference.as_ref().map_or(0, Rope::len) + patch_bytes;
    grow_to(&mut room, held)?;
    let difference = difference.map(|rope| rope.to_bytes());
    let review = encodings::with_object(review, document.rope())
        .map_err(|failure| PatchFailure::Inapplicable(failure.to_string()))?;
    room.shrink_to(held);
    Ok(Some(PatchedObject { document, difference, review, room, patch_bytes, arrived }))
}

/// Returns the document with the patch applied. Tries again with more memory while there is room.
fn try_apply(
    document: &Document,
    patch: &Patch,
    limits: PatchLimits,
    room: &mut Reservation,
    cancelled: Option<&Arc<AtomicBool>>,
) -> Result<Document, PatchFailure> {
    // Enough for most patches. Each further try starts again from the document.
    let mut held = MIN_EXPANDED_BYTES + document.rope().len() + patch.size();
    loop {
        grow_to(room, document.held() + patch.size() + held)?;
        match document.patched_unless(patch, PatchLimits { held, ..limits }, cancelled) {
            Err(PatchError::NoRoom) if held < MAX_EXPANDED_BYTES => held = (8 * held).min(MAX_EXPANDED_BYTES),
            // A patch that copies nothing exceeds this limit by its own bytes, and then the hook's call fails.
            // Otherwise the client's object may be the cause, and a client must not be able to make a hook with Ignore
            // fail open.
            Err(error) if error.is_too_large() && !patch.copies() => {
                return Err(PatchFailure::TooLarge(error.to_string()));
            }
            applied => return applied.map_err(|error| PatchFailure::Inapplicable(error.to_string())),
        }
    }
}

/// Grows the reservation to `bytes`.
fn grow_to(room: &mut Reservation, bytes: usize) -> Result<(), PatchFailure> {
    let more = bytes.saturating_sub(room.bytes());
    if room.try_grow(more) { Ok(()) } else { Err(PatchFailure::NoRoom) }
}
