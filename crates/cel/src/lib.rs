//! The Common Expression Language, as kube-apiserver evaluates it for match conditions and admission policies.
//!
//! A match condition of a webhook:
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
//!     namespace: None,
//!     decisions: AccessDecisions::default(),
//! };
//! let steps = Cell::new(1_000_000);
//! let allowance = Allowance { steps: &steps, over: &|| false };
//! assert_eq!(decide(&conditions, &input, &allowance), ConditionsDecision::Matches);
//! # Ok::<(), String>(())
//! ```
//!
//! A validation of a policy, which uses a variable and parameters:
//!
//! ```
//! use std::cell::Cell;
//! use gatepost_cel::{
//!     AccessDecisions, Allowance, Environment, Evaluator, Expected, Expression, Input, JsonDocument, Output, Request, User,
//! };
//!
//! let mut environment = Environment::policy(true);
//! let replicas = Expression::compile("object.spec.replicas", &environment, Expected::Any)?;
//! environment.declare("replicas", &replicas)?;
//! let variables = [("replicas".into(), replicas)];
//! let validation = Expression::compile("variables.replicas <= params.max", &environment, Expected::Bool)?;
//!
//! let params = JsonDocument::new(br#"{"max":5}"#.as_slice().into());
//! let object = JsonDocument::new(br#"{"spec":{"replicas":3}}"#.as_slice().into());
//! let input = Input {
//!     request: Request::new(|| Ok(User::default())),
//!     object: Some(object),
//!     old_object: None,
//!     namespace: None,
//!     decisions: AccessDecisions::default(),
//! };
//! let steps = Cell::new(1_000_000);
//! let allowance = Allowance { steps: &steps, over: &|| false };
//! let evaluator = Evaluator::new(&input, Some(&params), &variables);
//! assert_eq!(evaluator.evaluate(&validation, &allowance).result, Ok(Output::Bool(true)));
//! # Ok::<(), String>(())
//! ```
//!
//! Compiling: `lexer` splits text into tokens, `parse` makes a `tree` of them within bounds, in which `macros` are
//! expanded; `check` finds types and names, and builds a `program`. An `environment` has the names that a policy adds,
//! and the types that a result may have. Evaluating: `evaluate` walks the program over an `input`, whose objects are
//! JSON text, of which only the containers that the expression reads are located. A `meter` counts cost as upstream
//! does, and steps, which bound the time on the caller's thread. `conditions` combines the values of several
//! expressions. An `evaluator` holds the variables of a policy; `mutation` writes an `Object` or a list of `JSONPatch`
//! as JSON; `explain` names the parts that made an expression false.
//!
//! Nothing here blocks, and nothing calls an authorizer. An expression that uses `authorizer` is evaluated until an
//! access check has no decision yet. The caller obtains the decision, and evaluates again. Rules of custom
//! resources are not supported.
//!
//! The upstreams are cel-go and `k8s.io/apiserver/pkg/cel`, in the versions that `tests/cel` names. Values, errors and
//! costs are theirs, and so are the limits on text: 100,000 characters, and expressions in each other 250 deep. The
//! limits on memory, on pattern sizes and on the tree (250 deep and 20,000 nodes with its macros written out) are this
//! crate's own. A fault of the text is the first of those that upstream reports. In policies, these differ:
//!
//! - `variables` needs a field: `dyn(variables)` is rejected.
//! - A name of a variable in which kube-apiserver would read an escape, such as `a__dash__b`, is rejected.
//! - An expression and the variables that it uses, nested in each other, are at most 300 deep.
//! - A field that is set twice in a message, and one that `JSONPatch` does not have, are rejected.
//! - Messages other than `Object`, its parts and `JSONPatch` are rejected.
//! - The values of all variables of a policy share the limits on memory.
//! - Parameters have the types of JSON. Upstream fails to use a container of built-in types, such as the data of a
//!   ConfigMap, as the value of a JSON patch.

mod access;
mod authorization;
mod check;
mod compatibility;
mod conditions;
mod environment;
mod evaluate;
mod evaluator;
mod explain;
mod expression;
mod formats;
mod functions;
mod input;
mod lexer;
mod macros;
mod members;
mod meter;
mod mutation;
mod numbers;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod types;
mod url;
mod value;

pub use self::{
    authorization::{AccessCheck, AccessDecision, AccessDecisions, AccessTarget, ResourceAccess, Subject},
    compatibility::{Change, Effect, KubernetesVersion},
    conditions::{Condition, ConditionsDecision, Evaluated, OUT_OF_BUDGET, combined, decide},
    environment::{Environment, Expected},
    evaluator::Evaluator,
    expression::{Evaluation, Expression, Failure, Output},
    input::{Input, JsonDocument, Request, User},
    meter::{Allowance, MAX_CONDITIONS_COST},
    time::parse_go_duration,
};
