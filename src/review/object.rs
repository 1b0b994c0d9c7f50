//! PatchedObject: an object, and all that the patches of hooks have made of it.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;

use gatepost_api::{Encoding, Review, Rope};
use gatepost_base::memory::{MemoryBudget, Purpose, Reservation};
use gatepost_json_patch::{Changes, Document, IdentityField, Patch, PatchError, PatchLimits};
use gatepost_wire::encodings;

const MIB: usize = 1 << 20;
/// Memory for opening parts of an object: enough for small ones, and the most for any.
const MIN_EXPANDED_BYTES: usize = 64 << 10;
const MAX_EXPANDED_BYTES: usize = 64 << 20;

/// Reason why a patch is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatchFailure {
    /// There is no memory to hold the patched object in.
    NoRoom,
    /// It cannot be applied, and why.
    Inapplicable(String),
    /// The hook adds more than is taken, and how much that is.
    TooLarge(String),
}

/// An object, and all that patches have made of it.
#[derive(Debug)]
pub(super) struct PatchedObject {
    pub(super) document: Document,
    /// One patch that makes of the object as it arrived what it is now.
    pub(super) difference: Option<Bytes>,
    /// The review about the object as it is now.
    pub(super) review: Review,
    /// Room in the memory budget for what is new of all that.
    room: Reservation,
    /// Bytes of all patches, slices of which the object may be made of.
    texts: usize,
    /// Bytes of the object as it arrived.
    arrived: usize,
}

/// Bytes that a patch may copy besides its own.
fn copies(patch: &Patch) -> usize {
    if patch.copies() { 3 * MIB } else { 0 }
}

/// Bytes to scan that come with a patch of that many bytes: its own, and those that it may copy.
pub(super) fn scanned(patch: &Patch, text: usize) -> usize {
    text + copies(patch)
}

/// Room for what a patch of that many bytes makes of a review's object, which is what `before` has made of it; `None` where
/// there is none.
pub(super) fn room_for(
    patch: &Patch,
    text: usize,
    review: &Review,
    before: Option<&Arc<PatchedObject>>,
    memory: &Arc<MemoryBudget>,
) -> Option<Reservation> {
    // The new parts of the object, and once more those of the difference; the parts that were there are shared.
    let object = review.object.as_ref().map_or(0, Range::len);
    let held = before.map_or_else(|| Document::outline(object), |before| before.room.bytes());
    let most = 2 * (text + copies(patch)) + patch.compared(object) + held;
    memory.reserve(Purpose::Answer, most)
}

/// Applies a patch to the object of a review, which is what `before` has made of it, if anything. `None`: nothing changes.
/// It ends early where `cancelled` is set.
///
/// # Errors
/// [`PatchFailure`]: the patch cannot be applied, is beyond a limit, or there is no room for its result.
pub(super) fn patched(
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
    // How large the object arrived is the client's choice, which must not decide whether a hook's patch counts. How much
    // all hooks add together is limited.
    let arrived = before.map_or(place.len(), |before| before.arrived);
    let limits = PatchLimits { object: arrived + default.object, ..default };
    let document = match before {
        Some(before) => applied(&before.document, patch, limits, &mut room, cancelled)?,
        None => {
            let object = Rope::new(review.bytes.shared(place).collect::<Vec<_>>());
            let joined = if object.chunks().len() > 1 { object.len() } else { 0 };
            reach(&mut room, joined)?;
            let document = match review.encoding {
                // All of such a review was checked when it was read.
                Encoding::Json(_) => Document::checked(object),
                Encoding::Envelope(_) | Encoding::Grpc => Document::new(object),
            };
            let document = document.map_err(|error| PatchFailure::Inapplicable(error.to_string()))?;
            applied(&document, patch, limits, &mut room, cancelled)?
        }
    };
    let known_by = |field: &IdentityField| match field {
        IdentityField::Root | IdentityField::ApiVersion | IdentityField::Kind | IdentityField::Uid => true,
        // A hook may name what the apiserver would find a name for.
        IdentityField::Name => !review.name.is_empty(),
        // The apiserver refuses what does not fit the request.
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
    let texts = patch.size() + before.map_or(0, |before| before.texts);
    // The difference is held twice for a moment: as it is written, and joined.
    reach(&mut room, document.held() + texts + 2 * changes.as_ref().map_or(0, Changes::size))?;
    let difference = changes.map(|changes| changes.to_patch());
    let held = document.held() + difference.as_ref().map_or(0, Rope::len) + texts;
    reach(&mut room, held)?;
    let difference = difference.map(|rope| rope.copy_of(0..rope.len()));
    let review = encodings::with_object(review, document.rope())
        .map_err(|failure| PatchFailure::Inapplicable(failure.to_string()))?;
    room.shrink_to(held);
    Ok(Some(PatchedObject { document, difference, review, room, texts, arrived }))
}

/// The document with the patch applied, which is tried with ever more memory, as far as there is room.
fn applied(
    document: &Document,
    patch: &Patch,
    limits: PatchLimits,
    room: &mut Reservation,
    cancelled: Option<&Arc<AtomicBool>>,
) -> Result<Document, PatchFailure> {
    // Most patches need no more; each further try starts again from the document.
    let mut held = MIN_EXPANDED_BYTES + document.rope().len() + patch.size();
    loop {
        reach(room, document.held() + patch.size() + held)?;
        match document.patched_unless(patch, PatchLimits { held, ..limits }, cancelled) {
            Err(PatchError::NoRoom) if held < MAX_EXPANDED_BYTES => held = (8 * held).min(MAX_EXPANDED_BYTES),
            // Of this limit the hook's own words alone can be the cause; of the others also the client's object, which
            // must not be able to keep a hook with Ignore from changing it.
            Err(error) if error.is_too_large() && !patch.copies() => {
                return Err(PatchFailure::TooLarge(error.to_string()));
            }
            applied => return applied.map_err(|error| PatchFailure::Inapplicable(error.to_string())),
        }
    }
}

/// Grows the reservation to that many bytes.
fn reach(room: &mut Reservation, bytes: usize) -> Result<(), PatchFailure> {
    let more = bytes.saturating_sub(room.bytes());
    if room.try_grow(more) { Ok(()) } else { Err(PatchFailure::NoRoom) }
}
