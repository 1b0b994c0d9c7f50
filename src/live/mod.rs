//! State in force: a snapshot with its live hooks, and its age.

pub mod attendance;
pub mod authorizer;
pub mod break_glass;
pub mod current;
pub mod discovery;
pub mod generation;
pub mod generation_guard;
pub mod hook_state;
pub mod labelled;
pub mod last_good;
pub mod namespaces;
pub mod registration;
pub mod rejection;
pub mod replica_faults;
pub mod retired_entry;
pub mod rotation;
pub mod segment_moves;
pub mod target;

pub use attendance::attendance;
pub use authorizer::Authorizer;
pub use break_glass::BreakGlasses;
pub use current::{Current, FailedRead};
pub use discovery::Discovery;
pub use gatepost_initializers::{Hub, StoredObjects};
pub use generation::{Generation, LiveHook, Overdue, Replacement};
pub use generation_guard::GenerationGuard;
pub use hook_state::HookState;
pub use labelled::Labelled;
pub use last_good::LastGoodState;
pub use namespaces::Namespaces;
pub use registration::RegistrationState;
pub use rejection::{HeldBack, Rejection, Unconfirmed};
pub use replica_faults::replica_faults;
pub use retired_entry::RetiredEntry;
pub use rotation::{RetireReason, Rotation, RotationEvent};
pub use target::CallTarget;
