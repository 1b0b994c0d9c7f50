//! Burst: an exact number of reviews, all sent at once.

use std::time::Instant;

use futures_util::future::try_join_all;

use super::{Settings, call::Caller, report, report::Report, watch::Watch};
use crate::Fallible;

pub(super) async fn run(settings: &Settings, callers: Vec<Caller>, count: usize) -> Fallible<Report> {
    let watch = Watch::new(settings);
    let (before, start) = (watch.read()?, Instant::now());
    let calls = callers.iter().cycle().take(count).map(|caller| async move {
        let sent = Instant::now();
        caller.call().await?;
        Fallible::Ok(sent.elapsed())
    });
    let took = try_join_all(calls).await?;
    let (elapsed, used) = (start.elapsed(), watch.read()?.since(&before));
    let mut latencies = report::histogram()?;
    took.into_iter().for_each(|latency| report::record(&mut latencies, latency));
    Ok(Report::new(&latencies, elapsed, used))
}
