//! The crates that the targets try, by the sidecar's names, and from its own files what reads an HTTP/1.1 answer:
//! building the whole sidecar would take many times as long.
#![forbid(unsafe_code)]

pub use gatepost_api::{self as model, schema};
pub use gatepost_base::memory;
pub use gatepost_cel as cel;
pub use gatepost_http2_client::{self as http2, hpack};
pub use gatepost_json_patch as patch;
pub use gatepost_wire as wire;

#[path = "hooks.rs"]
pub mod hooks;
pub use gatepost_config as snapshot;
