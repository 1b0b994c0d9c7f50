//! A reverse proxy before an apiserver that knows nothing of initializers. It hides objects that are not
//! initialized, and holds the answer to whoever creates one.
//!
//! | noun | module |
//! | --- | --- |
//! | the resources that are opted in, and [`ResourcePath`](resources::ResourcePath), which a path names | `resources` |
//! | [`Plan`](plan::Plan), the part of the proxy that a request needs; its parameters, the selector that hides | `plan` |
//! | the user that the apiserver is told | `requester` |
//! | fields of one connection, and those that a proxy adds | `fields` |
//! | [`Proxy`], the way of one request, and requests that become another protocol | `serve` |
//! | LIST, WATCH and GET by name; answers that are read whole, and the memory for them | `get` |
//! | CREATE, the held object, and the warning that tells of it | `create` |
//! | the proxy's own requests to the apiserver | `cluster` |
//! | limit on writes under way, and readiness | `write_places` |
//! | answers in the apiserver's place | `refusal` |
//! | content of messages | `body`, and `joined` for small frames of an answer |
//! | the apiserver's address and certificates, and connections to it | `upstream`, `pool` |
//! | [`ReadProxyMetrics`](metrics::ReadProxyMetrics), what is counted | `metrics` |
//! | clients' connections, and their idle time | `listen`, `activity` |
#![forbid(unsafe_code)]

mod activity;
mod body;
pub mod cluster;
mod create;
mod fields;
mod get;
mod joined;
pub mod listen;
pub mod metrics;
pub mod plan;
mod pool;
mod refusal;
pub mod requester;
pub mod resources;
pub mod serve;
pub mod upstream;
mod write_places;

pub use self::{
    cluster::Cluster,
    resources::ProxiedResources,
    serve::{Proxy, ProxySettings},
    upstream::{RequestOrigin, Upstream},
    write_places::ProxyReadiness,
};
