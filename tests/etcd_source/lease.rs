//! Writes that end with their lease.

use std::{path::Path, time::Duration};

use gatepost_etcd_client::{EtcdClient, EtcdError};

use crate::{
    cases::Case,
    etcd::Cluster,
    setting::{place, runtime},
};

pub(crate) const CASES: &[Case] = &[("what_is_put_under_a_lease_ends_with_it", what_is_put_under_a_lease_ends_with_it)];

fn what_is_put_under_a_lease_ends_with_it(program: &Path) {
    let cluster = Cluster::start(program, 1);
    runtime().block_on(async {
        let client = EtcdClient::open(&place(cluster.urls()).access).await.unwrap();
        let kept = client.put("/live/kept", "x", None).await.unwrap();
        let lease = client.grant(Duration::from_secs(60)).await.unwrap();
        let put = client.put("/live/me", "here", Some(lease)).await.unwrap();
        assert!(put > kept);
        assert_eq!(client.keep_alive(lease).await, Ok(Duration::from_secs(60)));
        let both = client.get_prefix("/live/").await.unwrap();
        assert_eq!(both.pairs.iter().map(|pair| pair.mod_revision).collect::<Vec<_>>(), [kept, put]);
        assert_eq!(&*both.pairs[1].value, b"here");
        let summary = client.summary("/live/").await.unwrap();
        assert!(summary.has_same_content_as(&both.summary()), "{summary:?}");

        client.revoke(lease).await.unwrap();
        client.revoke(lease).await.expect("what is over may be ended");
        assert_eq!(client.get_prefix("/live/").await.unwrap().pairs.len(), 1);
        assert!(matches!(client.keep_alive(lease).await, Err(EtcdError::NoLease { .. })));
        assert!(matches!(client.put("/live/me", "x", Some(lease)).await, Err(EtcdError::NoLease { .. })));
        assert!(client.delete("/live/kept").await.unwrap() > put);
        assert_eq!(client.summary("/live/").await.unwrap().count, 0);
    });
}
