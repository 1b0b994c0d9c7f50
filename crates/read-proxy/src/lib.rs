//! A reverse proxy before an apiserver that knows nothing of initializers. It hides objects that are not
//! initialized, and holds the answer to whoever creates one.
//!
//! | noun | module |
//! | --- | --- |
//! | the resources that are opted in, and [`ResourcePath`](resources::ResourcePath), which a path names | `resources` |
//! | [`Plan`](plan::Plan), the part of the proxy that a request needs | `plan` |
//! | the parameters of a request, and the selector that hides | `query` |
//! | the user that the apiserver is told | `requester` |
//! | fields of one connection, those that a proxy adds, and the warning about an unfinished object | `fields` |
//! | [`Proxy`], the way of one request | `serve` |
//! | LIST, WATCH and GET by name | `get` |
//! | answers that are read whole, and the memory for them | `inspect` |
//! | CREATE, and the object whose creator waits | `create`, `hold` |
//! | requests that become another protocol | `upgrade` |
//! | the proxy's own requests to the apiserver | `cluster` |
//! | limit on writes under way, and readiness | `write_places` |
//! | answers in the apiserver's place | `refusal` |
//! | content of messages | `body`, and `joined` for small frames of an answer |
//! | the apiserver, and connections to it | `upstream`, `pool`; `origin` follows its certificates |
//! | [`ReadProxyMetrics`](metrics::ReadProxyMetrics), what is counted | `metrics` |
//! | clients' connections | `listen`; `peer` for who has one, `activity` for how long |
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
