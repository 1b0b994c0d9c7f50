//! Repetition: one variant, measured once.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{variant::Variant, writers::WriteResults};
use crate::{Fallible, size::Size};

/// The first line of `repetitions.csv`.
pub(super) const HEADER: &str = "cell,size,hooks,variant,repetition,writes,seconds,writes_per_s,p50_us,p99_us,p999_us,\
                                 apiserver_cpu_us_per_write,sidecar_cpu_us_per_write,hooks_cpu_us_per_write,calls_per_write\n";

/// User and system time; in seconds, or in microseconds a write.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cpu {
    pub(super) apiserver: f64,
    pub(super) sidecar: f64,
    pub(super) hooks: f64,
}

impl Cpu {
    /// Usage between `before` and this.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            apiserver: self.apiserver - before.apiserver,
            sidecar: self.sidecar - before.sidecar,
            hooks: self.hooks - before.hooks,
        }
    }

    /// Divided by so many of whatever it is to be for.
    pub(super) fn per(self, number: f64) -> Self {
        Self { apiserver: self.apiserver / number, sidecar: self.sidecar / number, hooks: self.hooks / number }
    }

    /// CPU time that variants are compared by: the apiserver's and the sidecar's, without the hooks' own.
    pub(super) fn counted(&self) -> f64 {
        self.apiserver + self.sidecar
    }
}

/// Writes of one repetition, all let through, after every right hook was asked as often as it should be.
#[derive(Debug, Serialize)]
pub(super) struct Repetition {
    pub(super) variant: Variant,
    number: usize,
    pub(super) seconds: f64,
    cpu_us_per_write: Cpu,
    /// Calls of hooks a write
    pub(super) calls: f64,
    /// `[nanoseconds, writes]`, two significant digits
    histogram: Vec<(u64, u64)>,
    #[serde(skip)]
    pub(super) latencies: Histogram<u64>,
}

impl Repetition {
    pub(super) fn new(variant: Variant, number: usize, written: WriteResults, cpu: Cpu, calls: f64) -> Fallible<Self> {
        let mut coarse: Histogram<u64> = Histogram::new_with_bounds(1, 120_000_000_000, 2)?;
        coarse.add(&written.latencies)?;
        Ok(Self {
            variant,
            number,
            seconds: written.elapsed.as_secs_f64(),
            cpu_us_per_write: cpu.per(written.latencies.len().max(1) as f64 / 1e6),
            calls,
            histogram: coarse.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect(),
            latencies: written.latencies,
        })
    }

    /// Microseconds a write.
    pub(super) fn cpu(&self) -> Cpu {
        self.cpu_us_per_write
    }

    /// Latency in milliseconds at a quantile.
    pub(super) fn at(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e6
    }

    /// As a line of `repetitions.csv`.
    pub(super) fn csv(&self, name: &str, (size, hooks): (Size, usize)) -> String {
        let Self { number, seconds, calls, .. } = self;
        let (variant, writes) = (self.variant.as_str(), self.latencies.len());
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| self.at(quantile) * 1e3);
        let Cpu { apiserver, sidecar, hooks: by_hooks } = self.cpu();
        format!(
            "{name},{size},{hooks},{variant},{number},{writes},{seconds:.3},{:.1},{p50:.0},{p99:.0},{p999:.0},\
             {apiserver:.1},{sidecar:.1},{by_hooks:.1},{calls:.2}\n",
            writes as f64 / seconds
        )
    }
}
