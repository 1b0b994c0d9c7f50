//! An apiserver that stores unfinished objects, at the front: what a read shows, what a write charges, how a hold ends, and
//! what is corrected of the objects that it reports.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use gatepost::{
    front::{FrontLimits, Listener},
    live::STALE_AFTER,
    review::{AdmissionDeps, ObjectRead, Reasons, read_policy},
};
use gatepost_wire::{
    outbound::framed,
    pb::{
        gatepost::v1::{
            Charge, Correction, FollowerMessage, Gone, HoldRequest, HoldResponse, Initialized, QuotaPhaseRequest,
            QuotaPhaseResponse, QuotaStage, ReadPolicyRequest, ReadPolicyResponse, ReadVerb, StoredObject,
            StoredObjectEvent, Synced, TimedOut, Visibility, correction::Remedy,
            follower_message::Message as FromSidecar, hold_response::End, stored_object_event::Event,
        },
        k8s::io::{
            api::authentication::v1::UserInfo,
            apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
        },
    },
};
use h2::{RecvStream, SendStream};
use prost::Message as _;
use tokio::{net::TcpListener, time::timeout};

use crate::{
    front::{self, Caller, LONG, Sidecar, before, grpc, until, with},
    support::gate::{READ_IN, gate},
};

const READ_POLICY: &str = "/gatepost.v1.Initialization/ReadPolicy";
const QUOTA_PHASE: &str = "/gatepost.v1.Initialization/QuotaPhase";
const HOLD: &str = "/gatepost.v1.Initialization/Hold";
const FOLLOW: &str = "/gatepost.v1.Initialization/Follow";

const CONFIGURATION: &str = r"
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: test}
resourceInitializers:
- resource: pods
  mayInitialize: {users: [admin]}
  initializers:
  - {name: open.example.com, timeout: 1ms, owners: {groups: [openers]}}
  - {name: closed.example.com, timeout: 1ms, failurePolicy: Fail}
  - {name: slow.example.com}
externalAdmissionHooks: []
";

fn configured() -> Arc<AdmissionDeps> {
    gate(CONFIGURATION, Reasons::First)
}

async fn serving(gate: &Arc<AdmissionDeps>) -> (Sidecar, Caller) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sidecar = before(Arc::clone(gate), FrontLimits::default(), address, Listener::Tcp(listener));
    let caller = front::caller(address).await;
    (sidecar, caller)
}

async fn ask<A: prost::Message + Default>(caller: &Caller, path: &str, message: &impl prost::Message) -> A {
    let ended = caller.call(grpc(path), [framed(message)]).await;
    assert_eq!(ended.status, Some(0), "{ended:?}");
    A::decode(&ended.body[5..]).unwrap()
}

fn user(name: &str, groups: &[&str]) -> Option<UserInfo> {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Some(UserInfo { username: Some(name.to_owned()), groups, ..UserInfo::default() })
}

fn object(uid: &str, version: &str, pending: &[&str]) -> Event {
    Event::Unfinished(StoredObject {
        resource: "pods".into(),
        namespace: "shop".into(),
        name: "web".into(),
        uid: uid.into(),
        resource_version: version.into(),
        pending: pending.iter().map(|&name| name.to_owned()).collect(),
        ..StoredObject::default()
    })
}

fn sought(uid: &str) -> HoldRequest {
    let texts = |text: &str| text.to_owned();
    HoldRequest {
        group: String::new(),
        resource: texts("pods"),
        namespace: texts("shop"),
        name: texts("web"),
        uid: texts(uid),
        resource_version: texts("1"),
    }
}

/// The stream of an apiserver.
struct Follower {
    to: SendStream<Bytes>,
    from: RecvStream,
    buffer: BytesMut,
}

impl Follower {
    async fn new(caller: &Caller) -> Self {
        let (response, to) = caller.begin(grpc(FOLLOW)).await;
        let from = timeout(LONG, response).await.unwrap().unwrap().into_body();
        Self { to, from, buffer: BytesMut::new() }
    }

    fn report(&mut self, event: Event) {
        self.to.send_data(framed(&StoredObjectEvent { event: Some(event) }), false).unwrap();
    }

    /// The next message, or the status with which its stream ended.
    async fn next(&mut self) -> Result<FromSidecar, String> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    return Ok(FollowerMessage::decode(self.buffer.split_to(length).freeze())
                        .unwrap()
                        .message
                        .unwrap());
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
                    return Err(trailers.get("grpc-status").unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }

