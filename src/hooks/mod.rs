//! How a hook is called: one warm HTTP/2 connection for each worker and endpoint, shared bytes out, answers in.
//!
//! [`Channel::ask`] puts a [`Call`] on the worker's lane; its answer arrives in the request's [`Inbox`]. Nothing here
//! times out, retries or judges: that is `admit`'s, who sees the whole request.

pub mod call;
pub mod channel;
mod dial;
mod http2;
pub mod inbox;
mod lane;
mod probe;

pub use call::{Call, HttpReply, Method, Reply, Request};
pub use channel::Channel;
#[doc(hidden)]
pub use http2::frames_of;
pub use inbox::{Arrival, Inbox};
