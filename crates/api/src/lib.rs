//! The domain's nouns: reviews, answers, hooks. No codecs, no clock, no I/O.

pub mod answer;
pub mod break_glass;
pub mod builtin;
pub mod bundle;
pub mod bypass;
pub mod exempt;
pub mod failure_class;
pub mod failure_kind;
pub mod hook;
pub mod hops;
pub mod initialization;
pub mod initializer;
pub mod labels;
pub mod reach;
pub mod registration;
pub mod review;
pub mod revision;
pub mod rollout;
pub mod rule;
pub mod schema;
pub mod selector;
pub mod served;
pub mod served_condition;
pub mod template;
pub mod time;
pub mod verdict;

pub use answer::{Answer, CallFailure, Denial, ProposedPatch};
pub use break_glass::BreakGlass;
pub use builtin::{builtin, other_group};
pub use bypass::{Bypass, BypassEffect};
pub use failure_class::FailureClass;
pub use failure_kind::FailureKind;
pub use gatepost_cel::{AccessCheck, AccessDecision, AccessTarget, ResourceAccess, Subject, User};
pub use gatepost_json::{ContainerEnds, Rope};
pub use hook::{
    Dispatch, Endpoint, FailurePolicy, Hook, HookType, HttpForm, MatchPolicy, Protocol, Reinvocation, SideEffects,
    Transport,
};
pub use hops::Hops;
pub use initializer::{BuiltIn, Claimants, Initializer, PodAdditions, PodPlace, ResourceInitializers};
pub use labels::Labels;
pub use reach::{Step, Unreachable};
pub use review::{Encoding, Gvk, Gvr, Operation, Phase, Review, ReviewVersion};
pub use revision::Revision;
pub use rollout::{OnProbeFailure, Rollout};
pub use rule::{Rule, RuleTarget, Scope};
pub use selector::Selector;
pub use served::Served;
pub use served_condition::ServedCondition;
pub use template::{Shape, Template, Variable};
pub use time::Deadline;
pub use verdict::{StatusCause, StatusInfo, StatusMetadata, Verdict};