    async fn correction(&mut self) -> Correction {
        match self.next().await {
            Ok(FromSidecar::Correction(correction)) => correction,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn reads_hide_uninitialized_objects_by_default() {
    let (_sidecar, caller) = serving(&configured()).await;
    let read = async |user, include_uninitialized| {
        let request = ReadPolicyRequest {
            verb: ReadVerb::Get.into(),
            user,
            version: "v1".into(),
            resource: "pods".into(),
            namespace: "shop".into(),
            name: "web".into(),
            include_uninitialized,
            ..ReadPolicyRequest::default()
        };
        ask::<ReadPolicyResponse>(&caller, READ_POLICY, &request).await
    };
    let policy = read(user("ann", &[]), true).await;
    assert_eq!((policy.visibility(), policy.ttl_milliseconds, &*policy.revision), (Visibility::Initialized, 1000, "1"));
    let hidden = policy.hidden.unwrap();
    assert_eq!((hidden.code(), hidden.status(), hidden.reason()), (202, "Failure", "Initializing"));
    let repair = policy.repair.unwrap();
    assert_eq!((repair.older_than_seconds, repair.must_act), (660, vec!["closed.example.com".to_owned()]));
    assert_eq!(read(user("admin", &[]), true).await.visibility(), Visibility::All);
    assert_eq!(read(user("admin", &[]), false).await.visibility(), Visibility::Initialized);
    assert_eq!(read(user("o", &["openers"]), true).await.visibility(), Visibility::All);
    assert_eq!(read(user("n", &["system:nodes"]), false).await.hidden.unwrap().code(), 404);
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert_eq!(read(user(collector, &[]), false).await.visibility(), Visibility::All);
    assert_eq!(read(None, true).await.visibility(), Visibility::Initialized);
}

#[tokio::test(start_paused = true)]
async fn an_outdated_configuration_hides_and_repairs_nothing() {
    let gate = gate(CONFIGURATION, Reasons::First);
    let read = ObjectRead {
        verb: gatepost_api::initialization::ReadVerb::List,
        username: "admin".into(),
        user: Arc::default(),
        group: "".into(),
        resource: "pods".into(),
        namespace: "shop".into(),
        name: "".into(),
        includes_unfinished: true,
    };
    let policy = async || read_policy(&gate, &read, Instant::now() + LONG).await;
    let fresh = policy().await;
    assert_eq!((fresh.visibility, fresh.must_act.is_some()), (gatepost_api::initialization::Visibility::All, true));
    tokio::time::advance(READ_IN + STALE_AFTER + Duration::from_secs(1)).await;
    let outdated = policy().await;
    assert_eq!((outdated.visibility, outdated.must_act), (gatepost_api::initialization::Visibility::Initialized, None));
}

#[tokio::test]
async fn a_write_is_answered_with_its_quota() {
    let (_sidecar, caller) = serving(&configured()).await;
    let request =
        |before: QuotaStage, after: QuotaStage| QuotaPhaseRequest { before: before.into(), after: after.into() };
    let quota: QuotaPhaseResponse =
        ask(&caller, QUOTA_PHASE, &request(QuotaStage::Absent, QuotaStage::Unfinished)).await;
    assert_eq!((quota.count(), quota.rest()), (Charge::Now, Charge::AtCompletion));
    let impossible = framed(&request(QuotaStage::Initialized, QuotaStage::Unfinished));
    assert_eq!(caller.call(grpc(QUOTA_PHASE), [impossible]).await.status, Some(3));
    assert_eq!(caller.call(grpc(QUOTA_PHASE), [front::framed(b"\xff")]).await.status, Some(3));
    assert_eq!(caller.call(grpc(QUOTA_PHASE), []).await.status, Some(13));
}

#[tokio::test]
async fn holds_end_on_reports_and_late_heads_are_corrected() {
    let gate = configured();
    let (_sidecar, caller) = serving(&gate).await;
    let mut follower = Follower::new(&caller).await;
    follower.report(object("u-1", "1", &["open.example.com", "slow.example.com"]));
    follower.report(object("u-2", "2", &["closed.example.com"]));
    follower.report(Event::Synced(Synced {}));
    until("reported", || gate.current.stored().unfinished() == 2).await;
    let apiserver = async {
        let mut seen = [follower.correction().await, follower.correction().await];
        seen.sort_by(|one, other| one.uid.cmp(&other.uid));
        let [open, closed] = seen;
        assert_eq!((open.remedy, &*open.resource_version), (Some(Remedy::RemoveHead("open.example.com".into())), "1"));
        let Some(Remedy::Fail(status)) = closed.remedy else { panic!("{closed:?}") };
        assert_eq!((status.code(), status.details.clone().unwrap().uid()), (504, "u-2"));
        follower.report(object("u-1", "3", &["slow.example.com"]));
        let Event::Unfinished(failed) = object("u-2", "4", &["closed.example.com"]) else { unreachable!() };
        follower.report(Event::Unfinished(StoredObject { result: Some(status), ..failed }));
        follower.report(Event::Gone(Gone { uid: "u-2".into() }));
        follower.report(Event::Initialized(Initialized { uid: "u-1".into(), resource_version: "5".into() }));
    };
    let (request, other) = (sought("u-1"), sought("u-2"));
    let holds = async {
        tokio::join!(ask::<HoldResponse>(&caller, HOLD, &request), ask::<HoldResponse>(&caller, HOLD, &other))
    };
    let ((first, second), ()) = tokio::join!(holds, apiserver);
    assert!(matches!(first.end, Some(End::Completed(completed)) if completed.resource_version == "5"));
    let Some(End::TimedOut(TimedOut { status, pending: false })) = second.end else { panic!("{second:?}") };
    assert_eq!(status.unwrap().code(), 504);
    assert_eq!((gate.current.stored().held(), gate.current.stored().unfinished()), (0, 0));
}

#[tokio::test]
async fn expired_hold_names_the_object() {
    let (gate, another) = (configured(), configured());
    let (sidecar, caller) = serving(&gate).await;
    let mut follower = Follower::new(&caller).await;
    follower.report(object("u-1", "7", &["slow.example.com"]));
    until("reported", || gate.current.stored().unfinished() == 1).await;
    let ended = caller.call(with(grpc(HOLD), "grpc-timeout", "50m"), [framed(&sought("u-1"))]).await;
    let response = HoldResponse::decode(&ended.body[5..]).unwrap();
    let Some(End::TimedOut(TimedOut { status: Some(status), pending: true })) = response.end else {
        panic!("{response:?}")
    };
    let details = status.details.clone().unwrap();
    assert_eq!((status.code(), status.reason(), details.uid()), (504, "Timeout", "u-1"));
    assert_eq!(status.metadata.unwrap().resource_version(), "7");
    assert_eq!((details.causes[0].reason(), details.causes[0].field()), ("InitializationPending", "slow.example.com"));
    // The stream is gone, and with it all that was known.
    drop((follower, sidecar));
    let (_sidecar, caller) = serving(&another).await;
    let mut follower = Follower::new(&caller).await;
    follower.report(Event::Synced(Synced {}));
    let apiserver = async {
        let Ok(FromSidecar::Look(look)) = follower.next().await else { panic!("not asked") };
        assert_eq!((&*look.uid, &*look.resource, &*look.name), ("u-1", "pods", "web"));
        follower.report(Event::Initialized(Initialized { uid: "u-1".into(), resource_version: "9".into() }));
    };
    let request = sought("u-1");
    let (end, ()) = tokio::join!(ask::<HoldResponse>(&caller, HOLD, &request), apiserver);
    assert!(matches!(end.end, Some(End::Completed(completed)) if completed.resource_version == "9"));
}

#[tokio::test]
async fn reports_that_cannot_be_end_the_stream() {
    let gate = configured();
    let (_sidecar, caller) = serving(&gate).await;
    for event in [object("", "1", &["a"]), object("u", "1", &[]), object("u", "", &["a"]), object("u", "1", &[""])] {
        let mut follower = Follower::new(&caller).await;
        follower.report(event);
        assert_eq!(follower.next().await.unwrap_err(), "3");
    }
    let mut follower = Follower::new(&caller).await;
    follower.to.send_data(front::framed(b"\xff"), false).unwrap();
    assert_eq!(follower.next().await.unwrap_err(), "3");
    until("forgotten", || gate.current.stored().unfinished() == 0).await;
    assert_eq!(dropped(&gate), [0, 0, 0, 0, 0, 5, 0]);
}

/// Dropped reports, by reason in the order of the documentation.
fn dropped(gate: &AdmissionDeps) -> [u64; 7] {
    let text = gate.metrics.render().unwrap();
    ["message", "names", "causes", "text", "unknown_object", "unreadable", "no_room"].map(|reason| {
        let sample = format!("gatepost_stored_reports_dropped_total{{reason=\"{reason}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&sample)).unwrap().parse().unwrap()
    })
}

#[tokio::test]
async fn end_of_an_unknown_object_is_only_counted() {
    let gate = configured();
    let (_sidecar, caller) = serving(&gate).await;
    let mut follower = Follower::new(&caller).await;
    follower.report(object("u-1", "1", &["slow.example.com"]));
    // Both are known.
    follower.report(Event::Initialized(Initialized { uid: "u-1".into(), resource_version: "2".into() }));
    follower.report(object("u-2", "3", &["slow.example.com"]));
    follower.report(Event::Gone(Gone { uid: "u-2".into() }));
    follower.report(Event::Gone(Gone { uid: "u-2".into() }));
    follower.report(Event::Initialized(Initialized { uid: "u-3".into(), resource_version: "4".into() }));
    ["u-4", "u-5"].into_iter().for_each(|uid| follower.report(object(uid, "5", &["slow.example.com"])));
    until("reported", || gate.current.stored().unfinished() == 2).await;
    assert_eq!(dropped(&gate), [0, 0, 0, 0, 2, 0, 0]);
}

#[tokio::test]
async fn a_report_that_is_too_long_is_of_no_consequence_to_others() {
    let gate = configured();
    let (_sidecar, caller) = serving(&gate).await;
    let mut follower = Follower::new(&caller).await;
    let (long, many) = ("x".repeat(300), vec!["a"; 5000]);
    let failed = |message: String, causes| {
        let Event::Unfinished(object) = object("u", "1", &["a"]) else { unreachable!() };
        let details = StatusDetails { causes: vec![StatusCause::default(); causes], ..StatusDetails::default() };
        let result = Status { message: Some(message), details: Some(details), ..Status::default() };
        Event::Unfinished(StoredObject { result: Some(result), ..object })
    };
    for event in [
        object("u", &long, &["a"]),
        object("u", "1", &[&long]),
        object("u", "1", &many),
        failed("x".repeat(300 << 10), 0),
        failed(String::new(), 5000),
    ] {
        follower.report(event);
    }
    // A list or a message that is only longer than it should be is cut.
    follower.report(object("u-1", "1", &["slow.example.com"; 130]));
    let Event::Unfinished(words) = failed("x".repeat(200 << 10), 100) else { unreachable!() };
    follower.report(Event::Unfinished(StoredObject { uid: "u-2".into(), ..words }));
    until("reported", || gate.current.stored().unfinished() == 2).await;
    let held: HoldResponse = ask(&caller, HOLD, &sought("u-2")).await;
    let Some(End::Failed(status)) = held.end else { panic!("{held:?}") };
    assert!(status.message().len() <= 16 << 10 && status.details.unwrap().causes.len() <= 16);
    assert_eq!(dropped(&gate), [1, 1, 1, 2, 0, 0, 0]);
    // More than any list and Status together can be.
    follower.report(failed("x".repeat(17 << 20), 0));
    assert_eq!(follower.next().await.unwrap_err(), "8");
    assert_eq!(dropped(&gate), [2, 1, 1, 2, 0, 0, 0]);
}

#[tokio::test]
async fn a_hold_has_no_text_that_no_object_has() {
    let (_sidecar, caller) = serving(&configured()).await;
    let long = || "x".repeat(254);
    for request in [
        HoldRequest { uid: String::new(), ..sought("u") },
        HoldRequest { uid: long(), ..sought("u") },
        HoldRequest { name: long(), ..sought("u") },
        HoldRequest { namespace: long(), ..sought("u") },
        HoldRequest { resource_version: long(), ..sought("u") },
    ] {
        assert_eq!(caller.call(grpc(HOLD), [framed(&request)]).await.status, Some(3));
    }
}

#[tokio::test]
async fn a_word_that_is_not_understood_is_refused() {
    let (_sidecar, caller) = serving(&configured()).await;
    let review = |word| caller.call(with(grpc(front::REVIEW), "gatepost-unfinished", word), [front::review("u", 10)]);
    assert_eq!(review("stored").await.status, Some(0));
    assert_eq!(review("hidden").await.status, Some(3));
}
