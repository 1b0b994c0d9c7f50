//! Metrics as OpenMetrics text. Only this file and its submodule use prometheus-client.

mod read_proxy;

pub use read_proxy::render_read_proxy;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode_registry},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use super::{
    AccessReviewOutcome, Attendance, DroppedReport, HookMetrics, HookOutcome, InitializerOutcome, Metrics,
    PolicyMetrics, PolicyOutcome, ReadOutcome, Reading, RefusalReason, RequestOutcome, ShadowDrop, ShadowMetrics,
    TlsReload, UnmetConditions, UnreadableObjects,
    hook::{BUCKETS, DroppedAnnotation, Repeat, Sums},
    log, reading,
    table::{self, BOUNDS_NANOS, Family, MetricKind},
};
use gatepost_adopt::Reason;
use gatepost_api::{FailureKind, HookType};

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    /// Returns all metrics as OpenMetrics text.
    pub fn render(self: &Arc<Self>) -> Result<String, fmt::Error> {
        rendered(Box::new(Scrape(Arc::clone(self))))
    }
}

/// Returns the metrics of the collector as OpenMetrics text.
fn rendered(collector: Box<dyn Collector>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(collector);
    let mut text = String::with_capacity(8192);
    encode_registry(&mut text, &registry)?;
    text.push_str("# EOF\n");
    Ok(text)
}

/// Value of a gauge for one initializer.
type AttendanceGauge = fn(&Attendance) -> f64;

/// Collector of the metrics, for one scrape.
#[derive(Debug)]
struct Scrape(Arc<Metrics>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        let encoder = &mut encoder;
        let requests = metrics.requests.sums();
        family(encoder, &table::REQUESTS, |out| by_outcome(out, &[], &RequestOutcome::LABELS, &requests))?;
        family(encoder, &table::REQUEST_DURATION, |out| histogram(out, &[], &requests, |_| true))?;
        counters(encoder, &table::REFUSED, &RefusalReason::LABELS, &metrics.refused)?;
        self.calls(encoder)?;
        let mutations = metrics.mutations.sums();
        family(encoder, &table::MUTATION_DURATION, |out| histogram(out, &[], &mutations, |_| true))?;
        family(encoder, &table::HOOK_WORKER_PANICS, |out| counter(out, &[], reading::hook_worker_panics()))?;
        family(encoder, &table::HOOK_STARVED_CONNECTIONS, |out| counter(out, &[], reading::starved_connections()))?;
        self.policies(encoder)?;
        self.initializers(encoder)?;
        let reviews = metrics.access_reviews.sums();
        family(encoder, &table::ACCESS_REVIEWS, |out| by_outcome(out, &[], &AccessReviewOutcome::LABELS, &reviews))?;
        family(encoder, &table::ACCESS_REVIEW_DURATION, |out| {
            histogram(out, &[], &reviews, |outcome| outcome != AccessReviewOutcome::Abandoned as usize)
        })?;
        self.bypasses(encoder)?;
        family(encoder, &table::BREAK_GLASS_REQUESTS, |out| counter(out, &[], metrics.break_glass.load(Relaxed)))?;
        counters(encoder, &table::HELD_REQUESTS, &["timeout", "in_force"], &metrics.held)?;
        family(encoder, &table::OBJECT_BYTES_COPIED, |out| counter(out, &[], metrics.copied_bytes()))?;
        self.readings_from(encoder, &table::BREAK_GLASS_OPEN, &table::UNREADABLE_OBJECTS)?;
        counters(encoder, &table::UNREADABLE_OBJECTS, &UnreadableObjects::LABELS, &reading::UNREADABLE)?;
        self.adoption(encoder)?;
        self.readings(encoder, &table::INFLIGHT_BYTES)?;
        let reads = metrics.config_reads.sums();
        family(encoder, &table::CONFIG_READS, |out| by_outcome(out, &[], &ReadOutcome::LABELS, &reads))?;
        family(encoder, &table::CONFIG_READ_DURATION, |out| {
            histogram(out, &[], &reads, |outcome| outcome < ReadOutcome::GOOD)
        })?;
        self.tls(encoder)?;
        let lost = metrics.readings.get(Reading::AuditLost).unwrap_or(0.0) as u64;
        family(encoder, &table::AUDIT_LOST, |out| counter(out, &[], lost))?;
        family(encoder, &table::BUILD_INFO, build)?;
        self.resources(encoder)?;
        self.log(encoder)
    }
}

impl Scrape {
    /// Encodes gauges of one family that have sources, by the value of the label if there is one. Omits a gauge without
    /// a label that has no value.
    fn readings(&self, encoder: &mut DescriptorEncoder<'_>, table: &Family) -> fmt::Result {
        let values: Vec<_> = self.0.readings.of(table).collect();
        if values.is_empty() && table.labels.is_empty() {
            return Ok(());
        }
        family(encoder, table, |out| {
            values.iter().try_for_each(|(label, value)| match table.labels.first() {
                Some(name) => out.encode_family(&[(*name, *label)])?.encode_gauge(value),
                None => out.encode_gauge(value),
            })
        })
    }

