//! The pure layers of the product, from its own files, and nothing else: they take a small part of the time to
//! build that all of it takes. `tests/layers.rs` keeps them from needing more.
#![forbid(unsafe_code)]

#[path = "../src/cel/mod.rs"]
pub mod cel;
#[path = "../src/hpack/mod.rs"]
pub mod hpack;
#[path = "../src/http2/mod.rs"]
pub mod http2;
#[path = "../src/initialize/mod.rs"]
pub mod initialize;
#[path = "../src/model/mod.rs"]
pub mod model;
#[path = "../src/patch/mod.rs"]
pub mod patch;
#[path = "../src/snapshot/mod.rs"]
pub mod snapshot;
#[path = "../src/wire/mod.rs"]
pub mod wire;
