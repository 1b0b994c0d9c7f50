//! The Common Expression Language, as kube-apiserver evaluates it for match conditions.
//!
//! ```
//! use std::cell::Cell;
//! use gatepost_cel::{AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request, User, decide};
//!
//! let conditions = [Condition::compile("replicas", "object.spec.replicas > 1")?];
//! let object = JsonDocument::new(br#"{"spec":{"replicas":3}}"#.as_slice().into());
//! let input = Input {
//!     request: Request::new(|| Ok(User::default())),
//!     object: Some(object),
//!     old_object: None,
//!     decisions: AccessDecisions::default(),
//! };
//! let steps = Cell::new(1_000_000);
//! let allowance = Allowance { steps: &steps, over: &|| false };
//! assert_eq!(decide(&conditions, &input, &allowance), ConditionsDecision::Matches);
//! # Ok::<(), String>(())
//! ```
//!
//! Compiling: `parse` reads text within bounds, with the parser of the crate `cel`, and expands the macros that this
//! parser does not know; `check` finds types and names, and builds a `program`. Evaluating: `evaluate` walks the
//! program over an `input`, whose objects are JSON text, of which only the containers that the expression reads are
//! located. A `meter` counts cost as upstream does, and steps, which bound the time on the caller's thread.
//! `conditions` combines the values of several expressions.
//!
//! Nothing here blocks, and nothing calls an authorizer. An expression that uses `authorizer` is evaluated until an
//! access check has no decision yet. The caller obtains the decision, and evaluates again. Variables of validating
//! admission policies (`params`, `variables`) and custom resources are not supported.
//!
//! The upstreams are cel-go and `k8s.io/apiserver/pkg/cel`, in the versions that `tests/cel` names. Values, errors and
//! costs are theirs; the limits on memory and on pattern sizes are this crate's own.

mod access;
mod authorization;
mod check;
mod conditions;
mod evaluate;
mod formats;
mod functions;
mod input;
mod meter;
mod numbers;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod time;
mod types;
mod url;
mod value;

pub use self::{
    authorization::{AccessCheck, AccessDecision, AccessDecisions, AccessTarget, ResourceAccess, Subject},
    conditions::{Condition, ConditionsDecision, Evaluated, combined, decide},
    input::{Input, JsonDocument, Request, User},
    meter::Allowance,
    time::parse_go_duration,
};
