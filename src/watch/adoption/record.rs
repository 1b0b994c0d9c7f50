//! Record: one webhook that is taken over or given back, in the log, the audit log, and an Event.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    adopt::{Reason, WebhookKey},
    kube::KubeClient,
    telemetry::Audit,
};

/// Most Events that are being written at once, in the background; further ones are dropped.
const EVENTS: usize = 32;
/// A webhook that is given back again within so long, with nothing in between, is no news: somebody else writes our
/// condition over and over.
const AGAIN: Duration = Duration::from_secs(60);

/// Recorder of webhooks that are taken over or given back.
#[derive(Debug)]
pub(super) struct Recorder {
    audit: Arc<Audit>,
    replica: String,
    events: JoinSet<()>,
    given_back: BTreeMap<WebhookKey, Instant>,
}

impl Recorder {
    pub(super) fn new(audit: Arc<Audit>, replica: String) -> Self {
        Self { audit, replica, events: JoinSet::new(), given_back: BTreeMap::new() }
    }

    /// Records that a webhook was taken over or, with a reason, given back; without a client, there is no Event.
    pub(super) fn record(&mut self, client: Option<&KubeClient>, key: &WebhookKey, reason: Option<&Reason>, uid: &str) {
        let text = reason.map(ToString::to_string);
        let (webhook, replica) = (key.to_string(), &self.replica);
        if self.audit.enabled() {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let line = json!({
                "time_us": u64::try_from(time.as_micros()).unwrap_or(u64::MAX), "webhook": webhook,
                "adoption": if text.is_none() { "taken" } else { "given_back" }, "reason": text, "replica": replica,
            });
            self.audit.push(line.to_string().into_bytes());
        }
        self.given_back.retain(|_, at| at.elapsed() < AGAIN);
        match &text {
            None => {
                self.given_back.remove(key);
                tracing::info!(webhook, "taken over: Gatepost calls it, and the apiserver does not");
            }
            Some(_) if self.given_back.insert(key.clone(), Instant::now()).is_some() => return,
            Some(reason) => tracing::warn!(webhook, reason, "given back: the apiserver calls it"),
        }
        while self.events.try_join_next().is_some() {}
        let Some(client) = client.filter(|_| self.events.len() < EVENTS) else { return };
        let (client, event) = (client.clone(), event(key, text.as_deref(), replica, uid));
        self.events.spawn(async move {
            if let Err(error) = client.create("/api/v1/namespaces/default/events", &event).await {
                tracing::debug!(%error, "cannot write an Event of a webhook that was taken over or given back");
            }
        });
    }
}

fn event(key: &WebhookKey, reason: Option<&str>, replica: &str, uid: &str) -> Value {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let (what, kind, message) = match reason {
        None => ("WebhookTakenOver", "Normal", format!("Gatepost calls webhook {} from now on", key.webhook)),
        Some(reason) => {
            ("WebhookGivenBack", "Warning", format!("the apiserver calls webhook {} again: {reason}", key.webhook))
        }
    };
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("gatepost-{}.{nanos:x}", key.id()), "namespace": "default"},
        "involvedObject": {"apiVersion": "admissionregistration.k8s.io/v1", "kind": WebhookKey::kind(key.hook_type),
            "name": key.configuration, "uid": uid},
        "reason": what, "type": kind, "message": message.chars().take(1000).collect::<String>(),
        "source": {"component": "gatepost", "host": replica}, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use crate::model::HookType;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_is_given_back_has_its_line_in_the_audit_log_without_a_client_too() {
        let sink = Sink::default();
        let audit = Arc::new(Audit::to_sink(sink.clone()).unwrap());
        let mut recorder = Recorder::new(Arc::clone(&audit), "r".to_owned());
        let (configuration, webhook) = ("c".to_owned(), "w".to_owned());
        let key = WebhookKey { hook_type: HookType::Validating, configuration, webhook };
        recorder.record(None, &key, Some(&Reason::TooMany), "u");
        recorder.record(None, &key, None, "u");
        audit.close();
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told = |line: &Value| ["adoption", "webhook", "replica"].map(|key| line[key].as_str().unwrap().to_owned());
        assert_eq!(told(&lines[0]), ["given_back", "validating/c/w", "r"]);
        assert_eq!(
            (lines[0]["reason"].as_str(), told(&lines[1])[0].as_str()),
            (Some(&*Reason::TooMany.to_string()), "taken")
        );
    }
}
