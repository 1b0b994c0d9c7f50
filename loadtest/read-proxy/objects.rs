//! Objects: the ConfigMaps that are read, and the one that is watched, each written past the proxy.

use std::cell::Cell;

use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    Fallible,
    apiserver::{
        cluster::Cluster,
        connection::{Connection, text},
    },
    size::Size,
};

/// Path of the objects that are listed.
pub(super) const LISTED: &str = "/api/v1/namespaces/read-proxy-list/configmaps";
/// Path of the object that is watched.
pub(super) const WATCHED: &str = "/api/v1/namespaces/read-proxy-watch/configmaps";
/// The object that is watched.
pub(super) const NAME: &str = "watched";

/// Label by which the proxy hides an object.
const PENDING: &str = "init.gatepost.dev/pending";
const WRITERS: usize = 8;

/// The apiserver's version.
pub(super) async fn version(cluster: &Cluster) -> Fallible<String> {
    let (_, body) = Connection::open(cluster).await?.ask(Method::GET, "/version", Bytes::new()).await?;
    let version: Value = serde_json::from_slice(&body)?;
    Ok(version["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned())
}

/// Makes the namespaces, `count` objects of `size`, one more that is hidden, and the one that is watched.
pub(super) async fn write(cluster: &Cluster, count: usize, size: Size) -> Fallible<()> {
    let mut connection = Connection::open(cluster).await?;
    for path in [LISTED, WATCHED] {
        let name = path.split('/').nth(4).unwrap_or_default();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(&mut connection, "/api/v1/namespaces", &namespace).await?;
    }
    create(&mut connection, WATCHED, &config_map(NAME, json!({}), size)).await?;
    create(&mut connection, LISTED, &config_map("hidden", json!({PENDING: "1f2e"}), size)).await?;
    let next = Cell::new(0);
    let mut connections = try_join_all((0..WRITERS).map(|_| Connection::open(cluster))).await?;
    try_join_all(connections.iter_mut().map(|connection| keep_creating(connection, &next, (count, size)))).await?;
    Ok(())
}

async fn keep_creating(connection: &mut Connection, next: &Cell<usize>, (count, size): (usize, Size)) -> Fallible<()> {
    while next.get() < count {
        let number = next.replace(next.get() + 1);
        create(connection, LISTED, &config_map(&name(number), json!({"app": "shop"}), size)).await?;
    }
    Ok(())
}

/// An error unless the proxy lists all of them but the hidden one, and shows that one to nobody.
pub(super) async fn check_hidden(direct: &Cluster, proxied: &Cluster, count: usize) -> Fallible<()> {
    for (cluster, expected, status) in [(direct, count + 1, StatusCode::OK), (proxied, count, StatusCode::ACCEPTED)] {
        let mut connection = Connection::open(cluster).await?;
        let (answered, list) = connection.ask(Method::GET, LISTED, Bytes::new()).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let listed = list["items"].as_array().map_or(0, Vec::len);
        let (shown, _) = connection.ask(Method::GET, &format!("{LISTED}/hidden"), Bytes::new()).await?;
        if answered != StatusCode::OK || listed != expected || shown != status {
            let at = cluster.address;
            return Err(format!(
                "VOID: {at} answered {answered} and listed {listed} of {expected} objects, and answered {shown} for one \
                 that is not initialized"
            )
            .into());
        }
    }
    Ok(())
}

/// Name of one of the listed objects.
pub(super) fn name(number: usize) -> String {
    format!("settings-{number}")
}

/// A ConfigMap whose JSON is about `size` bytes.
pub(super) fn config_map(name: &str, labels: Value, size: Size) -> Value {
    let metadata = json!({"name": name, "labels": labels});
    let text = "abcdef\n".repeat(size.0.saturating_sub(160) / 8);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings": text}})
}

async fn create(connection: &mut Connection, path: &str, object: &Value) -> Fallible<()> {
    match connection.ask(Method::POST, path, object.to_string().into()).await? {
        (StatusCode::CREATED, _) => Ok(()),
        (status, body) => Err(format!("{path}: an object was not created: {status} {}", text(&body)).into()),
    }
}
