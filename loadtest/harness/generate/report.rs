//! Report: result of one run of the generator, as it is kept in the result folder.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{Counts, watch::Used};
use crate::Fallible;

/// One run. Latencies in nanoseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Reviews answered inside the window, all of them allowed but those that expired
    pub(crate) reviews: u64,
    /// Reviews that the sidecar gave up at their deadline
    #[serde(default)]
    pub(crate) expired: u64,
    /// Length of the window
    pub(crate) seconds: f64,
    /// Reviews a second
    pub(crate) rate: f64,
    /// CPU of the watched process per review, user and system together
    pub(crate) cpu_us_per_review: Option<f64>,
    /// Allocations of the watched process inside the window
    pub(crate) counts: Option<Counts>,
    /// Latency percentiles for reading; the histogram is what is computed with
    pub(crate) latency_ns: Latency,
    /// The whole histogram: `[nanoseconds, reviews]`, three significant digits
    pub(crate) histogram: Vec<(u64, u64)>,
}

/// The usual percentiles.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Latency {
    mean: f64,
    min: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Report {
    pub(super) fn new(latencies: &Histogram<u64>, elapsed: Duration, used: Used) -> Self {
        let (reviews, seconds) = (latencies.len(), elapsed.as_secs_f64());
        let at = |quantile| latencies.value_at_quantile(quantile);
        Self {
            reviews,
            expired: 0,
            seconds,
            rate: reviews as f64 / seconds,
            cpu_us_per_review: used.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / reviews.max(1) as f64),
            counts: used.counts,
            latency_ns: Latency {
                mean: latencies.mean(),
                min: latencies.min(),
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: latencies.max(),
            },
            histogram: latencies
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        }
    }
}

impl Report {
    /// Median latency in nanoseconds.
    pub(crate) fn p50(&self) -> f64 {
        self.latency_ns.p50 as f64
    }

    /// 99th percentile of latency in nanoseconds.
    pub(crate) fn p99(&self) -> f64 {
        self.latency_ns.p99 as f64
    }

    /// Adds every latency to `all`.
    pub(crate) fn add_to(&self, all: &mut Histogram<u64>) -> Fallible<()> {
        for (latency, reviews) in &self.histogram {
            all.record_n(*latency, *reviews)?;
        }
        Ok(())
    }
}

/// An empty histogram of nanoseconds up to two minutes, three significant digits.
pub(crate) fn histogram() -> Fallible<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 120_000_000_000, 3)?)
}

/// Records one latency; what took longer than two minutes took two minutes.
pub(crate) fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}
