//! Samples of a metric family, as prometheus-client takes them.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use crate::telemetry::{
    cells::{BUCKETS, Sums},
    table::{BOUNDS_NANOS, Family, MetricKind},
};

/// Writes the head of a family, then its samples. prometheus-client wants the name without unit and `_total`.
pub(super) fn family(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    samples: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    let (kind, name) = match family.kind {
        MetricKind::Counter => (MetricType::Counter, family.name.trim_end_matches("_total")),
        MetricKind::Gauge => (MetricType::Gauge, family.name),
        MetricKind::Histogram => (MetricType::Histogram, family.name),
    };
    let unit = [Unit::Seconds, Unit::Bytes]
        .into_iter()
        .find_map(|unit| Some((name.strip_suffix(unit.as_str())?.strip_suffix('_')?, unit)));
    let (name, unit) = match &unit {
        Some((bare, unit)) => (*bare, Some(unit)),
        None => (name, None),
    };
    samples(&mut encoder.encode_descriptor(name, family.help, unit, kind)?)
}

/// One sample of a counter.
pub(super) fn counter(out: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    if labels.is_empty() {
        return out.encode_counter::<NoLabelSet, _, u64>(&value, None);
    }
    out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// A family of counters, one for each value of its only label.
pub(super) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    table: &Family,
    labels: &[&str],
    cells: &[AtomicU64],
) -> fmt::Result {
    let name = table.labels.first().copied().unwrap_or_default();
    family(encoder, table, |out| {
        labels.iter().zip(cells).try_for_each(|(label, cell)| counter(out, &[(name, label)], cell.load(Relaxed)))
    })
}

/// The one sample of a build's information.
pub(super) fn build(out: &mut MetricEncoder<'_>) -> fmt::Result {
    let (version, arch, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    out.encode_family(&[("version", version), ("arch", arch), ("os", os)])?.encode_gauge(&1)
}

/// A hook's counts by cause; zeros are left out.
pub(super) fn by_cause<'a>(
    out: &mut MetricEncoder<'_>,
    [name, hook_type]: [(&str, &str); 2],
    causes: impl Iterator<Item = (&'a &'static str, &'a AtomicU64)>,
) -> fmt::Result {
    for (cause, count) in causes.map(|(cause, cell)| (cause, cell.load(Relaxed))).filter(|(_, count)| *count > 0) {
        counter(out, &[name, hook_type, ("cause", cause)], count)?;
    }
    Ok(())
}

/// A sample of a counter for each outcome.
pub(super) fn by_outcome<const N: usize>(
    out: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    outcomes: &[&str; N],
    sums: &Sums<N>,
) -> fmt::Result {
    outcomes.iter().enumerate().try_for_each(|(index, outcome)| {
        let mut labels = labels.to_vec();
        labels.push(("outcome", outcome));
        counter(out, &labels, sums.count(index))
    })
}

/// The histogram over the outcomes that count.
pub(super) fn histogram<const N: usize>(
    out: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    sums: &Sums<N>,
    counts: impl Fn(usize) -> bool,
) -> fmt::Result {
    let mut buckets = [(f64::INFINITY, 0); BUCKETS];
    for (bucket, bound) in buckets.iter_mut().zip(BOUNDS_NANOS) {
        bucket.0 = bound as f64 / 1e9;
    }
    let (mut nanos, mut count) = (0, 0);
    for outcome in (0..N).filter(|outcome| counts(*outcome)) {
        nanos += sums.nanos[outcome];
        for (bucket, n) in buckets.iter_mut().zip(sums.counts[outcome]) {
            bucket.1 += n;
            count += n;
        }
    }
    let seconds = nanos as f64 / 1e9;
    if labels.is_empty() {
        return out.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None);
    }
    out.encode_family(&labels)?.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
}
