//! Bystander: an unrelated caller that asks an unrelated hook at a fixed, moderate rate.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::bytes::caller::{Answer, Caller};

/// The hook that it asks, and the resource.
pub const HOOK: &str = "bystander";
pub const RESOURCE: &str = "configmaps";

/// Time between two reviews.
const CALL_INTERVAL: Duration = Duration::from_millis(8);
/// Connections that it keeps and uses in turn: workers share them out.
const KEPT: usize = 3;
/// One in so many comes over a connection of its own.
const FRESH: u64 = 20;

/// Observations of a bystander.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    latencies: Vec<Duration>,
    pub asked: u64,
    /// Reviews that were not allowed, with what came instead.
    pub failed: Vec<String>,
}

impl Seen {
    pub fn quantile(&self, quantile: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * quantile).ceil() as usize;
        sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }
}

/// A bystander at work.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    at_work: JoinHandle<Seen>,
}

/// No two reviews have the same uid.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Bystander {
    pub fn start(sidecar: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let at_work = thread::spawn({
            let stop = Arc::clone(&stop);
            move || work(sidecar, &stop)
        });
        Self { stop, at_work }
    }

    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.at_work.join().unwrap_or_default()
    }
}

fn work(sidecar: SocketAddr, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut kept = [const { None }; KEPT];
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // From when it should have been asked: a review behind one that waited has waited, too. But what was never sent
        // because one took seconds is not made up for: that would be an attack of our own.
        due = due.max(Instant::now() - 4 * CALL_INTERVAL);
        seen.asked += 1;
        let uid = format!("bystander-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut fresh = None;
        let caller = if seen.asked % FRESH == 0 { &mut fresh } else { &mut kept[seen.asked as usize % KEPT] };
        let answer = match caller.take().or_else(|| Caller::connect(sidecar)) {
            Some(mut connected) => {
                let answer = connected.review(&uid, RESOURCE, 1000, "3S");
                if answer != Answer::Lost {
                    *caller = Some(connected);
                }
                format!("{answer:?}")
            }
            None => "not let in".to_owned(),
        };
        seen.latencies.push(due.elapsed());
        if answer != format!("{:?}", Answer::Allowed) {
            seen.failed.push(answer);
        }
        due += CALL_INTERVAL;
    }
    seen
}
