//! Processes attach as initializers: they claim a name over a stream, share the tasks of that name, and what they
//! answer becomes part of the object, or refuses it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{future::poll_fn, sync::Arc, time::Instant};

use bytes::{Buf, Bytes, BytesMut};
use gatepost::{
    front::{FrontLimits, Listener},
    live::Generation,
    review::{AdmissionDeps, Caller, Reasons, decide},
};
use gatepost_api::{Phase, Rope, Verdict};
use gatepost_base::memory::MemoryBudget;
use gatepost_wire::{
    inbound::view,
    outbound::framed,
    pb::{
        gatepost::v1::{
            Claim, Done, Heartbeat, InitializerAnswer, InitializerMessage, InitializerTask, Leave, SidecarMessage,
            initializer_answer::Outcome, initializer_message::Message as ToSidecar,
            sidecar_message::Message as FromSidecar,
        },
        k8s::io::{
            api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
            apimachinery::pkg::apis::meta::v1::Status,
        },
    },
};
use h2::{RecvStream, SendStream};
use prost::Message as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, time::timeout};

use crate::{
    front::{self, Caller as Connection, LONG, Sidecar, before, grpc, until},
    support::{
        gate::{caller, gate},
        reviews::{create_pod, message},
    },
};

pub(crate) const TOKEN: &str = "open sesame";

pub(crate) fn configured(initializers: &str) -> Arc<AdmissionDeps> {
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let yaml = format!(
        r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {{name: test}}
resourceInitializers:
- resource: pods
  initializers:
{initializers}
---
apiVersion: v1
kind: Namespace
metadata: {{name: shop, labels: {{team: red}}}}
"
    );
    gate(&yaml.replace("@TOKEN", &format!("attach: {{tokenSha256: ['{digest}']}}")), Reasons::First)
}

pub(crate) async fn serving(gate: &Arc<AdmissionDeps>) -> Sidecar {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    before(Arc::clone(gate), FrontLimits::default(), address, Listener::Tcp(listener))
}

pub(crate) async fn create(gate: &AdmissionDeps, request: AdmissionRequest) -> Verdict {
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase: Phase::Mutate, ..caller(LONG) }).await
}

/// One stream.
pub(crate) struct Instance {
    to: SendStream<Bytes>,
    from: RecvStream,
    buffer: BytesMut,
}

/// Message that has arrived, or the status with which the stream ended.
#[derive(Debug)]
pub(crate) enum Got {
    Message(FromSidecar),
    Ended(String),
}

impl Instance {
    /// Claims a name; the status where that is refused at once.
    async fn claim(sidecar: &Sidecar, name: &str, token: &str) -> Result<Self, String> {
        Self::claim_over(&front::caller(sidecar.address).await, name, token).await
    }

    /// The same over this connection.
    pub(crate) async fn claim_over(connection: &Connection, name: &str, token: &str) -> Result<Self, String> {
        let (response, mut to) = connection.begin(grpc("/gatepost.v1.Initializers/Attach")).await;
        let claim = Claim { name: name.into(), token: token.into(), window: 1 };
        send(&mut to, ToSidecar::Claim(claim));
        let response = timeout(LONG, response).await.unwrap().unwrap();
        if let Some(status) = response.headers().get("grpc-status") {
            return Err(status.to_str().unwrap().to_owned());
        }
        let mut instance = Self { to, from: response.into_body(), buffer: BytesMut::new() };
        assert!(matches!(instance.next().await, Got::Message(FromSidecar::Attached(attached)) if attached.window == 1));
        Ok(instance)
    }

