//! Records of entries that are taken over or given back: in the log, in the audit log, as Events, and in metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use gatepost_kube_support::KubeClient;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{EntryKey, EntryKind, MAX_ENTRIES, Reason, Sidecar};

/// Maximum number of queued Events: one for each entry that can be taken over. Further Events are dropped.
const MAX_QUEUED_EVENTS: usize = MAX_ENTRIES;
/// Timeout of writing one Event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// API path of Events of objects without a namespace.
pub const EVENTS_PATH: &str = "/api/v1/namespaces/default/events";
/// Minimum time between two log lines and Events of one given-back entry: others may keep writing our mark.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Recorder of entries that are taken over or given back.
#[derive(Debug)]
pub(crate) struct Recorder {
    sidecar: Arc<dyn Sidecar>,
    replica: String,
    events: mpsc::Sender<(KubeClient, Value)>,
    given_back: BTreeMap<EntryKey, Instant>,
}

impl Recorder {
    pub(crate) fn new(sidecar: Arc<dyn Sidecar>, replica: String) -> Self {
        let (events, mut queue) = mpsc::channel::<(KubeClient, Value)>(MAX_QUEUED_EVENTS);
        tokio::spawn(async move {
            while let Some((client, event)) = queue.recv().await {
                let error = match timeout(EVENT_TIMEOUT, client.create(EVENTS_PATH, &event)).await {
                    Ok(Ok(_)) => continue,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no answer from {}", client.server()),
                };
                tracing::debug!(error, "cannot write an Event about something that was taken over or given back");
            }
        });
        Self { sidecar, replica, events, given_back: BTreeMap::new() }
    }

    /// Records that an entry was taken over or, with a reason, given back. Without a client, no Event is written.
    pub(crate) fn record(&mut self, client: Option<&KubeClient>, key: &EntryKey, reason: Option<&Reason>, uid: &str) {
        let text = reason.map(ToString::to_string);
        let (entry, replica) = (key.to_string(), &self.replica);
        let noun = if key.kind.is_binding() { "policy" } else { "webhook" };
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.sidecar.audit(json!({
            "time_us": u64::try_from(time.as_micros()).unwrap_or(u64::MAX), noun: entry,
            "adoption": if text.is_none() { "taken" } else { "given_back" }, "reason": text, "replica": replica,
        }));
        self.given_back.retain(|_, at| at.elapsed() < REPEAT_INTERVAL);
        match &text {
            None => {
                self.given_back.remove(key);
                tracing::info!(entry, "taken over: {}", key.kind.taken());
            }
            Some(_) if self.given_back.insert(key.clone(), Instant::now()).is_some() => return,
            Some(reason) => tracing::warn!(entry, reason, "given back: {}", key.kind.given_back()),
        }
        let Some(client) = client else { return };
        let event = event(key, text.as_deref(), replica, uid);
        if self.events.try_send((client.clone(), event)).is_err() {
            tracing::warn!(entry, "too many Events are to be written; this one is not");
        }
    }
}

/// Returns the Event of an entry that was taken over or, with a reason, given back, by that replica or command.
pub fn event(key: &EntryKey, reason: Option<&str>, replica: &str, uid: &str) -> Value {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let noun = if key.kind.is_binding() { "Policy" } else { "Webhook" };
    let of_object = match key.kind {
        EntryKind::Webhook(_) => format!("webhook {}", key.name),
        EntryKind::Binding(_) => format!("policy {}", key.configuration),
    };
    let (what, level, message) = match reason {
        None => ("TakenOver", "Normal", format!("{of_object}: {}", key.kind.taken())),
        Some(reason) => ("GivenBack", "Warning", format!("{of_object}: {}: {reason}", key.kind.given_back())),
    };
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("gatepost-{}.{nanos:x}", key.id()), "namespace": "default"},
        "involvedObject": {"apiVersion": "admissionregistration.k8s.io/v1", "kind": key.kind.object_kind(),
            "name": key.object(), "uid": uid},
        "reason": format!("{noun}{what}"), "type": level, "message": message.chars().take(1000).collect::<String>(),
        "source": {"component": "gatepost", "host": replica}, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
    })
}

