//! Reading what replicas tell of themselves in etcd.

use super::{Report, Seen, Silent};
use crate::etcd::{Client, EtcdError};

/// Every replica whose key is there: the live ones, and those that died less than [`TTL`](super::publisher::TTL) ago.
///
/// # Errors
/// Why etcd cannot be asked.
pub async fn all(client: &Client, prefix: &str) -> Result<Seen, EtcdError> {
    let mut seen = Seen::default();
    for pair in client.get_prefix(prefix).await?.pairs {
        match serde_json::from_slice(&pair.value) {
            Ok(report) => seen.reports.push(report),
            Err(error) => seen.silent.push(Silent {
                place: String::from_utf8_lossy(&pair.key).into_owned(),
                why: format!("its value is no report of a replica: {error}"),
            }),
        }
    }
    seen.reports.sort_by(|one: &Report, other| one.replica.cmp(&other.replica));
    Ok(seen)
}