    pub(crate) async fn next(&mut self) -> Got {
        loop {
            if self.buffer.len() >= 5 {
                let length = u32::from_be_bytes(self.buffer[1..5].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    let message = SidecarMessage::decode(self.buffer.split_to(length).freeze()).unwrap();
                    return Got::Message(message.message.unwrap());
                }
            }
            match timeout(LONG, poll_fn(|cx| self.from.poll_data(cx))).await.unwrap() {
                Some(data) => {
                    let data = data.unwrap();
                    self.from.flow_control().release_capacity(data.len()).unwrap();
                    self.buffer.extend_from_slice(&data);
                }
                None => {
                    let trailers = poll_fn(|cx| self.from.poll_trailers(cx)).await.unwrap().unwrap_or_default();
                    let status = trailers.get("grpc-status").map_or("", |status| status.to_str().unwrap());
                    return Got::Ended(status.to_owned());
                }
            }
        }
    }

    pub(crate) async fn task(&mut self) -> InitializerTask {
        match self.next().await {
            Got::Message(FromSidecar::Task(task)) => task,
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, message: ToSidecar) {
        send(&mut self.to, message);
    }

    pub(crate) fn answer(&mut self, task: u64, attempt: u32, outcome: Outcome) {
        self.say(ToSidecar::Answer(InitializerAnswer { task, attempt, outcome: Some(outcome) }));
    }
}

fn send(to: &mut SendStream<Bytes>, message: ToSidecar) {
    to.send_data(framed(&InitializerMessage { message: Some(message) }), false).unwrap();
}

fn label(key: &str, value: &str, add: &[&str]) -> Outcome {
    let patch = json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}]);
    Outcome::Done(Done { patch: patch.to_string().into(), add: add.iter().map(|&name| name.to_owned()).collect() })
}

fn object(task: &InitializerTask) -> Value {
    let request = task.review.clone().unwrap().request.unwrap();
    serde_json::from_slice(&request.object.unwrap().raw.unwrap()).unwrap()
}

#[tokio::test]
async fn initializer_gets_object_creator_and_namespace() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n  - {name: b.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut first = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let mut second = Instance::claim(&sidecar, "b.example.com", TOKEN).await.unwrap();
    let instances = async {
        let task = first.task().await;
        let request = task.review.clone().unwrap().request.unwrap();
        assert_eq!((task.attempt, request.user_info.unwrap().username()), (1, "ann"));
        assert_eq!(task.namespace_labels["team"], "red");
        assert!(task.milliseconds > 1000 && task.milliseconds <= 30_000, "{}", task.milliseconds);
        first.say(ToSidecar::Heartbeat(Heartbeat {}));
        first.answer(task.task, 1, label("a", "1", &[]));
        let task = second.task().await;
        assert_eq!(object(&task)["metadata"]["labels"]["a"], "1", "what those before it have made of it");
        second.answer(task.task, 1, label("b", "2", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), instances);
    assert_eq!(verdict.refusal, None);
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains(r#""a""#) && patch.contains(r#""b""#), "{patch}");
}

#[tokio::test]
async fn initializer_s_rejection_reaches_the_creator() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let refusing = async {
        let task = instance.task().await;
        let status =
            Status { code: Some(409), reason: Some("Full".into()), message: Some("no".into()), ..Status::default() };
        instance.answer(task.task, 1, Outcome::Fail(status));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), refusing);
    let refusal = verdict.refusal.unwrap();
    let named = "initializer \"a.example.com\" refused the object: no";
    assert_eq!((refusal.code, &*refusal.reason, &*refusal.message), (409, "Full", named), "also under Ignore");
    assert_eq!(&*refusal.causes[0].field, "a.example.com");
    assert_eq!(sidecar.metric("gatepost_requests_total{outcome=\"denied\"}"), 1.0, "nobody need be woken for it");
}

#[tokio::test]
async fn initializer_may_add_only_later_ones_of_its_resource() {
    let selector = "objectSelector: {matchLabels: {never: x}}";
    let more = format!("  - {{name: more.example.com, {selector}, builtIn: {{labels: {{more: '1'}}}}}}\n");
    let gate = configured(&format!("  - {{name: a.example.com, @TOKEN, failurePolicy: Fail}}\n{more}"));
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    for (add, code) in [("more.example.com", None), ("other.example.com", Some(500)), ("a.example.com", Some(500))] {
        let adding = async {
            let task = instance.task().await;
            instance.answer(task.task, 1, label("a", "1", &[add]));
        };
        let (verdict, ()) = tokio::join!(create(&gate, create_pod(add, 0)), adding);
        assert_eq!(verdict.refusal.map(|refusal| refusal.code), code, "{add}");
        if code.is_none() {
            assert!(String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap().contains("more"));
        }
    }
}

