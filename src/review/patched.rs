//! Patched: an object, and all that the patches of hooks have made of it.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::{Case, outcome::Outcome, status};
use crate::{
    memory::{MemoryBudget, Purpose, Reservation},
    model::{CallFailure, Encoding, ProposedPatch, Review, Rope, StatusInfo},
    offload::{self, LARGE},
    patch::{Changes, Document, IdentityField, Patch, PatchError, PatchLimits},
    wire::encodings,
};

const MIB: usize = 1 << 20;
/// Memory for opening parts of an object: enough for small ones, and the most for any.
const LITTLE: usize = 64 << 10;
const MUCH: usize = 64 << 20;

/// Reason why a patch is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unpatched {
    /// There is no memory to hold the patched object in.
    NoRoom,
    /// It cannot be applied, and why.
    Inapplicable(String),
    /// The hook adds more than is taken, and how much that is.
    TooLarge(String),
}

/// Change of the object in one turn.
#[derive(Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// Nothing, by the patch, which was applied.
    Unchanged(Bytes),
    /// The patch, which changed it.
    Patched(Bytes),
    /// The patch does not apply: the request is rejected, whatever the hook's failure policy.
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
    /// Bytes of the object as it arrived.
    arrived: usize,
}

/// Applies the patch of an answer, within the request's time. The object as it is then, where the patch changed it. A
/// patch beyond a limit makes a failed call of the answer; `opened`: a bypass passes the hook over then.
pub(super) async fn apply(
    outcome: &mut Outcome<'_>,
    opened: bool,
    review: &Review,
    before: Option<&Arc<Patched>>,
    case: Case<'_>,
) -> (Change, Option<Arc<Patched>>) {
    let parsed = outcome.take_parsed();
    let Some(ProposedPatch { text, .. }) = outcome.patch().cloned() else { return (Change::None, None) };
    let patch = match parsed.unwrap_or_else(|| Patch::parse(text.clone())) {
        Ok(patch) => patch,
        Err(error) => return (refused(outcome, &error.to_string()), None),
    };
    // Bytes to scan: all that the review holds, those that patches have opened before, and those of the patch.
    let before_bytes = before.map_or(0, |before| before.document.held() + before.document.rope().len());
    let size = review.bytes.len() + before_bytes + scanned(&patch, text.len());
    let Some(room) = room_for(&patch, text.len(), (review, before), &case.gate.memory) else {
        return (Change::Refused(Box::new(status::no_room(outcome.decider.name))), None);
    };
    let applied = if size < LARGE {
        patched(review, before, &patch, room, None)
    } else {
        let (review, before) = (review.clone(), before.cloned());
        let applying = offload::run_unless_dropped(size, move |cancelled| {
            patched(&review, before.as_ref(), &patch, room, Some(cancelled))
        });
        match timeout_at(case.caller.deadline.instant().into(), applying).await {
            Ok(applied) => applied,
            Err(_) => return (Change::Refused(Box::new(status::out_of_time())), None),
        }
    };
    match applied {
        Ok(None) => (Change::Unchanged(text), None),
        Ok(Some(changed)) => (Change::Patched(text), Some(Arc::new(changed))),
        Err(Unpatched::NoRoom) => (Change::Refused(Box::new(status::no_room(outcome.decider.name))), None),
        Err(Unpatched::Inapplicable(why)) => (refused(outcome, &why), None),
        Err(Unpatched::TooLarge(which)) => {
            outcome.fail(opened, CallFailure::PatchOverLimit(which));
            (Change::None, None)
        }
    }
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
    (review, before): (&Review, Option<&Arc<Patched>>),
    memory: &Arc<MemoryBudget>,
) -> Option<Reservation> {
    // The new parts of the object, and once more those of the difference; the parts that were there are shared.
    let object = review.object.as_ref().map_or(0, Range::len);
    let held = before.map_or_else(|| Document::outline(object), |before| before.room.bytes());
    let most = 2 * (text + copies(patch)) + patch.compared(object) + held;
    memory.reserve(Purpose::Answer, most)
}

fn refused(outcome: &Outcome<'_>, why: &str) -> Change {
    Change::Refused(Box::new(status::patch_refused(outcome.decider.name, why)))
}

/// Applies a patch to the object of a review, which is what `before` has made of it, if anything. `None`: nothing changes.
/// It ends early where `cancelled` is set.
///
/// # Errors
/// [`Unpatched`]: the patch cannot be applied, is beyond a limit, or there is no room for its result.
pub(super) fn patched(
    review: &Review,
    before: Option<&Arc<Patched>>,
    patch: &Patch,
    mut room: Reservation,
    cancelled: Option<&Arc<AtomicBool>>,
) -> Result<Option<Patched>, Unpatched> {
    if patch.is_empty() {
        return Ok(None);
    }
    let Some(place) = review.object.clone() else {
        return Err(Unpatched::Inapplicable("it patches the object, and there is none".to_owned()));
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
            let document = document.map_err(|error| Unpatched::Inapplicable(error.to_string()))?;
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
        return Err(Unpatched::Inapplicable(format!("it changes {field}, which identifies the object")));
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
        .map_err(|failure| Unpatched::Inapplicable(failure.to_string()))?;
    room.shrink_to(held);
    Ok(Some(Patched { document, difference, review, room, texts, arrived }))
}

/// The document with the patch applied, which is tried with ever more memory, as far as there is room.
fn applied(
    document: &Document,
    patch: &Patch,
    limits: PatchLimits,
    room: &mut Reservation,
    cancelled: Option<&Arc<AtomicBool>>,
) -> Result<Document, Unpatched> {
    // Most patches need no more; each further try begins anew.
    let mut held = LITTLE + document.rope().len() + patch.size();
    loop {
        reach(room, document.held() + patch.size() + held)?;
        match document.patched_unless(patch, PatchLimits { held, ..limits }, cancelled) {
            Err(PatchError::NoRoom) if held < MUCH => held = (8 * held).min(MUCH),
            // Of this limit the hook's own words alone can be the cause; of the others also the client's object, which
            // must not be able to keep a hook with Ignore from changing it.
            Err(error) if error.is_too_large() && !patch.copies() => {
                return Err(Unpatched::TooLarge(error.to_string()));
            }
            applied => return applied.map_err(|error| Unpatched::Inapplicable(error.to_string())),
        }
    }
}

/// Reserves until there is so much.
fn reach(room: &mut Reservation, bytes: usize) -> Result<(), Unpatched> {
    let more = bytes.saturating_sub(room.bytes());
    if room.try_grow(more) { Ok(()) } else { Err(Unpatched::NoRoom) }
}
