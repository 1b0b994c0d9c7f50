//! The pure layers of the product, and what reads an HTTP/1.1 answer, from its own files: they take a small part of the
//! time to build that all of it takes. `tests/layers.rs` keeps the layers from needing more.
#![forbid(unsafe_code)]

#[path = "../src/cel/mod.rs"]
pub mod cel;
#[path = "hooks.rs"]
pub mod hooks;
#[path = "../src/hpack/mod.rs"]
pub mod hpack;
#[path = "../src/http2/mod.rs"]
pub mod http2;
#[path = "../src/initialize/mod.rs"]
pub mod initialize;
#[path = "../src/memory/mod.rs"]
pub mod memory;
#[path = "../src/model/mod.rs"]
pub mod model;
#[path = "../src/patch/mod.rs"]
pub mod patch;
#[path = "../src/snapshot/mod.rs"]
pub mod snapshot;
#[path = "../src/wire/mod.rs"]
pub mod wire;