#[tokio::test]
async fn task_of_a_dead_instance_is_reassigned() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut first = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let dying = async {
        let task = first.task().await;
        let mut second = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
        drop(first);
        let again = second.task().await;
        assert_eq!((again.task, task.attempt, again.attempt), (task.task, 1, 2));
        // Another's attempt, and another object's task, do not count.
        second.answer(again.task, 1, label("wrong", "1", &[]));
        second.answer(again.task + 1, 2, label("wrong", "2", &[]));
        second.answer(again.task, 2, label("right", "3", &[]));
        second
    };
    let (verdict, _second) = tokio::join!(create(&gate, create_pod("u", 0)), dying);
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains("right") && !patch.contains("wrong"), "{patch}");
}

#[tokio::test]
async fn only_permitted_clients_claim_a_name() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n  - {name: b.example.com}\n");
    let sidecar = serving(&gate).await;
    for (name, token) in [
        ("a.example.com", ""),
        ("a.example.com", "guess"),
        ("b.example.com", TOKEN),
        ("c.example.com", TOKEN),
        ("", ""),
    ] {
        let refused = Instance::claim(&sidecar, name, token).await.err();
        assert_eq!(refused.as_deref(), Some("7"), "PERMISSION_DENIED: {name} {token}");
    }
}

#[tokio::test]
async fn malformed_instance_alone_is_disconnected() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut good = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    for (nonsense, code) in [
        (Bytes::from_static(&[0, 0, 0, 0, 2, 0xff, 0xff]), "3"),
        (Bytes::from_static(&[7, 0, 0, 0, 0]), "3"),
        (Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), "3"),
        (framed(&InitializerMessage { message: Some(ToSidecar::Claim(Claim::default())) }), "3"),
    ] {
        let mut bad = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
        bad.to.send_data(nonsense, false).unwrap();
        match bad.next().await {
            Got::Ended(status) => assert_eq!(status, code),
            text => panic!("{text:?}"),
        }
    }
    let answering = async {
        let task = good.task().await;
        good.answer(task.task, 1, label("a", "1", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), answering);
    assert!(verdict.patch.is_some());
}

