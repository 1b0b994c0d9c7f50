//! The story of one configuration change: read, check, probe what is new, put in force, drain what is gone.
//!
//! ```text
//! Reading --same digest--> freshness stamped, done
//!         --changed--> candidate --problems--> the documents at fault are held back, or all is rejected
//!                                --good--> placed: proven hooks are asked at once, new ones are probed
//!                                          --> published --> hooks that are gone drain
//! ```

pub mod candidate;
pub mod draining;
pub mod hazards;
pub mod placements;
pub mod probing;
pub mod rotator;

pub use candidate::{Candidate, OnInvalid, candidate};
pub use hazards::{OnHazard, OwnAddresses};
pub use rotator::{InForce, Rotator, RotatorOptions};
