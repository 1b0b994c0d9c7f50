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

use super::{api::text, cluster::Cluster, connection::Connection, object};
use crate::{
    Fallible,
    generate::{histogram, record},
};

/// The connections; how many of them write is said each time.
#[derive(Debug)]
pub(super) struct Writers(Vec<Connection>);

/// What so many writes came to; every one of them was let through.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) latencies: Histogram<u64>,
    pub(super) elapsed: Duration,
}

impl Writers {
    pub(super) async fn connect(cluster: &Cluster, count: usize) -> Fallible<Self> {
        Ok(Self(try_join_all((0..count).map(|_| Connection::open(cluster))).await?))
    }

    /// `count` writes of `object` by `writers` writers. Returns when none is under way any more.
    pub(super) async fn write(&mut self, object: &Bytes, writers: usize, count: usize) -> Fallible<Written> {
        let (left, latencies) = (Cell::new(count), RefCell::new(histogram()?));
        let start = Instant::now();
        let writers = self.0.iter_mut().take(writers);
        try_join_all(writers.map(|connection| keep_writing(connection, object, &left, &latencies))).await?;
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