#[tokio::test]
async fn a_patch_that_does_not_apply_is_the_initializers_failure() {
    let gate = configured("  - {name: a.example.com, @TOKEN, failurePolicy: Fail}\n");
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    for patch in
        ["secret", r#"[{"op":"replace","path":"/metadata/name","value":"x"}]"#, r#"[{"op":"remove","path":"/no"}]"#]
    {
        let answering = async {
            let task = instance.task().await;
            let done = Done { patch: Bytes::from_static(patch.as_bytes()), add: Vec::new() };
            instance.answer(task.task, 1, Outcome::Done(done));
        };
        let (verdict, ()) = tokio::join!(create(&gate, create_pod(&patch.len().to_string(), 0)), answering);
        let refusal = verdict.refusal.unwrap();
        assert_eq!(refusal.code, 500, "{patch}");
        assert!(!refusal.message.contains("secret"), "{}", refusal.message);
    }
}

#[tokio::test]
async fn a_dry_run_reaches_only_one_without_side_effects() {
    let gate =
        configured("  - {name: a.example.com, @TOKEN}\n  - {name: b.example.com, sideEffects: NoneOnDryRun, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let _silent = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let mut free = Instance::claim(&sidecar, "b.example.com", TOKEN).await.unwrap();
    let request = AdmissionRequest {
        dry_run: Some(true),
        user_info: Some(UserInfo { username: Some("ann".into()), ..UserInfo::default() }),
        ..create_pod("u", 0)
    };
    let answering = async {
        let task = free.task().await;
        free.answer(task.task, 1, label("b", "1", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, request), answering);
    assert_eq!(verdict.refusal, None);
    assert!(verdict.warnings[0].contains("\"a.example.com\" has side effects"), "{:?}", verdict.warnings);
}

#[tokio::test]
async fn leaving_instance_gets_no_tasks_and_drain_is_announced() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut leaving = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    leaving.say(ToSidecar::Leave(Leave {}));
    assert!(matches!(leaving.next().await, Got::Ended(status) if status == "0"));
    let mut staying = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let Sidecar { shutdown, current, .. } = sidecar;
    shutdown.send(()).unwrap();
    assert!(matches!(staying.next().await, Got::Message(FromSidecar::Draining(_))));
    assert!(matches!(staying.next().await, Got::Ended(status) if status == "14"));
    until("the name has no instance", || {
        current.hub().desk(|desk| desk.names()).iter().all(|name| name.instances == 0)
    })
    .await;
}

const SIDE_BY_SIDE: &str = "  - {name: a.example.com, parallel: true, failurePolicy: Fail, @TOKEN}\n  - {name: b.example.com, parallel: true, @TOKEN}\n  - {name: c.example.com, @TOKEN}\n";

#[tokio::test]
async fn those_that_touch_other_fields_run_side_by_side() {
    let gate = configured(SIDE_BY_SIDE);
    let sidecar = serving(&gate).await;
    let mut instances = Vec::new();
    for name in ["a", "b", "c"] {
        instances.push(Instance::claim(&sidecar, &format!("{name}.example.com"), TOKEN).await.unwrap());
    }
    let [a, b, c] = &mut instances[..] else { unreachable!() };
    let acting = async {
        // Both have it before either has answered, and the later answers first.
        let (first, second) = (a.task().await, b.task().await);
        b.answer(second.task, 1, label("b", "2", &[]));
        a.answer(first.task, 1, label("a", "1", &[]));
        let third = c.task().await;
        let labels = object(&third)["metadata"]["labels"].clone();
        assert_eq!((&labels["a"], &labels["b"]), (&"1".into(), &"2".into()));
        c.answer(third.task, 1, label("c", "3", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), acting);
    assert_eq!(verdict.refusal, None);

    // The same field: the later one is asked again, about what the first has made of it.
    let acting = async {
        let (first, second) = (a.task().await, b.task().await);
        b.answer(second.task, 1, label("x", "2", &[]));
        a.answer(first.task, 1, label("x", "1", &[]));
        let again = b.task().await;
        assert_eq!(object(&again)["metadata"]["labels"]["x"], "1");
        b.answer(again.task, 1, label("y", "2", &[]));
        let third = c.task().await;
        c.answer(third.task, 1, label("c", "3", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("v", 0)), acting);
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains(r#""x""#) && patch.contains(r#""y""#) && patch.contains(r#""c""#), "{patch}");

    // A refusal ends it, whoever has not answered.
    let refusing = async {
        let (first, second) = (a.task().await, b.task().await);
        b.answer(second.task, 1, Outcome::Fail(Status { message: Some("no".into()), ..Status::default() }));
        assert!(matches!(a.next().await, Got::Message(FromSidecar::Cancel(cancel)) if cancel.task == first.task));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("w", 0)), refusing);
    assert!(verdict.refusal.unwrap().message.ends_with(" refused the object: no"));
}

#[tokio::test]
async fn earlier_initializer_acts_while_later_ones_are_pending() {
    let gate = configured(SIDE_BY_SIDE);
    let sidecar = serving(&gate).await;
    let mut a = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let mut b = Instance::claim(&sidecar, "b.example.com", TOKEN).await.unwrap();
    let mut c = Instance::claim(&sidecar, "c.example.com", TOKEN).await.unwrap();
    let acting = async {
        let (first, second) = (a.task().await, b.task().await);
        a.answer(first.task, 1, label("a", "1", &[]));
        let changed = "gatepost_initializer_runs_total{initializer=\"a.example.com\",outcome=\"changed\"}";
        until("the answer counts, however long the other takes", || sidecar.metric(changed) == 1.0).await;
        b.answer(second.task, 1, label("b", "2", &[]));
        let third = c.task().await;
        c.answer(third.task, 1, label("c", "3", &[]));
    };
    // So large that it is patched beside the worker.
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 300_000)), acting);
    assert_eq!((verdict.refusal, verdict.warnings), (None, Vec::<String>::new()));
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains(r#""a""#) && patch.contains(r#""b""#), "{patch}");
}

#[tokio::test]
async fn a_review_that_not_every_reader_can_read_reaches_no_instance() {
    let gate = configured("  - {name: a.example.com, @TOKEN, failurePolicy: Fail}\n");
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let user_info =
        Some(UserInfo { username: Some("ann".into()), groups: vec!["no text".into()], ..UserInfo::default() });
    let framed = message(AdmissionRequest { user_info, ..create_pod("u", 0) });
    let mut bytes = framed.to_vec();
    let at = bytes.windows(7).position(|part| part == b"no text").unwrap();
    bytes[at] = 0xff;
    let review = view(Rope::new([bytes.into()])).expect("groups are not looked at");
    let refusal = decide(&gate, &review, &Caller { phase: Phase::Mutate, ..caller(LONG) }).await.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.reason), (500, "InternalError"));
    let answering = async {
        let task = instance.task().await;
        assert!(task.review.is_some(), "the first that it gets");
        instance.answer(task.task, 1, label("a", "1", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("v", 0)), answering);
    assert!(verdict.patch.is_some());
}

#[tokio::test]
async fn exhausted_memory_rejects_the_create() {
    let mut gate = Arc::into_inner(configured("  - {name: a.example.com, @TOKEN}\n")).unwrap();
    gate.memory = MemoryBudget::new(64);
    let refusal = create(&gate, create_pod("u", 0)).await.refusal.expect("also under Ignore");
    assert_eq!((refusal.code, &*refusal.reason, refusal.retry_after_seconds), (503, "ServiceUnavailable", 1));
    assert!(refusal.message.contains("\"a.example.com\"") && refusal.message.contains("was not created"));
}

#[tokio::test]
async fn a_name_is_vacant_since_the_configuration_that_names_it() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let vacant = |gate: &AdmissionDeps| {
        let names = gate.current.hub().desk(|desk| desk.names());
        names.iter().map(|name| (name.name.to_string(), name.vacant_since.unwrap())).collect::<Vec<_>>()
    };
    let before = vacant(&gate);
    assert_eq!(before.len(), 1);
    let both = configured("  - {name: a.example.com, @TOKEN}\n  - {name: b.example.com, @TOKEN}\n");
    let now = Instant::now();
    gate.current.publish(both.current.load());
    let after = vacant(&gate);
    assert_eq!((after.len(), &after[0], &*after[1].0), (2, &before[0], "b.example.com"));
    assert!(after[1].1 >= now);
}

