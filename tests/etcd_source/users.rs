//! Users of a cluster, as its administrator makes them.

use serde_json::json;

use crate::{
    etcd::{Cluster, range_of},
    setting::PREFIX,
};

/// From now on the cluster wants to know who asks. `gatepost` may read what is configured and write nothing, `nobody` may
/// do nothing; the password of both is `hunter2`.
pub(crate) fn ask_who(cluster: &Cluster) {
    let (key, range_end) = range_of(PREFIX);
    let read = json!({ "permType": "READ", "key": key, "range_end": range_end });
    for (path, question) in [
        ("role/add", json!({ "name": "root" })),
        ("user/add", json!({ "name": "root", "password": "hunter2-root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("role/add", json!({ "name": "gatepost-read" })),
        ("role/grant", json!({ "name": "gatepost-read", "perm": read })),
        ("user/add", json!({ "name": "gatepost", "password": "hunter2" })),
        ("user/grant", json!({ "user": "gatepost", "role": "gatepost-read" })),
        ("user/add", json!({ "name": "nobody", "password": "hunter2" })),
        ("enable", json!({})),
    ] {
        let done = cluster.post(&format!("/v3/auth/{path}"), &question);
        // From 3.5 on, etcd has made the role root by itself.
        let is_there = path == "role/add" && question["name"] == "root";
        assert!(done.is_ok() || is_there, "{path}: {done:?}");
    }
}
