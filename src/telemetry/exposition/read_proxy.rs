//! Metrics of a read proxy as OpenMetrics text.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder},
};

use super::{Scrape, build, counter, counters as labelled_counters, family, rendered};
use gatepost_read_proxy::metrics::{
    ProxyHoldEnd, ProxyLoad, ProxyOutcome, ProxyQuestion, ProxyRefused, QuestionEnd, ReadProxyMetrics,
};

use crate::telemetry::{
    Metrics,
    table::{Family, read_proxy as table},
};

/// Returns the metrics of a read proxy, its current load, and the metrics of any process, as OpenMetrics text.
///
/// # Errors
/// Returns the errors of the encoder.
pub fn render_read_proxy(
    counters: &Arc<ReadProxyMetrics>,
    load: ProxyLoad,
    process: &Arc<Metrics>,
) -> Result<String, fmt::Error> {
    let process = Scrape(Arc::clone(process));
    rendered(Box::new(ProxyScrape { counters: Arc::clone(counters), load, process }))
}

/// Collector of the metrics of a read proxy, for one scrape.
#[derive(Debug)]
struct ProxyScrape {
    counters: Arc<ReadProxyMetrics>,
    load: ProxyLoad,
    process: Scrape,
}

impl Collector for ProxyScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counters, load, encoder) = (&self.counters, &self.load, &mut encoder);
        labelled_counters(encoder, &table::REQUESTS, &ProxyOutcome::LABELS, &counters.requests)?;
        labelled_counters(encoder, &table::REFUSED, &ProxyRefused::LABELS, &counters.refused)?;
        gauge(encoder, &table::HOLDS, load.holds.0)?;
        gauge(encoder, &table::HOLDS_LIMIT, load.holds.1)?;
        family(encoder, &table::OLDEST_HOLD, |out| {
            out.encode_gauge(&load.oldest_hold.unwrap_or_default().as_secs_f64())
        })?;
        labelled_counters(encoder, &table::HOLD_ENDS, &ProxyHoldEnd::LABELS, &counters.hold_ends)?;
        family(encoder, &table::INSPECTED, |out| by_purpose(out, load.read.0, load.written.0))?;
        family(encoder, &table::INSPECTED_LIMIT, |out| by_purpose(out, load.read.1, load.written.1))?;
        family(encoder, &table::QUESTIONS, |out| {
            for (question, cells) in ProxyQuestion::LABELS.iter().zip(&counters.questions) {
                for (outcome, cell) in QuestionEnd::LABELS.iter().zip(cells) {
                    counter(out, &[("question", question), ("outcome", outcome)], cell.load(Relaxed))?;
                }
            }
            Ok(())
        })?;
        gauge(encoder, &table::QUESTIONS_ASKED, load.questions.0)?;
        gauge(encoder, &table::QUESTIONS_WAITING, load.waiting)?;
        gauge(encoder, &table::QUESTIONS_LIMIT, load.questions.1)?;
        gauge(encoder, &table::CONNECTIONS, counters.connections.load(Relaxed))?;
        gauge(encoder, &table::CONNECTIONS_LIMIT, load.max_connections)?;
        family(encoder, &table::HANDSHAKE_FAILURES, |out| {
            counter(out, &[], counters.handshake_failures.load(Relaxed))
        })?;
        family(encoder, &table::UPSTREAM_FAILURES, |out| {
            let refused = |reason: ProxyRefused| counters.refused[reason as usize].load(Relaxed);
            let kinds = [
                ("connect", refused(ProxyRefused::Unreachable)),
                ("lost", refused(ProxyRefused::Lost)),
                ("own", counters.own_failures.load(Relaxed)),
            ];
            kinds.into_iter().try_for_each(|(kind, count)| counter(out, &[("kind", kind)], count))
        })?;
        family(encoder, &table::BUILD_INFO, build)?;
        self.process.tls(encoder)?;
        self.process.resources(encoder)?;
        self.process.log(encoder)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, table: &Family, value: usize) -> fmt::Result {
    family(encoder, table, |out| out.encode_gauge(&(value as f64)))
}

fn by_purpose(out: &mut MetricEncoder<'_>, read: usize, written: usize) -> fmt::Result {
    [("read", read), ("write", written)]
        .into_iter()
        .try_for_each(|(purpose, bytes)| out.encode_family(&[("purpose", purpose)])?.encode_gauge(&(bytes as f64)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::{Reading, table};

    #[test]
    fn every_family_of_the_proxy_is_exposed_and_no_other() {
        let process = Arc::new(Metrics::new(1));
        Reading::ALL.into_iter().for_each(|reading| process.observe(reading, || Some(1.0)));
        let counters = Arc::new(ReadProxyMetrics::default());
        drop(counters.begin(ProxyOutcome::Refused(ProxyRefused::Lost)));
        let mut hold = counters.begin(ProxyHoldEnd::Abandoned);
        hold.end = ProxyHoldEnd::TimedOut;
        drop(hold);
        drop(counters.begin((ProxyQuestion::Access, QuestionEnd::No)));
        let load = ProxyLoad { holds: (3, 8), oldest_hold: Some(Duration::from_millis(1500)), ..ProxyLoad::default() };
        let text = render_read_proxy(&counters, load, &process).expect("text");
        let exposed: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .map(|line| line.replace(" counter", "_total").replace(" gauge", ""))
            .collect();
        let families = table::read_proxy::ALL.iter().chain(&table::SHARED_WITH_THE_PROXY);
        assert_eq!(exposed, families.map(|family| family.name).collect::<Vec<_>>());
        for line in [
            "gatepost_read_proxy_requests_total{outcome=\"refused\"} 1",
            "gatepost_read_proxy_requests_total{outcome=\"abandoned\"} 0",
            "gatepost_read_proxy_refused_total{reason=\"lost\"} 1",
            "gatepost_read_proxy_upstream_failures_total{kind=\"lost\"} 1",
            "gatepost_read_proxy_hold_ends_total{end=\"timed_out\"} 1",
            "gatepost_read_proxy_hold_ends_total{end=\"abandoned\"} 0",
            "gatepost_read_proxy_questions_total{question=\"access\",outcome=\"no\"} 1",
            "gatepost_read_proxy_holds 3.0",
            "gatepost_read_proxy_holds_limit 8.0",
            "gatepost_read_proxy_oldest_hold_seconds 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
