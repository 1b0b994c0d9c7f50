//! `freshness.json`: a configuration that is fresh, or not, after a trace of reads.

use std::time::{Duration, Instant};

use gatepost::live::Current;
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    reads: Vec<Read>,
    asks: Vec<Ask>,
    /// Difference of 1.13: for people.
    #[serde(default, rename = "upstream")]
    _upstream: Option<String>,
}

/// A read of the configuration, in milliseconds; one without an end hangs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    start: u64,
    end: Option<u64>,
    good: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    at: u64,
    ready: bool,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    if case.reads.iter().any(|read| read.end.is_none_or(|end| end < read.start) && read.good) {
        return Err("not understood: a good read that does not end, or ends before it starts".into());
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let epoch = Instant::now();
    let at = |millis| epoch + Duration::from_millis(millis);
    for ask in &case.asks {
        let current = Current::with_clock(|| Duration::ZERO, epoch);
        let mut ended: Vec<_> = case.reads.iter().filter(|read| read.end.is_some_and(|end| end <= ask.at)).collect();
        ended.sort_by_key(|read| read.end);
        ended.iter().filter(|read| read.good).for_each(|read| current.freshness().stamp_awake(at(read.start)));
        equal(&format!("ready at {} ms", ask.at), current.freshness().is_fresh(at(ask.at)), ask.ready)?;
    }
    Ok(())
}