impl EntryKind {
    /// Returns what a takeover means, for logs and Events.
    const fn taken(self) -> &'static str {
        match self {
            Self::Webhook(_) => "Gatepost calls it, and the apiserver does not",
            Self::Binding(_) => "Gatepost decides by it, and the apiserver does not",
        }
    }

    /// Returns what giving back means, for logs and Events.
    const fn given_back(self) -> &'static str {
        match self {
            Self::Webhook(_) => "the apiserver calls it",
            Self::Binding(_) => "the apiserver decides by it",
        }
    }
}

/// Metrics of entries of others, as observed by this replica. Nothing is exposed before the first read.
#[derive(Debug, Default)]
pub struct AdoptionMetrics(Mutex<AdoptionFigures>);

/// Figures of entries of others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdoptionFigures {
    /// Numbers of webhooks and of bindings at the last read; `None` before the first.
    pub taken: Option<[TakenEntries; 2]>,
    /// Numbers of webhooks and of bindings left to the apiserver, each in the order of [`Reason::WORDS`]; `None` on
    /// replicas that do not lead.
    pub left: Option<[[usize; Reason::WORDS.len()]; 2]>,
    /// Time during which entries were called here and perhaps also by the apiserver, summed over the entries.
    pub overlap: Duration,
    /// Maximum time for which one entry has been called here and perhaps also by the apiserver.
    pub longest_overlap: Duration,
    /// Number of times that owners have dropped the mark.
    pub drops: u64,
}

/// Numbers of entries of others that carry our mark, at the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenEntries {
    /// Number of entries that this replica uses.
    pub used: usize,
    /// Number of entries that nobody may use.
    pub unused: usize,
}

impl AdoptionMetrics {
    /// Returns the figures.
    pub fn read(&self) -> AdoptionFigures {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the figures.
    pub fn update(&self, change: impl FnOnce(&mut AdoptionFigures)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use gatepost_api::HookType;

    use super::*;
    use crate::{AdoptionMetrics, EntryInForce, tests::apiserver_socket};

    /// A sidecar that keeps its audit lines.
    #[derive(Debug, Default)]
    struct FakeSidecar {
        metrics: AdoptionMetrics,
        lines: Mutex<Vec<Value>>,
    }

    impl Sidecar for FakeSidecar {
        fn entries_in_force(&self) -> Vec<EntryInForce> {
            Vec::new()
        }

        fn limit_read_age(&self, _: Option<Duration>) {}

        fn metrics(&self) -> &AdoptionMetrics {
            &self.metrics
        }

        fn audit(&self, line: Value) {
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    #[tokio::test]
    async fn every_taken_webhook_has_its_event() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        const MANY: usize = 50;
        let (listener, access, _folder) = apiserver_socket().await;
        let client = KubeClient::open(&access).await.unwrap();
        let mut recorder = Recorder::new(Arc::new(FakeSidecar::default()), "r".to_owned());
        for number in 0..MANY {
            let (configuration, name) = ("c".to_owned(), format!("w{number}"));
            let kind = EntryKind::Webhook(HookType::Validating);
            recorder.record(Some(&client), &EntryKey { kind, configuration, name }, None, "u");
        }
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut written) = (Vec::new(), 0);
        while written < MANY {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "after {written}");
            // One request has one object, and waits for its answer.
            if read.ends_with(b"}") {
                written += 1;
                read.clear();
                stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn webhook_given_back_without_a_client_has_its_audit_line() {
        let sidecar = Arc::new(FakeSidecar::default());
        let mut recorder = Recorder::new(Arc::clone(&sidecar) as Arc<dyn Sidecar>, "r".to_owned());
        let (configuration, name) = ("c".to_owned(), "w".to_owned());
        let key = EntryKey { kind: EntryKind::Webhook(HookType::Validating), configuration, name };
        recorder.record(None, &key, Some(&Reason::TooMany), "u");
        recorder.record(None, &key, None, "u");
        let lines = sidecar.lines.lock().unwrap().clone();
        let summary =
            |line: &Value| ["adoption", "webhook", "replica"].map(|key| line[key].as_str().unwrap().to_owned());
        assert_eq!(summary(&lines[0]), ["given_back", "validating/c/w", "r"]);
        assert_eq!(
            (lines[0]["reason"].as_str(), summary(&lines[1])[0].as_str()),
            (Some(&*Reason::TooMany.to_string()), "taken")
        );
    }
}
