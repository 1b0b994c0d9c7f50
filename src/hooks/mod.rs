//! Clients of hooks: a warm HTTP/2 connection for each worker and endpoint, which carries all calls; requests share
//! their bodies. Hooks that speak only HTTP/1.1 get a pool of connections, as each carries one call at a time.
//!
//! [`Channel::submit`] gives a [`Call`] to the worker's client. Its answer arrives in the request's [`Responses`].
//!
//! The transport limits its own steps (lookups, dials, handshakes, idle connections), sends each call once, and reports
//! its result. For a call without an answer it also reports the evidence on whether the hook has processed the call
//! ([`FailedCall`]). Answers that break the protocol are failures. `review` owns the rest: the hook's deadline,
//! retries, the failure policy, and the effect of an answer on the request.
//!
//! A connection that is lost: `http2` fails each of its calls with a [`FailedCall`], whose [`ProcessingEvidence`] says
//! whether the hook may have processed the call (`http1` does so for its one call). `review::round` receives it
//! (`on_failure`), and sends the call again if `review::attempt` decides so. Otherwise `review::record` makes its
//! [`gatepost_api::CallFailure`] a call that failed open or closed. `review::rejection` has the text of the rejection,
//! and `review::verdict` combines it with those of other hooks.
//!
//! | file | owns |
//! | --- | --- |
//! | `worker_client` | [`Channel`]: all connections to one endpoint, by a client for each worker, which dials and drains |
//! | `commands` | commands to a client, and calls that wait for a connection |
//! | `dialler`, `connect`, `resolver` | connections: their pace and handshake, sockets and TLS, names to addresses |
//! | `connection_budget` | the limits on connections, of all hooks and of each |
//! | `http2`, `http1` | calls over a connection, by version of HTTP |
//! | `protocol` | requests and answers of gRPC and of HTTP |
//! | `call` | a call, its result, and whether it may be sent again |
//! | `reply`, `answer_buffer`, `header_values` | an answer: its body, its memory, its headers |
//! | `probe` | checks that a hook can be reached and serves |
//! | `patch_rates` | how often a hook's answers carry a patch |

mod answer_buffer;
mod call;
mod commands;
mod connect;
mod connection_budget;
mod dialler;
mod header_values;
mod http1;
mod http2;
mod patch_rates;
mod probe;
mod protocol;
mod reply;
mod resolver;
mod worker_client;

pub use call::{Arrival, Call, FailedCall, ProcessingEvidence, Responses, Reuse};
pub use connection_budget::{ConnectionBudget, MAX_FURTHER_ATTEMPTS};
pub use dialler::Resources;
#[doc(hidden)]
pub use http1::read_http1;
#[doc(hidden)]
pub use http2::frames_of;
pub use patch_rates::{PatchRates, RequestKind};
pub use probe::{ProbeFailure, ProbePost};
pub use protocol::{GrpcRequest, HookRequest, HttpRequest, Method};
pub use reply::{AnswerMemoryGuard, HttpReply, Reply};
pub use resolver::{Ports, SERVICES_STALE_AFTER, ServiceAddresses};
pub use worker_client::Channel;
