//! What is in force now: a snapshot with its live hooks, and how fresh it is.

pub mod break_glass;
pub mod current;
pub mod departed;
pub mod discovery;
pub mod entered;
pub mod following;
pub mod generation;
pub mod hook_state;
pub mod last_good;
pub mod namespaces;
pub mod registration;
pub mod rejection;
pub mod rotation;
pub mod target;

pub use break_glass::BreakGlasses;
pub use current::{Current, FailedRead};
pub use departed::Departed;
pub use discovery::Discovery;
pub use entered::Entered;
pub use generation::{Generation, LiveHook, Overdue, Replacement};
pub use hook_state::HookState;
pub use last_good::LastGoodState;
pub use namespaces::Namespaces;
pub use registration::{Drift, RegistrationWatch};
pub use rejection::{HeldBack, Rejection, Unconfirmed};
pub use rotation::{Departure, Event, Rotation};
pub use target::Target;
