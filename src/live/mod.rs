//! State in force: hooks, rotation, age, rule index, break-glass, namespaces, discovery, authorizer, stored objects,
//! health.

pub mod adoption;
pub mod authorizer;
pub mod break_glass;
pub mod cluster_objects;
pub mod configuration_status;
pub mod current;
pub mod discovery;
pub mod freshness;
pub mod generation;
pub mod health;
pub mod labelled;
pub mod namespaces;
pub mod report;
pub mod rotation;
pub mod rule_index;
pub mod segment_moves;

pub use adoption::AdoptionSidecar;
pub use authorizer::Authorizer;
pub use break_glass::BreakGlassDocuments;
pub use cluster_objects::ClusterObjects;
pub use configuration_status::{
    ConfigurationStatus, FailedRead, LastGoodState, PendingConfirmation, QuarantinedDocument, Rejection,
};
pub use current::{Current, GenerationGuard};
pub use discovery::Discovery;
pub use freshness::STALE_AFTER;
pub use gatepost_initializers::{Hub, StoredObjects};
pub use generation::{CallTarget, Generation, HookState, LiveHook, LivePolicy, Overdue, Replacement};
pub use health::{RegistrationState, ReplicaHealth, attendance};
pub use labelled::LabelledObjectRole;
pub use namespaces::Namespaces;
pub use report::replica_report;
pub use rotation::{RetireReason, RetiredEntry, Rotation, RotationEvent};
