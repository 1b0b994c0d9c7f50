//! The Common Expression Language, as kube-apiserver evaluates it for match conditions.
//!
//! The way in, one file a step: `parse` (text to the tree of the package `cel`, within bounds) → `macros` (what that
//! parser leaves to be written out) → `check` (types and names, to a `program`). The way through, once a request:
//! `evaluate` walks the program over an `input`, whose objects are a `document` each: bytes, of which only the
//! containers that the expression looks into are ever located. A `meter` counts what upstream counts as cost, and
//! steps, so that the caller's thread is given back in time. `conditions` says what the values of several expressions
//! mean together.
//!
//! Nothing here waits, and nothing asks anybody. An expression that asks the `authorizer` (`authorization`) is
//! evaluated until an access check has no decision yet. The caller has that check decided, and evaluates once more.

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
};