    /// Encodes the readings of all families from `first` to that before `end`, in the order of the table.
    fn readings_from(&self, encoder: &mut DescriptorEncoder<'_>, first: &Family, end: &Family) -> fmt::Result {
        let families = table::ALL.iter().skip_while(|one| *one != first).take_while(|one| *one != end);
        families.into_iter().try_for_each(|one| self.readings(encoder, one))
    }

    /// Encodes metrics of adopted webhooks and policies, if adoption is in use.
    fn adoption(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let adoption = self.0.adoption().read();
        let Some(taken) = adoption.taken else { return Ok(()) };
        let families = [
            (&table::ADOPTED, &table::ADOPTED_UNCALLED, &table::NOT_ADOPTED),
            (&table::ADOPTED_POLICIES, &table::ADOPTED_POLICIES_UNUSED, &table::NOT_ADOPTED_POLICIES),
        ];
        for (index, (used, unused, not_adopted)) in families.into_iter().enumerate() {
            family(encoder, used, |out| out.encode_gauge(&(taken[index].used as f64)))?;
            family(encoder, unused, |out| out.encode_gauge(&(taken[index].unused as f64)))?;
            let Some(left) = adoption.left else { continue };
            family(encoder, not_adopted, |out| {
                Reason::WORDS.iter().zip(left[index]).try_for_each(|(word, count)| {
                    out.encode_family(&[("reason", *word)])?.encode_gauge(&(count as f64))
                })
            })?;
        }
        let (overlap, longest) = (adoption.overlap.as_secs_f64(), adoption.longest_overlap.as_secs_f64());
        family(encoder, &table::ADOPTION_OVERLAP, |out| out.encode_counter::<NoLabelSet, _, u64>(&overlap, None))?;
        family(encoder, &table::ADOPTION_OVERLAP_LONGEST, |out| out.encode_gauge(&longest))?;
        family(encoder, &table::ADOPTION_DROPS, |out| counter(out, &[], adoption.drops))
    }

