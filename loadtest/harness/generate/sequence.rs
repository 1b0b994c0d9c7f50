//! Sequence: one review at a time, an exact number of them; what the allocations are counted with.

use std::time::Instant;

use super::{Settings, call::Caller, report, report::Report, watch::Watch};
use crate::Fallible;

pub(super) async fn run(settings: &Settings, callers: Vec<Caller>, count: usize) -> Fallible<Report> {
    let caller = callers.first().ok_or("no connection")?;
    for _ in 0..count.div_ceil(5) {
        caller.call().await?;
    }
    let mut latencies = report::histogram()?;
    let watch = Watch::new(settings);
    let (before, start) = (watch.read()?, Instant::now());
    for _ in 0..count {
        let sent = Instant::now();
        caller.call().await?;
        report::record(&mut latencies, sent.elapsed());
    }
    let (elapsed, used) = (start.elapsed(), watch.read()?.since(&before));
    Ok(Report::new(&latencies, elapsed, used))
}
