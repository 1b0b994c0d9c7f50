//! Label: objects that an apiserver stores before they are initialized although it knows nothing of initializers.
//!
//! Such an object carries two marks. The label [`PENDING`] is what reads select by: an object that has it is hidden. Its
//! value names the initialization, and nothing else. The annotation [`STATE`] holds the list, the creator and, once there is
//! one, the result ([`State`]). Both are set by Gatepost when the object is created. The update that takes the label away
//! and says [`Completed`](Phase::Completed) in the annotation completes the object. An update that merely forgets them, as a
//! PUT from a manifest does, completes nothing. `Completed` without the label is no mark: whoever has the manifest of a
//! finished object may create it again.
//!
//! | noun | file |
//! | --- | --- |
//! | [`State`], the annotation's form | `state` |
//! | [`Standing`], an object by its marks | here |
//! | a change of the marks by an update | `change` |
//! | [`MarksStep`], a change of the object by Gatepost itself, as a JSON Patch | `step` |
//! | resources whose objects are never stored so | `unfit` |

pub mod change;
pub mod state;
pub mod step;
pub mod unfit;

pub use self::{
    change::{MarksOutcome, created, update},
    state::{LabelPhase, State},
    step::{MarksStep, Target},
    unfit::{Unfit, unfit},
};

use crate::wire::object_head::Wanted;

/// Label that an object has until it is initialized.
pub const PENDING: &str = "init.gatepost.dev/pending";
/// Annotation with the list of such an object.
pub const STATE: &str = "init.gatepost.dev/state";
/// The two in an object's head.
pub const MARKS: Wanted<'static> = Wanted { label: PENDING, annotation: STATE };
/// Selector of objects that are not initialized.
pub const SELECTOR: &str = PENDING;
/// Longest value of a label.
const LONGEST_ID: usize = 63;
/// Beginning of the warning by which a proxy learns that what it has created waits.
const WARNING: &str = "init pending ";

/// Value of the label for so much randomness: its hexadecimal digits.
pub fn init_id(random: [u64; 2]) -> String {
    format!("{:016x}{:016x}", random[0], random[1])
}

/// Warning to whoever creates an object that is stored unfinished.
pub fn warning(init_id: &str) -> String {
    format!("{WARNING}{init_id}")
}

/// The id in such a warning.
pub fn id_in_warning(text: &str) -> Option<&str> {
    text.strip_prefix(WARNING).filter(|id| is_id(id))
}

/// True for a value of the label that Gatepost may have set.
pub fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Marks of one object, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Value of the label.
    pub label: Option<Box<str>>,
    /// Text of the annotation.
    pub state: Option<Box<str>>,
}

/// An object by its marks.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It has no label: it is initialized, or never had to be. Everybody sees it.
    Visible,
    /// It is hidden, and says what must still be done.
    Unfinished(State),
    /// It is hidden, and does not say why in a form that can be read. Nothing is known to be left to do, so it becomes
    /// visible.
    Lost,
}

impl Marks {
    /// State of the object.
    pub fn standing(&self) -> Standing {
        if self.label.is_none() {
            return Standing::Visible;
        }
        match self.state.as_deref().map(State::read) {
            Some(Ok(state)) if state.phase() != LabelPhase::Completed => Standing::Unfinished(state),
            _ => Standing::Lost,
        }
    }

    /// Does nothing say that it waits? An annotation that says `Completed` is what is left of an earlier initialization.
    pub fn is_finished(&self) -> bool {
        self.label.is_none() && self.state.as_deref().is_none_or(is_completed)
    }
}

/// Is this the annotation of a finished object?
fn is_completed(state: &str) -> bool {
    State::read(state).is_ok_and(|state| state.phase() == LabelPhase::Completed)
}

#[cfg(test)]
#[path = "label/tests.rs"]
mod tests;
