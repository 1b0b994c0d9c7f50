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
pub mod hook_placement;
mod mixture;
pub mod on_hazard;
pub mod on_invalid;
pub mod own_addresses;
pub mod probing;
pub mod rotator;
pub mod trial;
mod waiting;

pub use candidate::{Candidate, candidate};
pub use on_hazard::OnHazard;
pub use on_invalid::OnInvalid;
pub use own_addresses::OwnAddresses;
pub use rotator::{InForce, Rotator};
