//! The counters as OpenMetrics text. This file and the folder beside it alone use prometheus-client.

mod calls;
mod read_proxy;
mod samples;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode_registry},
    registry::Registry,
};

use self::samples::{build, by_outcome, counter, family, histogram};
use super::{
    AccessReviewOutcome, Attendance, DroppedReport, InitializerOutcome, Metrics, ReadOutcome, Reading, Refused,
    RequestOutcome, TlsReload, UnreadableObjects, faults, log,
    table::{self, Family},
};
use crate::adopt::Reason;

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    /// Everything as OpenMetrics text.
    pub fn render(self: &Arc<Self>) -> Result<String, fmt::Error> {
        rendered(Box::new(Scrape(Arc::clone(self))))
    }
}

/// Metrics of the collector, as OpenMetrics text.
fn rendered(collector: Box<dyn Collector>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(collector);
    let mut text = String::with_capacity(8192);
    encode_registry(&mut text, &registry)?;
    text.push_str("# EOF\n");
    Ok(text)
}

/// A value of one initializer.
type OfInitializer = fn(&Attendance) -> f64;

/// One pass over the counters.
#[derive(Debug)]
struct Scrape(Arc<Metrics>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        let encoder = &mut encoder;
        let requests = metrics.requests.sums();
        family(encoder, &table::REQUESTS, |out| by_outcome(out, &[], &RequestOutcome::LABELS, &requests))?;
        family(encoder, &table::REQUEST_DURATION, |out| histogram(out, &[], &requests, |_| true))?;
        family(encoder, &table::REFUSED, |out| {
            Refused::LABELS
                .iter()
                .zip(&metrics.refused)
                .try_for_each(|(reason, cell)| counter(out, &[("reason", reason)], cell.load(Relaxed)))
        })?;
        self.calls(encoder)?;
        let mutations = metrics.mutations.sums();
        family(encoder, &table::MUTATION_DURATION, |out| histogram(out, &[], &mutations, |_| true))?;
        family(encoder, &table::HOOK_WORKER_PANICS, |out| counter(out, &[], faults::hook_worker_panics()))?;
        family(encoder, &table::HOOK_STARVED_CONNECTIONS, |out| counter(out, &[], faults::starved_connections()))?;
        self.initializers(encoder)?;
        let reviews = metrics.access_reviews.sums();
        family(encoder, &table::ACCESS_REVIEWS, |out| by_outcome(out, &[], &AccessReviewOutcome::LABELS, &reviews))?;
        family(encoder, &table::ACCESS_REVIEW_DURATION, |out| {
            histogram(out, &[], &reviews, |outcome| outcome != AccessReviewOutcome::ABANDONED)
        })?;
        self.bypasses(encoder)?;
        family(encoder, &table::BREAK_GLASS_REQUESTS, |out| counter(out, &[], metrics.break_glass.load(Relaxed)))?;
        family(encoder, &table::OBJECT_BYTES_COPIED, |out| counter(out, &[], metrics.copied_bytes()))?;
        self.values(encoder, &[(&table::BREAK_GLASS_OPEN, Reading::BreakGlassOpen), (&table::HOOKS, Reading::Hooks)])?;
        family(encoder, &table::HOOKS_BY_STATE, |out| {
            let states = [
                ("active", Reading::HooksActive),
                ("unproven", Reading::HooksUnproven),
                ("moving", Reading::HooksMoving),
                ("probing", Reading::HooksProbing),
                ("draining", Reading::HooksDraining),
            ];
            self.by_label(out, "state", &states)
        })?;
        let values = [
            (&table::HOOKS_UNASKED, Reading::HooksUnasked),
            (&table::HOOKS_OVERDUE, Reading::HooksOverdue),
            (&table::REGISTRATION_UNCOVERED, Reading::RegistrationUncovered),
            (&table::STORED_UNFINISHED, Reading::StoredUnfinished),
            (&table::STORED_HOLDS, Reading::StoredHolds),
            (&table::INFLIGHT_REQUESTS, Reading::InflightRequests),
            (&table::INFLIGHT_LIMIT, Reading::MemoryLimit),
            (&table::OPEN_CONNECTIONS, Reading::OpenConnections),
            (&table::HOOK_CONNECTIONS, Reading::HookConnections),
            (&table::HOOK_CONNECTIONS_LIMIT, Reading::HookConnectionsLimit),
            (&table::NAMESPACES, Reading::Namespaces),
            (&table::NAMESPACES_AGE, Reading::NamespacesAge),
            (&table::ENDPOINTS_AGE, Reading::EndpointsAge),
            (&table::CONFIG_AGE, Reading::ConfigAge),
            (&table::CONFIG_GENERATION, Reading::ConfigGeneration),
            (&table::CONFIG_REJECTED, Reading::ConfigRejected),
            (&table::DOCUMENTS_HELD_BACK, Reading::DocumentsHeldBack),
            (&table::DOCUMENTS_LEFT_OUT, Reading::DocumentsLeftOut),
            (&table::CONFIG_FROM_LAST_GOOD, Reading::ConfigFromLastGood),
            (&table::LAST_GOOD_UNWRITTEN, Reading::LastGoodUnwritten),
        ];
        self.values(encoder, &values)?;
        family(encoder, &table::UNREADABLE_OBJECTS, |out| {
            UnreadableObjects::all().try_for_each(|(label, count)| counter(out, &[("objects", label)], count))
        })?;
        self.adoption(encoder)?;
        family(encoder, &table::INFLIGHT_BYTES, |out| {
            let purposes = [
                ("review", Reading::HeldForReviews),
                ("answer", Reading::HeldForAnswers),
                ("queue", Reading::HeldForQueues),
                ("verdict", Reading::HeldForVerdicts),
            ];
            self.by_label(out, "purpose", &purposes)
        })?;
        let reads = metrics.config_reads.sums();
        family(encoder, &table::CONFIG_READS, |out| by_outcome(out, &[], &ReadOutcome::LABELS, &reads))?;
        family(encoder, &table::CONFIG_READ_DURATION, |out| {
            histogram(out, &[], &reads, |outcome| outcome < ReadOutcome::GOOD)
        })?;
        self.tls(encoder)?;
        let lost = metrics.read(Reading::AuditLost).unwrap_or(0.0) as u64;
        family(encoder, &table::AUDIT_LOST, |out| counter(out, &[], lost))?;
        family(encoder, &table::BUILD_INFO, build)?;
        self.resources(encoder)?;
        self.log(encoder)
    }
}

