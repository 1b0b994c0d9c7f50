//! Gatepost: an admission sidecar for Kubernetes apiservers.
//!
//! A review passes [`front`], [`review`] and [`hooks`]; a configuration passes [`source`], [`rotate`] and [`live`].
//! `CONTRIBUTING.md` has the map of this folder and of the crates beside it.
#![forbid(unsafe_code)]

// Crates of this workspace, by the names that they have here.
pub use gatepost_adopt as adopt;
pub use gatepost_api::{self as model, schema};
pub use gatepost_base::{clock, files, memory, offload};
pub use gatepost_cel as cel;
pub use gatepost_client as client;
pub use gatepost_config as snapshot;
pub use gatepost_etcd_client as etcd;
pub use gatepost_http2_client::{self as http2, hpack};
pub use gatepost_initializers as initialize;
pub use gatepost_json_patch as patch;
pub use gatepost_kube_support as kube;
pub use gatepost_read_proxy as proxy;
pub use gatepost_tls as tls;
pub use gatepost_wire as wire;

pub mod commands;
pub mod front;
pub mod hooks;
pub mod live;
pub mod replicas;
pub mod review;
pub mod rotate;
pub mod runtime;
pub mod source;
pub mod telemetry;
pub mod watch;
