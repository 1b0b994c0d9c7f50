//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! The map, in layer order. A layer uses itself and layers in rows above its own; `tests/layers.rs` has the rows and
//! keeps that true. Layers under one comment are not always in one row.
#![forbid(unsafe_code)]

// What stands in crates of its own, below `crates/`.
pub use gatepost_adopt as adopt;
pub use gatepost_api::{self as model, schema};
pub use gatepost_base::{clock, files, memory, offload};
pub use gatepost_cel as cel;
pub use gatepost_client as client;
pub use gatepost_etcd_client as etcd;
pub use gatepost_http2_client::{self as http2, hpack};
pub use gatepost_initializers as initialize;
pub use gatepost_json_patch as patch;
pub use gatepost_kube_support as kube;
pub use gatepost_tls as tls;
pub use gatepost_wire as wire;

// Bytes to model and back; match conditions; the written form of our kinds;
// configuration to compiled snapshot; JSON Patch; webhooks of others that Gatepost calls in the apiserver's place. All
// pure, in this order: wire, cel and schema, snapshot, patch, adopt.
pub mod snapshot;
// Key pairs; metrics and audit.
pub mod telemetry;
// Clients of Gatepost, for initializers' processes; of an etcd cluster, and of a Kubernetes apiserver.
// Sources of configuration; clients of hooks.
pub mod hooks;
pub mod source;
// State in force now.
pub mod live;
// The loops that keep it current; the story of one request; the story of one configuration change; the status of
// replicas.
pub mod review;
/// The former name of `review`.
pub use review as admit;
pub mod replicas;
pub mod rotate;
pub mod watch;
// Sockets in; a proxy before an apiserver; then settings, threads and drain; then commands.
pub mod runtime;
/// The former name of `runtime`.
pub use runtime as app;
pub mod commands;
pub mod front;
pub mod proxy;
