//! Turn: one engine with Pods of one size, measured once.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::engine::Engine;
use crate::{Fallible, apiserver::writers::WriteResults, generate::histogram, size::Size};

/// The first line of `repetitions.csv`.
pub(super) const HEADER: &str = "size,engine,repetition,writes,seconds,p50_us,p99_us,apiserver_cpu_us_per_write,\
                                 engine_cpu_us_per_write,rss_started_mib,rss_mib\n";

/// User and system time in microseconds a write.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cpu {
    pub(super) apiserver: f64,
    pub(super) engine: f64,
}

impl Cpu {
    /// Of both together.
    pub(super) fn sum(self) -> f64 {
        self.apiserver + self.engine
    }
}

/// Resident memory of the engine in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    /// Once it was started, and had decided the Pods of the check
    pub(super) started: f64,
    /// After the writes
    pub(super) loaded: f64,
}

/// Measurement of one engine; every write was let through.
#[derive(Debug, Serialize)]
pub(super) struct Turn {
    pub(super) engine: Engine,
    pub(super) size: Size,
    number: usize,
    seconds: f64,
    pub(super) cpu_us_per_write: Cpu,
    pub(super) rss_mib: Memory,
    /// `[nanoseconds, writes]`, two significant digits
    histogram: Vec<(u64, u64)>,
    #[serde(skip)]
    pub(super) latencies: Histogram<u64>,
}

impl Turn {
    /// Of these writes; `cpu` in seconds.
    pub(super) fn new(
        (engine, size, number): (Engine, Size, usize),
        written: WriteResults,
        cpu: Cpu,
        rss_mib: Memory,
    ) -> Fallible<Self> {
        let mut coarse: Histogram<u64> = Histogram::new_with_bounds(1, 120_000_000_000, 2)?;
        coarse.add(&written.latencies)?;
        let micros = 1e6 / written.latencies.len().max(1) as f64;
        Ok(Self {
            engine,
            size,
            number,
            seconds: written.elapsed.as_secs_f64(),
            cpu_us_per_write: Cpu { apiserver: cpu.apiserver * micros, engine: cpu.engine * micros },
            rss_mib,
            histogram: coarse.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect(),
            latencies: written.latencies,
        })
    }

    /// As a line of `repetitions.csv`.
    pub(super) fn csv(&self) -> String {
        let Self { size, number, seconds, latencies, cpu_us_per_write: cpu, rss_mib: rss, .. } = self;
        let [p50, p99] = [0.5, 0.99].map(|quantile| latencies.value_at_quantile(quantile) as f64 / 1e3);
        format!(
            "{size},{},{number},{},{seconds:.3},{p50:.0},{p99:.0},{:.1},{:.1},{:.1},{:.1}\n",
            self.engine.as_str(),
            latencies.len(),
            cpu.apiserver,
            cpu.engine,
            rss.started,
            rss.loaded
        )
    }
}

/// Latencies of several turns together.
pub(super) fn latencies<'a>(turns: impl Iterator<Item = &'a Turn>) -> Fallible<Histogram<u64>> {
    let mut all = histogram()?;
    for turn in turns {
        all.add(&turn.latencies)?;
    }
    Ok(all)
}
