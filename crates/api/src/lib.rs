//! Domain types: reviews, answers, hooks. No wire codecs, no clock, no I/O.

pub mod answer;
pub mod builtin;
pub mod bundle;
pub mod bypass;
pub mod exempt;
pub mod failure_kind;
pub mod hook;
pub mod initialization;
pub mod initializer;
pub mod names;
pub mod registration;
pub mod review;
pub mod revision;
pub mod rule;
pub mod schema;
pub mod selector;
pub mod served;
pub mod template;
pub mod verdict;

pub use answer::{Answer, CallFailure, Denial, ProposedPatch};
pub use answer::{Step, Unreachable};
pub use builtin::{builtin, other_group};
pub use bypass::BreakGlass;
pub use bypass::{Bypass, BypassEffect};
pub use failure_kind::FailureClass;
pub use failure_kind::FailureKind;
pub use gatepost_cel::{AccessCheck, AccessDecision, AccessTarget, ResourceAccess, Subject, User};
pub use gatepost_json::{ContainerEnds, Rope};
pub use hook::{
    Canary, Dispatch, Endpoint, Enforcement, FailurePolicy, Hook, HookType, HttpForm, MatchPolicy, Protocol,
    Reinvocation, SideEffects, Transport,
};
pub use hook::{OnProbeFailure, Rollout};
pub use initializer::{Claimants, Initializer, ObjectAdditions, PodAdditions, PodPlace, ResourceInitializers};
pub use review::Deadline;
pub use review::{Encoding, Gvk, Gvr, Operation, Phase, Review, ReviewVersion};
pub use review::{ForwardedContext, Hops, TraceContext};
pub use revision::Revision;
pub use rule::{Rule, RuleTarget, Scope};
pub use selector::Labels;
pub use selector::Selector;
pub use served::AdoptionCondition;
pub use served::Served;
pub use template::{JsonTemplate, Template, Variable};
pub use verdict::{StatusCause, StatusInfo, StatusMetadata, Verdict};
