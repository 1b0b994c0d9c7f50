//! Writers: a closed loop, each with its connection and one write under way.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use http::{Method, StatusCode};
use http_body_util::BodyExt;

use super::{
    cluster::Cluster,
    connection::{Connection, text},
    object,
};
use crate::{
    Fallible,
    generate::{histogram, record},
};

/// Writers to one apiserver.
#[derive(Debug)]
pub(super) struct Writers<'a>(&'a Cluster);

/// Results of the writes; every one of them was let through.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) latencies: Histogram<u64>,
    pub(super) elapsed: Duration,
}

impl<'a> Writers<'a> {
    pub(super) fn to(cluster: &'a Cluster) -> Self {
        Self(cluster)
    }

    /// `count` writes of `object` by `writers` writers. Returns when none is under way any more. Each writer has a new
    /// connection, opened before time is taken: an apiserver closes those that idle while others are measured.
    pub(super) async fn write(&self, object: &Bytes, writers: usize, count: usize) -> Fallible<Written> {
        let (left, latencies) = (Cell::new(count), RefCell::new(histogram()?));
        let mut connections = try_join_all((0..writers).map(|_| Connection::open(self.0))).await?;
        let start = Instant::now();
        try_join_all(connections.iter_mut().map(|connection| keep_writing(connection, object, &left, &latencies)))
            .await?;
        Ok(Written { elapsed: start.elapsed(), latencies: latencies.into_inner() })
    }
}

async fn keep_writing(
    connection: &mut Connection,
    object: &Bytes,
    left: &Cell<usize>,
    latencies: &RefCell<Histogram<u64>>,
) -> Fallible<()> {
    while left.get() > 0 {
        left.set(left.get() - 1);
        let start = Instant::now();
        one(connection, object).await?;
        record(&mut latencies.borrow_mut(), start.elapsed());
    }
    Ok(())
}

/// One write, read to the end of its answer; an error unless the object was taken.
async fn one(connection: &mut Connection, object: &Bytes) -> Fallible<()> {
    let (status, mut body) = connection.send(Method::POST, object::PATH, object.clone()).await?;
    if status != StatusCode::CREATED {
        let said = body.collect().await?.to_bytes();
        return Err(format!("a write was not let through: {status} {}", text(&said)).into());
    }
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
