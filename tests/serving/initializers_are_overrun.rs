//! Far more new objects than may be held, and an initializer that dies while it has them.
#![allow(clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{sync::Arc, time::Duration};

use gatepost::review::{Caller, decide};
use gatepost_api::{Phase, Rope, StatusInfo};
use gatepost_initializers::hub::ToInstance;
use gatepost_wire::inbound::view;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    initializers_attach::configured,
    support::{
        gate::caller,
        reviews::{create_pod, message},
    },
};

/// Objects held at once for one name.
const HELD: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn creators_get_answers_if_a_busy_initializer_dies() {
    for (policy, objects, code) in [("Fail", 10_000, Some(504)), ("Ignore", 2_000, None)] {
        let gate = configured(&format!("  - {{name: a.example.com, failurePolicy: {policy}, @TOKEN}}\n"));
        let hub = Arc::clone(gate.current.hub());
        let name: Arc<str> = "a.example.com".into();
        let mut instance = hub.attach(&name, 64, Instant::now().into_std()).unwrap();
        let mut creating = JoinSet::new();
        for object in 0..objects {
            let gate = Arc::clone(&gate);
            creating.spawn(async move {
                let review = view(Rope::new([message(create_pod(&object.to_string(), 0))])).unwrap();
                let mutate = Caller { phase: Phase::Mutate, ..caller(Duration::from_secs(30)) };
                decide(&gate, &review, &mutate).await
            });
        }
        let mut shed: Vec<StatusInfo> = Vec::new();
        while shed.len() < objects - HELD {
            let verdict = creating.join_next().await.unwrap().unwrap();
            shed.push(verdict.refusal.unwrap());
        }
        let told = |status: &StatusInfo| (status.code, status.reason.to_string(), status.retry_after_seconds >= 1);
        assert!(shed.iter().all(|status| told(status) == (429, "TooManyRequests".to_owned(), true)), "{policy}");
        assert_eq!((hub.desk(|desk| desk.task_count()), creating.len()), (HELD, HELD), "{policy}");
        assert!(matches!(instance.recv().await, Some(ToInstance::Task { attempt: 1, .. })), "{policy}");

        let died = Instant::now();
        drop(instance);
        while let Some(verdict) = creating.join_next().await {
            let verdict = verdict.unwrap();
            assert_eq!(verdict.refusal.map(|refusal| refusal.code), code, "{policy}");
            assert_eq!(verdict.warnings.len(), usize::from(code.is_none()), "the creator is told: {policy}");
        }
        assert_eq!(hub.desk(|desk| desk.task_count()), 0, "{policy}");
        assert!(died.elapsed() <= Duration::from_secs(11), "nobody waits for longer than the name lapses: {policy}");
    }
}
