//! Writers: a closed loop, or a fixed rate; each with its connection and one write under way.

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
pub(crate) struct Writers<'a> {
    cluster: &'a Cluster,
    path: &'static str,
    /// Time from one write to the next of all writers together; none in a closed loop.
    interval: Option<Duration>,
}

/// Results of the writes; every one of them was let through.
#[derive(Debug)]
pub(crate) struct WriteResults {
    pub(crate) latencies: Histogram<u64>,
    pub(crate) elapsed: Duration,
}

/// Writes that are still to be made, and what those before took.
#[derive(Debug)]
struct Course<'a> {
    path: &'static str,
    object: &'a Bytes,
    start: Instant,
    interval: Option<Duration>,
    count: usize,
    begun: Cell<usize>,
    latencies: RefCell<Histogram<u64>>,
}

impl<'a> Writers<'a> {
    /// Writers of ConfigMaps in a closed loop.
    pub(super) fn to(cluster: &'a Cluster) -> Self {
        Self { cluster, path: object::PATH, interval: None }
    }

    /// Writers that POST to `path`, `rate` times a second. A latency counts from the moment a write should have begun.
    pub(crate) fn paced(cluster: &'a Cluster, path: &'static str, rate: u32) -> Self {
        Self { cluster, path, interval: Some(Duration::from_secs(1) / rate.max(1)) }
    }

    /// `count` writes of `object` by `writers` writers. Returns when none is under way any more. Each writer has a new
    /// connection, opened before time is taken: an apiserver closes those that idle while others are measured.
    pub(crate) async fn write(&self, object: &Bytes, writers: usize, count: usize) -> Fallible<WriteResults> {
        let mut connections = try_join_all((0..writers).map(|_| Connection::open(self.cluster))).await?;
        let Self { path, interval, .. } = *self;
        let (start, begun, latencies) = (Instant::now(), Cell::new(0), RefCell::new(histogram()?));
        let course = Course { path, object, start, interval, count, begun, latencies };
        try_join_all(connections.iter_mut().map(|connection| keep_writing(connection, &course))).await?;
        Ok(WriteResults { elapsed: start.elapsed(), latencies: course.latencies.into_inner() })
    }
}

async fn keep_writing(connection: &mut Connection, course: &Course<'_>) -> Fallible<()> {
    loop {
        let number = course.begun.get();
        if number >= course.count {
            return Ok(());
        }
        course.begun.set(number + 1);
        let mut start = Instant::now();
        if let Some(interval) = course.interval {
            start = course.start + interval * u32::try_from(number)?;
            tokio::time::sleep_until(start.into()).await;
        }
        one(connection, course).await?;
        record(&mut course.latencies.borrow_mut(), start.elapsed());
    }
}

/// One write, read to the end of its answer; an error unless the object was taken.
async fn one(connection: &mut Connection, course: &Course<'_>) -> Fallible<()> {
    let (status, mut body) = connection.send(Method::POST, course.path, course.object.clone()).await?;
    if status != StatusCode::CREATED {
        let said = body.collect().await?.to_bytes();
        return Err(format!("a write was not let through: {status} {}", text(&said)).into());
    }
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
