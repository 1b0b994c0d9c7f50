//! Users of a cluster, as its administrator makes them.

use serde_json::{Value, json};

use crate::{
    etcd::{Cluster, range_of},
    setting::PREFIX,
};

/// Prefix of the replicas' reports.
pub(crate) const REPLICAS: &str = "/gatepost/replicas/";

/// The user `gatepost`, who says `hunter2`.
pub(crate) fn by_password() -> Value {
    json!({ "name": "gatepost", "password": "hunter2" })
}

/// From now on the cluster wants to know who asks: this user has the role that docs/sources.md gives, `nobody`
/// (password `hunter2`) has none.
pub(crate) fn ask_who(cluster: &Cluster, gatepost: Value) {
    let allowed = |prefix: &str, what: &str| {
        let (key, range_end) = range_of(prefix);
        json!({ "name": "gatepost", "perm": { "permType": what, "key": key, "range_end": range_end } })
    };
    for (path, question) in [
        ("role/add", json!({ "name": "root" })),
        ("user/add", json!({ "name": "root", "password": "hunter2-root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("role/add", json!({ "name": "gatepost" })),
        ("role/grant", allowed(PREFIX, "READ")),
        ("role/grant", allowed(REPLICAS, "READWRITE")),
        ("user/add", gatepost),
        ("user/grant", json!({ "user": "gatepost", "role": "gatepost" })),
        ("user/add", json!({ "name": "nobody", "password": "hunter2" })),
        ("enable", json!({})),
    ] {
        let done = cluster.post(&format!("/v3/auth/{path}"), &question);
        // From 3.5 on, etcd has made the role root by itself.
        let is_there = path == "role/add" && question["name"] == "root";
        assert!(done.is_ok() || is_there, "{path}: {done:?}");
    }
}