    /// Encodes metrics of our own TLS files and certificates.
    fn tls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        counters(encoder, &table::TLS_RELOADS, &TlsReload::LABELS, &metrics.tls_reloads)?;
        let now = SystemTime::now();
        family(encoder, &table::CERTIFICATE_EXPIRY, |out| {
            metrics.ends().iter().try_for_each(|(certificate, end)| {
                let left = match end.duration_since(now) {
                    Ok(left) => left.as_secs_f64(),
                    Err(over) => -over.duration().as_secs_f64(),
                };
                out.encode_family(&[("certificate", certificate.as_str())])?.encode_gauge(&left)
            })
        })
    }

    /// Encodes metrics of the log.
    fn log(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &table::LOG_LOST, |out| counter(out, &[], log::lost()))
    }

    /// Encodes the resources that the process uses.
    fn resources(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = self.0.readings.get(Reading::ProcessCpu) {
            family(encoder, &table::PROCESS_CPU, |out| out.encode_counter::<NoLabelSet, _, u64>(&seconds, None))?;
        }
        self.readings_from(encoder, &table::PROCESS_RESIDENT, &table::LOG_LOST)
    }

    /// Encodes decisions of policies.
    fn policies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sums = |(hook_type, name, one): (HookType, Arc<str>, Arc<PolicyMetrics>)| {
            (name, type_label(hook_type), one.evaluations.sums())
        };
        let all: Vec<_> = self.0.policies().map(sums).collect();
        family(encoder, &table::POLICY_DECISIONS, |out| {
            all.iter().try_for_each(|(name, hook_type, sums)| {
                by_outcome(out, &[("policy", name), ("type", hook_type)], &PolicyOutcome::LABELS, sums)
            })
        })?;
        family(encoder, &table::POLICY_DURATION, |out| {
            all.iter().try_for_each(|(name, hook_type, sums)| {
                histogram(out, &[("policy", name), ("type", hook_type)], sums, |_| true)
            })
        })?;
        family(encoder, &table::POLICY_SHADOW_DECISIONS, |out| {
            self.0.policies().try_for_each(|(hook_type, name, one)| {
                by_shadow_outcome(out, [("policy", &name), ("type", type_label(hook_type))], &one.shadow)
            })
        })?;
        family(encoder, &table::CANARY_COMPARISONS, |out| {
            let mut each = |kind, name: &str, hook_type, shadow: &ShadowMetrics| {
                let all = shadow.comparisons();
                let any = all.iter().any(|(_, count)| *count > 0);
                let label = type_label(hook_type);
                all.iter().filter(|_| any).try_for_each(|(result, count)| {
                    counter(out, &[("canary", name), ("kind", kind), ("type", label), ("result", result)], *count)
                })
            };
            self.0
                .hooks()
                .into_iter()
                .try_for_each(|(hook_type, name, one)| each("hook", &name, hook_type, &one.shadow))?;
            self.0.policies().try_for_each(|(hook_type, name, one)| each("policy", &name, hook_type, &one.shadow))
        })?;
        counters(encoder, &table::SHADOW_DROPPED, &ShadowDrop::LABELS, &self.0.shadow_dropped)
    }

    /// Encodes turns and attendance of initializers.
    fn initializers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.initializers.all().into_iter().map(|(name, one)| (name, one.turns.sums())).collect();
        family(encoder, &table::INITIALIZER_RUNS, |out| {
            let labels = &InitializerOutcome::LABELS;
            all.iter().try_for_each(|(name, sums)| by_outcome(out, &[("initializer", name)], labels, sums))
        })?;
        family(encoder, &table::INITIALIZER_DURATION, |out| {
            all.iter().try_for_each(|(name, sums)| histogram(out, &[("initializer", name)], sums, |_| true))
        })?;
        let attended = self.0.attendance();
        let gauges: [(&Family, AttendanceGauge); 4] = [
            (&table::INITIALIZER_INSTANCES, |one| one.instances as f64),
            (&table::INITIALIZER_HOLDS, |one| one.holds as f64),
            (&table::INITIALIZER_OLDEST_HOLD, |one| one.oldest.unwrap_or_default().as_secs_f64()),
            (&table::INITIALIZER_UNATTENDED, |one| one.unattended.unwrap_or_default().as_secs_f64()),
        ];
        for (table, value) in gauges {
            family(encoder, table, |out| {
                attended
                    .iter()
                    .try_for_each(|one| out.encode_family(&[("initializer", &*one.name)])?.encode_gauge(&value(one)))
            })?;
        }
        counters(encoder, &table::STORED_REPORTS_DROPPED, &DroppedReport::LABELS, &self.0.dropped_reports)
    }

    fn bypasses(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &table::BYPASSED_REQUESTS, |out| {
            for (name, bypass) in self.0.bypasses.all() {
                for (effect, count) in bypass.counts().filter(|(_, count)| *count > 0) {
                    counter(out, &[("bypass", &name), ("effect", effect.as_str())], count)?;
                }
            }
            let ours = self.0.own_configuration.load(Relaxed);
            counter(out, &[("bypass", "own-configuration"), ("effect", "Skip")], ours)
        })
    }
}

