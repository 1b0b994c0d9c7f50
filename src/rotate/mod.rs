//! How a changed configuration comes into force: read, check, put in force, probe new endpoints, drain removed hooks.
//!
//! Every good read has one of five outcomes ([`ReadOutcome`](crate::telemetry::ReadOutcome); "in force" is `Changed`).
//! Each of them renews freshness, if a configuration is in force.
//!
//! ```text
//! same digest ─┬─ no candidate is pending ──> unchanged    confirms break-glass, publishes a new revision
//!              └─ a candidate is pending ───> in force     or quarantined: this is the second read
//! new digest ──┬─ invalid ──────────────────> rejected     the configuration in force stays
//!              ├─ enforces less, maybe cut ─> unconfirmed  waits for a second read that enforces no less than this one
//!              ├─ some documents invalid ───> quarantined  in force with the last good states of these documents
//!              └─ valid ────────────────────> in force
//! ```
//!
//! [`source::poll`](crate::source::poll) sends every read to [`Rotator::apply_read`](rotator::Rotator::apply_read). That
//! compares digests, has `candidate` check and compile the documents on a blocking thread, and selects the outcome
//! (`judge`). `put_in_force` has `placements` decide where each hook is called, and publishes the new generation
//! ([`Current::publish`](crate::live::Current::publish)): the next request of each worker uses it.
//!
//! A hook at a proven endpoint is called at once. A hook at a new endpoint is published while its probe runs: until the
//! probe passes, it is called at its former endpoint or not at all. Removed hooks drain. A new binding of a policy is
//! published while its params are read, and evaluated once they have been.

pub mod candidate;
pub mod draining;
pub mod hazards;
mod params;
pub mod placements;
pub mod probing;
pub mod rotator;

pub use candidate::{Candidate, OnInvalid, candidate};
pub use hazards::{OnHazard, OwnAddresses};
pub use rotator::{InForce, Rotator, RotatorOptions};
