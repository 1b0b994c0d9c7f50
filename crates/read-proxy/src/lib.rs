//! A reverse proxy before an apiserver that knows nothing of initializers. It hides objects that are not
//! initialized, and holds the answer to whoever creates one.
//!
//! | noun | file |
//! | --- | --- |
//! | [`ResourcePath`](path::ResourcePath), the resource that a path names | `path` |
//! | the resources that are opted in | `resources` |
//! | [`Plan`](plan::Plan), the part of the proxy that a request needs | `plan` |
//! | the parameters of a request, and the selector that hides | `query` |
//! | who sends a request, as the apiserver is told | `requester` |
//! | fields of one connection, and those that a proxy adds | `fields` |
//! | the warning that tells of an unfinished object | `warning` |
//! | [`Proxy`], the way of one request | `serve` |
//! | LIST and WATCH | `filter` |
//! | GET by name | `get` |
//! | answers that are looked at, and the memory for them | `inspect` |
//! | CREATE | `create`, and `hold` for the object that is waited for |
//! | requests that become another protocol | `upgrade` |
//! | the proxy's own questions to the apiserver | `cluster` |
//! | places of writes, and since when they are taken | `write_places` |
//! | may clients be sent here | `readiness` |
//! | answers in the apiserver's place | `refusal` |
//! | content of messages | `body`, and `joined` for small frames of an answer |
//! | the apiserver, and connections to it | `upstream`, `pool`; `origin` follows its certificates |
//! | [`ReadProxyMetrics`](metrics::ReadProxyMetrics), what is counted | `metrics` |
//! | clients' connections | `listen`; `peer` for who has one, `place` and `activity` for how long |
#![forbid(unsafe_code)]

mod activity;
mod body;
pub mod cluster;
mod create;
mod fields;
mod filter;
mod get;
mod hold;
mod inspect;
mod joined;
pub mod listen;
pub mod metrics;
pub mod origin;
pub mod path;
mod peer;
mod place;
pub mod plan;
mod pool;
pub mod query;
mod readiness;
mod refusal;
pub mod requester;
pub mod resources;
pub mod serve;
mod upgrade;
pub mod upstream;
mod warning;
mod write_places;

pub use self::{
    cluster::Cluster,
    origin::RequestOrigin,
    readiness::ProxyReadiness,
    resources::ProxiedResources,
    serve::{Proxy, ProxySettings},
    upstream::Upstream,
};
