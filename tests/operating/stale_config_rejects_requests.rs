//! A configuration that was not read for five seconds refuses every request; the first good read ends that.
//!
//! The road is the real one, poll, rotator and `decide`; only the source is scripted, and time is paused.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{
    gate::{ask, caller, document, gate, hook},
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::{Current, Generation, STALE_AFTER},
    review::{AdmissionDeps, Caller, Reasons, decide},
    rotate::{Rotator, RotatorOptions},
    source::{Contents, READ_INTERVAL, READ_TIMEOUT, ReadError, Ticks},
};
use gatepost_api::{Deadline, Revision, Rope, Verdict, verdict::REVISION_ANNOTATION};
use gatepost_config::SourceFile;
use gatepost_wire::inbound::view;
use tokio::{sync::mpsc, time};

/// Behaviour of reads from now on.
#[derive(Clone, Copy)]
enum Read {
    /// It succeeds after so long.
    Good(Duration),
    /// It fails at once.
    Failed,
    /// It gives up at its deadline, as every source does whose store does not answer.
    GivenUp,
    /// It never ends at all, deadline or not.
    Hung,
}

const AT_ONCE: Read = Read::Good(Duration::ZERO);

thread_local! {
    /// Time that the machine was suspended. A paused runtime has one thread.
    static SLEPT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// One sidecar's road from the source to the verdict, since the runtime began.
struct Road {
    gate: Arc<AdmissionDeps>,
    script: RefCell<Read>,
    began: time::Instant,
}

impl Road {
    /// Runs a story beside the poll and the rotator.
    async fn walk(story: impl AsyncFnOnce(&Self)) {
        SLEPT.set(Duration::ZERO);
        let began = time::Instant::now();
        let mut gate = Arc::into_inner(gate(&document(&["  []\n".to_owned()]), Reasons::First)).unwrap();
        let current = Arc::new(Current::with_clock(|| SLEPT.get(), began.into_std()));
        gate.current = Arc::clone(&current);
        let workers = vec![tokio::runtime::Handle::current()];
        let options = RotatorOptions {
            status: Arc::clone(&gate.status),
            ..RotatorOptions::new(workers, Duration::from_secs(31))
        };
        let rotator = Rotator::new(current, Arc::clone(&gate.metrics), options);
        let road = Self { gate: Arc::new(gate), script: RefCell::new(AT_ONCE), began };
        let (readings, read) = mpsc::channel(1);
        let mut ticks = Ticks::new(READ_INTERVAL, || SLEPT.get());
        let poll = async { while readings.send(ticks.read(road.read()).await).await.is_ok() {} };
        tokio::select! {
            () = poll => panic!("the poll has ended"),
            () = rotator.run(read) => panic!("the rotator has ended"),
            () = story(&road) => {}
        }
    }

    async fn read(&self) -> Result<Contents, ReadError> {
        let read = *self.script.borrow();
        match read {
            Read::Good(took) => {
                time::sleep(took).await;
                let file = SourceFile { name: "a.yaml".into(), bytes: document(&["  []\n".to_owned()]).into() };
                Ok(Contents::new(vec![file], BTreeMap::new()))
            }
            Read::Failed => Err(ReadError::Unreadable { path: "etc".into(), cause: "gone".into() }),
            Read::GivenUp => {
                time::sleep(READ_TIMEOUT).await;
                Err(ReadError::Hung(READ_TIMEOUT))
            }
            Read::Hung => pending().await,
        }
    }

    /// From now on.
    fn set(&self, read: Read) {
        self.script.replace(read);
    }

    /// Waits until so many milliseconds have passed since the beginning, and everything due then is done.
    async fn at(&self, millis: u64) -> &Self {
        time::sleep_until(self.began + Duration::from_millis(millis)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self
    }

    async fn ask(&self) -> Verdict {
        ask(&self.gate, create_pod("1", 100)).await
    }

    async fn assert_decided(&self) {
        let verdict = self.ask().await;
        assert!(verdict.allowed(), "at {:?}: {verdict:?}", self.began.elapsed());
    }

    async fn assert_refused(&self) {
        let refusal = self.ask().await.refusal.unwrap_or_else(|| panic!("decided at {:?}", self.began.elapsed()));
        assert_eq!((refusal.code, &*refusal.reason), (503, "LoadingConfiguration"), "{refusal:?}");
        assert_eq!(refusal.retry_after_seconds, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn stale_config_refuses_from_5s_to_the_first_good_read() {
    for broken in [Read::Failed, Read::GivenUp] {
        Road::walk(async |road| {
            road.at(900).await.assert_refused().await;
            // The first read is at 1 s; from then on none is good.
            road.at(1500).await.assert_decided().await;
            road.set(broken);
            road.at(5900).await.assert_decided().await;
            road.at(6100).await.assert_refused().await;
            road.set(AT_ONCE);
            road.at(6900).await.assert_refused().await;
            road.at(7010).await.assert_decided().await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn stale_config_follows_a_read_that_never_ends() {
    Road::walk(async |road| {
        road.at(1500).await.set(Read::Hung);
        road.at(5900).await.assert_decided().await;
        road.at(6100).await.assert_refused().await;
        road.set(AT_ONCE);
        road.at(3_600_000).await.assert_refused().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn read_that_ends_late_is_dated_from_its_start() {
    Road::walk(async |road| {
        road.set(Read::Good(Duration::from_millis(700)));
        road.at(1600).await.assert_refused().await;
        road.at(1800).await.assert_decided().await;
        road.set(Read::Failed);
        road.at(5900).await.assert_decided().await;
        road.at(6100).await.assert_refused().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn good_read_must_begin_within_five_seconds_of_the_last_one() {
    Road::walk(async |road| {
        road.at(1500).await.set(Read::Failed);
        road.at(5500).await.set(AT_ONCE);
        road.at(5999).await.assert_decided().await;
        // 5.0 s after the read at 1 s the bound is reached, and the next read is due: whoever comes then is decided on
        // it.
        road.at(6000).await.assert_decided().await;
        road.set(Read::Failed);
        road.at(10_999).await.assert_decided().await;
        road.at(11_000).await.assert_refused().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn four_failed_reads_do_not_make_the_config_stale() {
    Road::walk(async |road| {
        let mut now = 1500;
        for _ in 0..20 {
            road.at(now).await.set(Read::Failed);
            road.at(now + 4000).await.set(AT_ONCE);
            road.at(now + 4499).await.assert_decided().await;
            now += 5000;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn config_is_stale_after_sleep_until_the_next_read() {
    Road::walk(async |road| {
        road.at(1500).await.assert_decided().await;
        // No timer rings and no Instant moves meanwhile.
        SLEPT.set(Duration::from_secs(3600));
        road.assert_refused().await;
        road.at(1999).await.assert_refused().await;
        road.at(2001).await.assert_decided().await;
        road.at(60_500).await.assert_decided().await;
        SLEPT.set(Duration::from_secs(3603));
        road.assert_decided().await;
        SLEPT.set(Duration::from_secs(3605));
        road.assert_refused().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn read_interrupted_by_sleep_does_not_count() {
    Road::walk(async |road| {
        road.set(Read::Good(Duration::from_millis(600)));
        road.at(1300).await;
        SLEPT.set(Duration::from_secs(60));
        road.at(1700).await.assert_refused().await;
        road.at(2700).await.assert_decided().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn configz_and_metrics_name_the_last_failed_read() {
    Road::walk(async |road| {
        road.at(1500).await;
        assert_eq!(road.gate.status.failed_read.get(), None);
        road.set(Read::GivenUp);
        road.at(4900).await;
        let failed = road.gate.status.failed_read.get().expect("it has failed");
        assert!(failed.error.starts_with("no answer from the file system within 800ms"), "{failed:?}");
        assert_eq!(failed.count, 3);
        let text = road.gate.metrics.render().unwrap();
        assert!(text.contains("gatepost_config_reads_total{outcome=\"failed_hung\"} 3\n"), "{text}");
        road.set(AT_ONCE);
        road.at(6500).await;
        assert_eq!(road.gate.status.failed_read.get(), None);
    })
    .await;
}

/// The same generation, last read at that time.
fn read_at(mut gate: AdmissionDeps, started: Option<Instant>) -> AdmissionDeps {
    let now = Instant::now();
    let current = Current::new(now.checked_sub(Duration::from_secs(60)).unwrap_or(now));
    current.publish(gate.current.load());
    if let Some(started) = started {
        current.freshness().stamp_awake(started);
    }
    gate.current = Arc::new(current);
    gate
}

#[tokio::test]
async fn stale_config_rejects_requests_and_calls_no_hook() {
    let a = ScriptedHook::start(Script::Allow).await;
    for started in [None, Instant::now().checked_sub(STALE_AFTER)] {
        let gate = gate(&document(&[hook("a.example.com", &a.url(), "failurePolicy: Ignore")]), Reasons::First);
        let stale = read_at(Arc::into_inner(gate).unwrap(), started);
        let before = a.seen().len();
        let refusal = ask(&stale, create_pod("1", 100)).await.refusal.expect("refused");
        assert_eq!((refusal.code, &*refusal.reason), (503, "LoadingConfiguration"), "{refusal:?}");
        assert_eq!(refusal.retry_after_seconds, 1);
        assert_eq!(a.seen().len(), before, "nobody was asked");

        stale.current.freshness().stamp_awake(Instant::now());
        assert!(ask(&stale, create_pod("2", 100)).await.allowed(), "the first good read ends it");
    }
}

thread_local! {
    /// Generation put in force while a review asks for the configuration's age.
    static NEXT: RefCell<Option<(Arc<Current>, Arc<Generation>)>> = const { RefCell::new(None) };
}

/// Clock that is read just when a change is put in force.
fn suspended_meanwhile() -> Duration {
    if let Some((current, next)) = NEXT.take() {
        current.publish(next);
    }
    Duration::ZERO
}

/// A generation taken before would be older than the age allows.
#[tokio::test]
async fn generation_is_taken_after_its_age_is_checked() {
    let mut gate = Arc::into_inner(gate(&document(&["  []\n".to_owned()]), Reasons::First)).unwrap();
    let (first, now) = (gate.current.load(), Instant::now());
    let current = Arc::new(Current::with_clock(suspended_meanwhile, now));
    current.publish(Arc::clone(&first));
    current.freshness().stamp_awake(now);
    gate.current = Arc::clone(&current);
    let (digest, snapshot) = (String::new(), Arc::clone(&first.snapshot));
    let (hooks, bypassed, initializers) = Default::default();
    let (revision, published) = (Revision::Store(2), first.published);
    let next = Generation {
        number: 2,
        digest,
        revision,
        published,
        snapshot,
        hooks,
        bypassed,
        policies: Vec::new(),
        initializers,
    };
    NEXT.set(Some((current, Arc::new(next))));
    let verdict = ask(&gate, create_pod("1", 100)).await;
    assert_eq!(verdict.audit_annotations, [(REVISION_ANNOTATION.to_owned(), "2".to_owned())]);
    assert!(NEXT.take().is_none(), "its age was asked");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_change_that_was_noticed() {
    Road::walk(async |road| {
        let freshness = road.gate.current.freshness();
        let waited = async || {
            let began = time::Instant::now();
            let review = view(Rope::new([message(create_pod("1", 100))])).unwrap();
            let deadline = Deadline::after(began.into_std(), Duration::from_secs(10));
            let caller = Caller { deadline, ..caller(Duration::ZERO) };
            assert!(decide(&road.gate, &review, &caller).await.allowed());
            began.elapsed()
        };
        road.at(1500).await;
        freshness.notice_change(time::Instant::now().into_std());
        assert_eq!(waited().await, Duration::ZERO, "nobody has asked for it");
        freshness.hold_for_changes();
        freshness.notice_change(time::Instant::now().into_std());
        assert_eq!(waited().await, Duration::from_millis(500), "until the read at 2 s");
        assert_eq!(waited().await, Duration::ZERO, "it is in force");
        road.at(2100).await.set(Read::Failed);
        freshness.notice_change(time::Instant::now().into_std());
        assert_eq!(waited().await, Duration::from_secs(1), "and no longer");
        let metrics = road.gate.metrics.render().unwrap();
        for count in ["timeout", "in_force"] {
            assert!(metrics.contains(&format!("gatepost_held_requests_total{{outcome=\"{count}\"}} 1")), "{metrics}");
        }
    })
    .await;
}
