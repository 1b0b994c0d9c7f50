//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! The map, in layer order; a layer uses only the layers above it in this list (`tests/layers.rs` keeps that true).
#![forbid(unsafe_code)]

// What is asked and answered: the domain's nouns.
pub mod model;
// Bytes to model and back; the language of conditions; what people write to a compiled snapshot. All pure.
pub mod cel;
pub mod snapshot;
pub mod wire;
// JSON Patch on the bytes of an object. Pure.
pub mod patch;
// How files of this machine are read while reviews are served.
pub mod files;
// How long the machine has slept; the memory budget; work too long for a worker; key pairs; metrics and audit.
pub mod clock;
pub mod memory;
pub mod offload;
pub mod telemetry;
pub mod tls;
// Clients of an etcd cluster, and of a Kubernetes apiserver.
pub mod etcd;
pub mod kube;
// Where configuration comes from; how hooks are called.
pub mod hooks;
pub mod source;
// What is in force now.
pub mod live;
// The story of one request; the story of one configuration change; what replicas tell of themselves.
pub mod admit;
pub mod replicas;
pub mod rotate;
// Sockets in; settings, threads and drain; commands.
pub mod app;
pub mod cli;
pub mod front;
