//! State in force: a snapshot with its live hooks, and its age.

pub mod authorizer;
pub mod break_glass;
pub mod configuration_status;
pub mod current;
pub mod discovery;
pub mod freshness;
pub mod generation;
pub mod generation_guard;
pub mod labelled;
pub mod namespaces;
pub mod registration;
pub mod replica_faults;
pub mod rotation;
pub mod segment_moves;

pub use authorizer::Authorizer;
pub use break_glass::BreakGlasses;
pub use configuration_status::{
    ConfigurationStatus, FailedRead, LastGoodState, PendingConfirmation, QuarantinedDocument, Rejection,
};
pub use current::Current;
pub use discovery::Discovery;
pub use freshness::STALE_AFTER;
pub use gatepost_initializers::{Hub, StoredObjects};
pub use generation::{CallTarget, Generation, HookState, LiveHook, Overdue, Replacement};
pub use generation_guard::GenerationGuard;
pub use labelled::Labelled;
pub use namespaces::Namespaces;
pub use registration::RegistrationState;
pub use replica_faults::{attendance, replica_faults};
pub use rotation::{RetireReason, RetiredEntry, Rotation, RotationEvent};
