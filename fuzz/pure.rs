//! The pure layers of the product, and what reads an HTTP/1.1 answer, from its own files: they take a small part of the
//! time to build that all of it takes. `tests/layers.rs` keeps the layers from needing more.
#![forbid(unsafe_code)]

pub use gatepost_api::{self as model, schema};
pub use gatepost_base::memory;
pub use gatepost_cel as cel;
pub use gatepost_http2_client::{self as http2, hpack};
pub use gatepost_json_patch as patch;
pub use gatepost_wire as wire;

#[path = "hooks.rs"]
pub mod hooks;
#[path = "../src/snapshot/mod.rs"]
pub mod snapshot;
