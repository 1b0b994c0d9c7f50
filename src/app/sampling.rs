//! Sampling: remembers now and then how often each hook and initializer was called and failed, for those who ask what
//! fails now.

use std::{sync::Arc, time::Instant};

use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval},
};

use crate::telemetry::{Metrics, SAMPLE_EVERY};

/// Hooks between two pauses: adding up the counters of one takes some microseconds.
const AT_ONCE: usize = 32;

/// For as long as this is polled.
pub(super) async fn sample(metrics: Arc<Metrics>) {
    let mut ticks = interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for hooks in metrics.hook_counters().chunks(AT_ONCE) {
            let now = Instant::now();
            hooks.iter().for_each(|hook| hook.sample(now));
            yield_now().await;
        }
        for initializers in metrics.initializer_counters().chunks(AT_ONCE) {
            let now = Instant::now();
            initializers.iter().for_each(|initializer| initializer.sample(now));
            yield_now().await;
        }
    }
}
