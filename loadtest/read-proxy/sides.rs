//! Sides: the two ways to the apiserver, taking turns.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{Method, StatusCode};
use serde::Serialize;

use super::objects::{LISTED, name};
use crate::{
    Fallible,
    apiserver::{
        cluster::Cluster,
        connection::{Connection, text},
    },
    generate::{histogram, record},
};

/// Direct access, and through the proxy.
#[derive(Debug)]
pub(super) struct Sides<'a> {
    pub(super) direct: &'a Cluster,
    pub(super) proxied: &'a Cluster,
}

/// Times of one repetition.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub(super) direct: Times,
    pub(super) proxied: Times,
}

/// Times of one side in one repetition.
#[derive(Debug, Serialize)]
pub(super) struct Times {
    /// Median in milliseconds.
    pub(super) p50_ms: f64,
    /// `[nanoseconds, requests]`, three significant digits
    histogram: Vec<(u64, u64)>,
}

impl Times {
    fn of(times: &Histogram<u64>) -> Self {
        let histogram = times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        Self { p50_ms: times.value_at_quantile(0.5) as f64 / 1e6, histogram }
    }
}

impl Sides<'_> {
    /// `reads` reads of `path` on either side in turn, `reps` times; the order alternates.
    pub(super) async fn read(&self, reps: usize, reads: usize, path: &str) -> Fallible<Vec<Pair>> {
        let mut pairs = Vec::with_capacity(reps);
        for number in 0..reps {
            let pair = if number % 2 == 0 {
                let direct = read(self.direct, reads, path).await?;
                Pair { direct, proxied: read(self.proxied, reads, path).await? }
            } else {
                let proxied = read(self.proxied, reads, path).await?;
                Pair { direct: read(self.direct, reads, path).await?, proxied }
            };
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

/// Reads one after another over a new connection, which a read of another object has warmed up. Each answer is as long as
/// the first, but for the digits of its version.
async fn read(cluster: &Cluster, reads: usize, path: &str) -> Fallible<Times> {
    let mut connection = Connection::open(cluster).await?;
    one(&mut connection, &format!("{LISTED}/{}", name(1))).await?;
    let (mut times, mut length) = (histogram()?, None);
    for _ in 0..reads {
        let (took, bytes) = one(&mut connection, path).await?;
        record(&mut times, took);
        if bytes.abs_diff(*length.get_or_insert(bytes)) > 8 {
            return Err(format!("VOID: {path}: answers of {length:?} and {bytes} bytes").into());
        }
    }
    Ok(Times::of(&times))
}

/// One read, to the end of its answer; and the answer's length.
async fn one(connection: &mut Connection, path: &str) -> Fallible<(Duration, usize)> {
    let start = Instant::now();
    let (status, body) = connection.ask(Method::GET, path, Bytes::new()).await?;
    let took = start.elapsed();
    match status {
        StatusCode::OK => Ok((took, body.len())),
        _ => Err(format!("{path}: {status} {}", text(&body)).into()),
    }
}
