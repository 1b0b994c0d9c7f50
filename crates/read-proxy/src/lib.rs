//! Reverse proxy in front of an apiserver without initializers. It hides objects that are not initialized, and holds
//! the response to their creation until they are.
//!
//! | item | module |
//! | --- | --- |
//! | opted-in resources, and [`ResourcePath`](resources::ResourcePath), the resource that a path names | `resources` |
//! | [`ReadPlan`](plan::ReadPlan), how the proxy handles a request | `plan` |
//! | query parameters of a request, and the label selector that hides objects | `query` |
//! | the user that the proxy names to the apiserver | `requester` |
//! | hop-by-hop fields, fields that a proxy adds, and the warning about an uninitialized object | `fields` |
//! | [`Proxy`], the path of one request | `serve` |
//! | LIST, WATCH and GET by name | `get` |
//! | responses that are read completely, and the memory for them | `inspect` |
//! | CREATE, and the object whose creator waits | `create`, `hold` |
//! | requests that upgrade to another protocol | `upgrade` |
//! | the proxy's own requests to the apiserver | `cluster` |
//! | limit on concurrent writes, and readiness | `write_places` |
//! | responses in place of the apiserver's | `refusal` |
//! | bodies of messages | `body`, and `joined` for small frames of a response |
//! | the apiserver, and connections to it | `upstream`, `pool`; `origin` reloads its address and certificates |
//! | [`ReadProxyMetrics`](metrics::ReadProxyMetrics), the counters | `metrics` |
//! | clients' connections | `listen`; `peer` for the client's identity, `activity` for timeouts |
#![forbid(unsafe_code)]

mod activity;
mod body;
pub mod cluster;
mod create;
mod fields;
mod get;
mod hold;
mod inspect;
mod joined;
pub mod listen;
pub mod metrics;
pub mod origin;
mod peer;
pub mod plan;
mod pool;
pub mod query;
mod refusal;
pub mod requester;
pub mod resources;
pub mod serve;
mod upgrade;
pub mod upstream;
mod write_places;

pub use self::{
    cluster::Cluster,
    origin::RequestOrigin,
    resources::ProxiedResources,
    serve::{Proxy, ProxySettings},
    upstream::Upstream,
    write_places::ProxyReadiness,
};