#[tokio::test]
async fn a_request_that_comes_again_runs_nothing_twice() {
    let gate = configured("  - {name: a.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let answering = async {
        let task = instance.task().await;
        instance.answer(task.task, 1, label("a", "1", &[]));
        task.task
    };
    let (first, task) = tokio::join!(create(&gate, create_pod("u", 0)), answering);
    let again = create(&gate, create_pod("u", 0)).await;
    assert!(first.patch.is_some() && again.patch == first.patch, "answered by nobody: {:?}", again.refusal);
    // Another request about the same object, and the same request about another one, are asked about.
    let other = AdmissionRequest { object: create_pod("u", 500).object, ..create_pod("u", 0) };
    for request in [create_pod("v", 0), other] {
        let answering = async {
            let next = instance.task().await;
            assert!(next.task > task);
            instance.answer(next.task, 1, label("a", "2", &[]));
        };
        let (verdict, ()) = tokio::join!(create(&gate, request), answering);
        assert_ne!(verdict.patch, first.patch);
    }
}

#[tokio::test]
async fn metrics_show_instances_and_waiting_tasks() {
    let gate =
        configured("  - {name: a.example.com, failurePolicy: Fail, @TOKEN}\n  - {name: b.example.com, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let value = |metric: &str, name: &str| {
        sidecar.metric(&format!("gatepost_initializer_{metric}{{initializer=\"{name}.example.com\"}}"))
    };
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let _second = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let looking = async {
        let task = instance.task().await;
        assert_eq!((value("instances", "a"), value("holds", "a"), value("instances", "b")), (2.0, 1.0, 0.0));
        assert!(value("oldest_hold_seconds", "a") > 0.0 && value("unattended_seconds", "b") > 0.0);
        assert_eq!((value("oldest_hold_seconds", "b"), value("unattended_seconds", "a")), (0.0, 0.0));
        let seen = gatepost::live::attendance(&gate.current, Instant::now());
        assert_eq!((&*seen[0].name, seen[0].failure_policy.as_str(), seen[0].holds), ("a.example.com", "Fail", 1));
        instance.answer(task.task, 1, Outcome::Fail(Status::default()));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), looking);
    assert!(verdict.refusal.is_some());
    assert_eq!(value("holds", "a"), 0.0);
}