impl Scrape {
    /// Values that others know, each a family of its own; those that nobody knows are left out.
    fn values(&self, encoder: &mut DescriptorEncoder<'_>, values: &[(&Family, Reading)]) -> fmt::Result {
        for (table, reading) in values {
            if let Some(value) = self.0.read(*reading) {
                family(encoder, table, |out| out.encode_gauge(&value))?;
            }
        }
        Ok(())
    }

    /// The same of one family, by the value of its label.
    fn by_label(&self, out: &mut MetricEncoder<'_>, label: &str, values: &[(&str, Reading)]) -> fmt::Result {
        values.iter().try_for_each(|(labelled, reading)| match self.0.read(*reading) {
            Some(value) => out.encode_family(&[(label, *labelled)])?.encode_gauge(&value),
            None => Ok(()),
        })
    }

    /// Webhooks that were taken over, where any are looked after.
    fn adoption(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let adoption = self.0.adoption();
        let Some(webhooks) = adoption.webhooks() else { return Ok(()) };
        family(encoder, &table::ADOPTED, |out| out.encode_gauge(&(webhooks.called as f64)))?;
        family(encoder, &table::ADOPTED_UNCALLED, |out| out.encode_gauge(&(webhooks.uncalled as f64)))?;
        if let Some(left) = adoption.left() {
            family(encoder, &table::NOT_ADOPTED, |out| {
                Reason::WORDS.iter().zip(left).try_for_each(|(word, count)| {
                    out.encode_family(&[("reason", *word)])?.encode_gauge(&(count as f64))
                })
            })?;
        }
        let overlap = adoption.overlap_seconds();
        family(encoder, &table::ADOPTION_OVERLAP, |out| out.encode_counter::<NoLabelSet, _, u64>(&overlap, None))?;
        family(encoder, &table::ADOPTION_OVERLAP_LONGEST, |out| out.encode_gauge(&adoption.longest_overlap_seconds()))?;
        family(encoder, &table::ADOPTION_DROPS, |out| counter(out, &[], adoption.drops()))
    }

    /// Our own TLS files, and certificates.
    fn tls(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.0;
        family(encoder, &table::TLS_RELOADS, |out| {
            TlsReload::LABELS
                .iter()
                .zip(&metrics.tls_reloads)
                .try_for_each(|(outcome, cell)| counter(out, &[("outcome", outcome)], cell.load(Relaxed)))
        })?;
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

    /// The log.
    fn log(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &table::LOG_LOST, |out| counter(out, &[], log::lost()))
    }

    /// Resources that the process uses.
    fn resources(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = self.0.read(Reading::ProcessCpu) {
            family(encoder, &table::PROCESS_CPU, |out| out.encode_counter::<NoLabelSet, _, u64>(&seconds, None))?;
        }
        let values = [
            (&table::PROCESS_RESIDENT, Reading::ProcessResident),
            (&table::PROCESS_VIRTUAL, Reading::ProcessVirtual),
            (&table::PROCESS_OPEN_FDS, Reading::ProcessOpenFiles),
            (&table::PROCESS_MAX_FDS, Reading::ProcessMostFiles),
            (&table::PROCESS_START, Reading::ProcessStart),
        ];
        self.values(encoder, &values)
    }

    /// Turns of initializers.
    fn initializers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.initializers().into_iter().map(|(name, one)| (name, one.cells().sums())).collect();
        family(encoder, &table::INITIALIZER_RUNS, |out| {
            let labels = &InitializerOutcome::LABELS;
            all.iter().try_for_each(|(name, sums)| by_outcome(out, &[("initializer", name)], labels, sums))
        })?;
        family(encoder, &table::INITIALIZER_DURATION, |out| {
            all.iter().try_for_each(|(name, sums)| histogram(out, &[("initializer", name)], sums, |_| true))
        })?;
        let attended = self.0.attendance();
        let gauges: [(&Family, OfInitializer); 4] = [
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
        family(encoder, &table::STORED_REPORTS_DROPPED, |out| {
            let dropped = DroppedReport::LABELS.iter().zip(&self.0.dropped_reports);
            dropped.into_iter().try_for_each(|(reason, cell)| counter(out, &[("reason", reason)], cell.load(Relaxed)))
        })
    }

    fn bypasses(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(encoder, &table::BYPASSED_REQUESTS, |out| {
            for (name, bypass) in self.0.bypasses() {
                for (effect, count) in bypass.counts().filter(|(_, count)| *count > 0) {
                    counter(out, &[("bypass", &name), ("effect", effect.as_str())], count)?;
                }
            }
            let ours = self.0.own_configuration.load(Relaxed);
            counter(out, &[("bypass", "own-configuration"), ("effect", "Skip")], ours)
        })
    }
}
