//! Cells: counters that cost two uncontended additions.
//!
//! Every worker has its own row on its own cache lines, so an addition never waits for another core. A row is one
//! counter per outcome and duration bucket: the number of calls by outcome, their count and the histogram are sums over
//! it, so that one record is one bucket and one sum, and nothing is counted twice.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crossbeam::utils::CachePadded;

use super::table::BOUNDS_NANOS;

/// Buckets of a histogram: one for each bound and one beyond the last.
pub(super) const BUCKETS: usize = BOUNDS_NANOS.len() + 1;

#[derive(Debug)]
struct Row<const OUTCOMES: usize> {
    counts: [[AtomicU64; BUCKETS]; OUTCOMES],
    nanos: [AtomicU64; OUTCOMES],
}

/// Counts and durations by outcome.
#[derive(Debug)]
pub(super) struct Cells<const OUTCOMES: usize> {
    rows: Box<[CachePadded<Row<OUTCOMES>>]>,
}

/// The sum of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums<const OUTCOMES: usize> {
    pub(super) counts: [[u64; BUCKETS]; OUTCOMES],
    pub(super) nanos: [u64; OUTCOMES],
}

impl<const OUTCOMES: usize> Cells<OUTCOMES> {
    /// One row for each worker, at least one.
    pub(super) fn new(workers: usize) -> Self {
        let row = || {
            CachePadded::new(Row {
                counts: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
                nanos: array::from_fn(|_| AtomicU64::new(0)),
            })
        };
        Self { rows: (0..workers.max(1)).map(|_| row()).collect() }
    }

    /// Something ended. A worker we have no row for shares the last one.
    #[inline]
    pub(super) fn record(&self, worker: usize, outcome: usize, took: Duration) {
        let row = &self.rows[worker.min(self.rows.len() - 1)];
        let nanos = took.as_nanos() as u64;
        let bucket = BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        row.counts[outcome][bucket].fetch_add(1, Relaxed);
        row.nanos[outcome].fetch_add(nanos, Relaxed);
    }

    /// Adds all rows up.
    pub(super) fn sums(&self) -> Sums<OUTCOMES> {
        let sum = |cell: &dyn Fn(&Row<OUTCOMES>) -> u64| self.rows.iter().map(|row| cell(row)).sum();
        Sums {
            counts: array::from_fn(|o| array::from_fn(|b| sum(&|row| row.counts[o][b].load(Relaxed)))),
            nanos: array::from_fn(|o| sum(&|row| row.nanos[o].load(Relaxed))),
        }
    }
}

impl<const OUTCOMES: usize> Sums<OUTCOMES> {
    /// Count of that outcome.
    pub(super) fn count(&self, outcome: usize) -> u64 {
        self.counts[outcome].iter().sum()
    }
}