/// Encodes the head of a family, then its samples. prometheus-client expects the name without unit and `_total`.
fn family(
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

/// Encodes one sample of a counter.
fn counter(out: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    if labels.is_empty() {
        return out.encode_counter::<NoLabelSet, _, u64>(&value, None);
    }
    out.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// Encodes a family of counters, one for each value of its only label.
fn counters(encoder: &mut DescriptorEncoder<'_>, table: &Family, labels: &[&str], cells: &[AtomicU64]) -> fmt::Result {
    let name = table.labels.first().copied().unwrap_or_default();
    family(encoder, table, |out| {
        labels.iter().zip(cells).try_for_each(|(label, cell)| counter(out, &[(name, label)], cell.load(Relaxed)))
    })
}

/// Encodes the only sample of the build information.
fn build(out: &mut MetricEncoder<'_>) -> fmt::Result {
    let (version, arch, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    out.encode_family(&[("version", version), ("arch", arch), ("os", os)])?.encode_gauge(&1)
}

/// Encodes a hook's counts by cause, without zeros.
fn by_cause(
    out: &mut MetricEncoder<'_>,
    [name, hook_type]: [(&str, &str); 2],
    causes: &[&str],
    cells: &[AtomicU64],
) -> fmt::Result {
    let counts = causes.iter().zip(cells).map(|(cause, cell)| (cause, cell.load(Relaxed)));
    counts
        .filter(|(_, count)| *count > 0)
        .try_for_each(|(cause, count)| counter(out, &[name, hook_type, ("cause", cause)], count))
}

/// Encodes the counts of a hook or policy in shadow; none if it never was.
fn by_shadow_outcome(
    out: &mut MetricEncoder<'_>,
    [name, type_of]: [(&str, &str); 2],
    shadow: &ShadowMetrics,
) -> fmt::Result {
    if shadow.counts().all(|(_, count)| count == 0) {
        return Ok(());
    }
    shadow.counts().try_for_each(|(outcome, count)| counter(out, &[name, type_of, ("outcome", outcome)], count))
}

/// Encodes a sample of a counter for each outcome.
fn by_outcome<const N: usize>(
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

/// Encodes a histogram over the outcomes for which `counts` returns true.
fn histogram<const N: usize>(
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

impl Scrape {
    /// Encodes metrics of hooks.
    fn calls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let hooks: Vec<_> = self.0.hooks().into_iter().map(HookSums::of).collect();
        let mut each = |table: &Family, sample: &dyn Fn(&mut MetricEncoder<'_>, &HookSums) -> fmt::Result| {
            family(encoder, table, |out| hooks.iter().try_for_each(|hook| sample(out, hook)))
        };
        each(&table::HOOK_CALLS, &|out, hook| by_outcome(out, &hook.labels(), &HookOutcome::LABELS, &hook.sums))?;
        each(&table::HOOK_CALL_FAILURES, &|out, hook| {
            let [name, hook_type] = hook.labels();
            for (kind, cells) in FailureKind::ALL.iter().zip(&hook.counters.failures) {
                for (policy, cell) in ["Ignore", "Fail"].iter().zip(cells) {
                    // Only nonzero counts: otherwise 24 zeros for each of hundreds of hooks would hide them.
                    let count = cell.load(Relaxed);
                    if count > 0 {
                        counter(out, &[name, hook_type, ("kind", kind.as_str()), ("policy", policy)], count)?;
                    }
                }
            }
            Ok(())
        })?;
        each(&table::HOOK_REJECTIONS, &|out, hook| {
            hook.counters.rejections.all().iter().try_for_each(|(operation, cause, code, count)| {
                let what = [("operation", *operation), ("cause", *cause), ("code", &**code)];
                counter(out, &[&hook.labels()[..], &what].concat(), *count)
            })
        })?;
        let count = |cell: fn(&HookMetrics) -> &AtomicU64| {
            move |out: &mut MetricEncoder<'_>, hook: &HookSums| {
                counter(out, &hook.labels(), cell(&hook.counters).load(Relaxed))
            }
        };
        each(&table::HOOK_FAIL_OPEN, &|out, hook| counter(out, &hook.labels(), hook.sums.count(HookOutcome::OPEN)))?;
        each(&table::HOOK_UNASKED, &count(|hook| &hook.skipped_unproven))?;
        each(&table::HOOK_CALLS_IN_VAIN, &|out, hook| match hook.hook_type {
            HookType::Mutating => counter(out, &hook.labels(), hook.counters.discarded.load(Relaxed)),
            HookType::Validating => Ok(()),
        })?;
        each(&table::HOOK_SHADOW_CALLS, &|out, hook| by_shadow_outcome(out, hook.labels(), &hook.counters.shadow))?;
        each(&table::HOOK_CONDITION_EXCLUSIONS, &count(|hook| &hook.unmet[UnmetConditions::False as usize]))?;
        each(&table::HOOK_CONDITION_ERRORS, &count(|hook| &hook.unmet[UnmetConditions::Error as usize]))?;
        each(&table::HOOK_CONDITION_DURATION, &|out, hook| match hook.counters.conditions.get() {
            Some(evaluations) => histogram(out, &hook.labels(), &evaluations.sums(), |_| true),
            None => Ok(()),
        })?;
        // Only nonzero counts, as above.
        each(&table::HOOK_REPEATED_CALLS, &|out, hook| {
            by_cause(out, hook.labels(), &Repeat::LABELS, &hook.counters.repeats)
        })?;
        each(&table::HOOK_ANNOTATIONS_DROPPED, &|out, hook| {
            by_cause(out, hook.labels(), &DroppedAnnotation::LABELS, &hook.counters.annotations_dropped)
        })?;
        each(&table::HOOK_DURATION, &|out, hook| {
            histogram(out, &hook.labels(), &hook.sums, |outcome| outcome != HookOutcome::CANCELLED)
        })?;
        each(&table::HOOK_TIMEOUT, &|out, hook| match hook.counters.timeout() {
            Some(timeout) => out.encode_family(&hook.labels().as_slice())?.encode_gauge(&timeout.as_secs_f64()),
            None => Ok(()),
        })
    }
}

/// Hook with the sums of its metrics.
struct HookSums {
    hook_type: HookType,
    name: Arc<str>,
    sums: Sums<{ HookOutcome::LABELS.len() }>,
    counters: Arc<HookMetrics>,
}

impl HookSums {
    fn of((hook_type, name, counters): (HookType, Arc<str>, Arc<HookMetrics>)) -> Self {
        Self { hook_type, name, sums: counters.calls.sums(), counters }
    }

    fn labels(&self) -> [(&str, &str); 2] {
        [("hook", &self.name), ("type", type_label(self.hook_type))]
    }
}

/// Returns the value of the label `type`.
fn type_label(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "validating",
        HookType::Mutating => "mutating",
    }
}
