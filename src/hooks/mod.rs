//! Clients of hooks: a warm HTTP/2 connection for each worker and endpoint, shared bytes out, answers in. Hooks that
//! speak HTTP/1.1 only get a pool of connections, as each carries one call at a time.
//!
//! [`Channel::ask`] puts a [`Call`] on the worker's client; its answer arrives in the request's [`Responses`].
//!
//! The transport limits its own steps (lookups, dials, handshakes, idle connections), sends every call once, and
//! reports what came of it: of a call without an answer also whether the hook may have processed it ([`FailedCall`]).
//! Answers that break the protocol are failures. `review` owns the rest: the hook's deadline, whether it is asked again,
//! the failure policy, and what an answer means for the request.

mod answer_room;
pub mod call;
mod canned;
pub mod channel;
mod collected;
mod command;
pub mod connection_budget;
mod dial;
mod dial_pace;
mod dialler;
mod draining;
mod failed_call;
mod gzip;
mod http1;
mod http2;
mod media_type;
mod patch_rates;
mod pending_calls;
mod post;
pub mod probe;
mod protocol;
mod race;
mod reply;
mod resolve;
pub mod resources;
pub mod responses;
mod retry_after;
pub mod services;
mod socket;
mod target;
mod worker_client;

pub use call::{Call, Method};
pub use channel::Channel;
pub use connection_budget::ConnectionBudget;
pub use failed_call::{FailedCall, ProcessingEvidence, Reuse};
#[doc(hidden)]
pub use http1::read_http1;
#[doc(hidden)]
pub use http2::frames_of;
pub use patch_rates::{PatchRates, RequestKind};
pub use probe::{ProbeFailure, ProbePost};
pub use protocol::{GrpcRequest, HookRequest, HttpRequest};
pub use reply::{AnswerHold, HttpReply, Reply};
pub use resources::Resources;
pub use responses::{Arrival, Responses};
pub use services::ServiceAddresses;