#[tokio::test]
async fn an_initializer_that_does_not_answer_is_late() {
    let gate = configured("  - {name: a.example.com, failurePolicy: Fail, timeout: 50ms, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut silent = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let refusal = create(&gate, create_pod("u", 0)).await.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.reason), (504, "Timeout"));
    let task = silent.task().await;
    assert!(matches!(silent.next().await, Got::Message(FromSidecar::Cancel(cancel)) if cancel.task == task.task));
    assert_eq!(gate.current.hub().desk(|desk| desk.task_count()), 0);
    // An answer after that is nobody's: neither of the request when it comes again, nor the end of the stream.
    silent.answer(task.task, 1, label("late", "1", &[]));
    let patient = configured("  - {name: a.example.com, failurePolicy: Fail, @TOKEN}\n").current.load();
    let patient = Generation { number: patient.number + 1, ..Arc::into_inner(patient).unwrap() };
    gate.current.publish(Arc::new(patient));
    let answering = async {
        let again = silent.task().await;
        assert_ne!(again.task, task.task);
        silent.answer(task.task, 1, label("late", "2", &[]));
        silent.answer(again.task, 1, label("right", "3", &[]));
    };
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), answering);
    let patch = String::from_utf8(verdict.patch.unwrap().to_vec()).unwrap();
    assert!(patch.contains("right") && !patch.contains("late"), "{patch}");
}

#[tokio::test]
async fn revoked_name_ends_its_stream() {
    let gate = configured("  - {name: a.example.com, failurePolicy: Fail, timeout: 1s, @TOKEN}\n");
    let sidecar = serving(&gate).await;
    let mut instance = Instance::claim(&sidecar, "a.example.com", TOKEN).await.unwrap();
    let taking_away = async {
        instance.task().await;
        let without_token = "  - {name: a.example.com, failurePolicy: Fail, timeout: 1s}\n";
        let other = configured(without_token).current.publish(gate.current.load());
        let mut other = Arc::into_inner(other).unwrap();
        other.number += 1;
        gate.current.publish(Arc::new(other));
        assert!(matches!(instance.next().await, Got::Ended(status) if status == "7"), "PERMISSION_DENIED");
        assert_eq!(gate.current.hub().desk(|desk| desk.task_count()), 1, "the object waits for another instance");
    };
    let began = Instant::now();
    let (verdict, ()) = tokio::join!(create(&gate, create_pod("u", 0)), taking_away);
    let refusal = verdict.refusal.unwrap();
    assert_eq!((refusal.code, &*refusal.reason), (504, "Timeout"));
    assert!(refusal.message.contains("a.example.com"), "{}", refusal.message);
    assert!(began.elapsed() < LONG / 2, "within the initializer's time, not the request's");
    assert_eq!(gate.current.hub().desk(|desk| desk.task_count()), 0);
}
