//! Open loop: reviews leave on schedule whether or not earlier ones are back.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Instant,
};

use tokio::{
    sync::mpsc,
    task::{JoinSet, LocalSet},
};

use super::{
    Settings,
    call::{Caller, Ended},
    pacer, report,
    report::Report,
    watch::Watch,
};
use crate::Fallible;

/// More reviews than this in flight: the rate is not sustained, and latencies would only say for how long we tried.
const TOO_MANY: usize = 2048;

pub(super) async fn run(settings: &Settings, callers: Vec<Caller>, rate: f64) -> Fallible<Report> {
    let latencies = Rc::new(RefCell::new(report::histogram()?));
    let expired = Rc::new(Cell::new(0));
    let watch = Watch::new(settings);
    let (send, mut due) = mpsc::unbounded_channel();
    let schedule = pacer::Schedule { start: Instant::now(), rate, end: settings.warm_up + settings.window };
    let measured_from = schedule.start + settings.warm_up;
    let pacer = std::thread::spawn(move || schedule.run(&send));

    LocalSet::new()
        .run_until(async {
            let mut calls = JoinSet::new();
            let mut before = None;
            let mut sent = 0;
            while let Some(intended) = due.recv().await {
                let measured = intended >= measured_from;
                if measured && before.is_none() {
                    before = Some(watch.read()?);
                }
                let (caller, latencies) = (callers[sent % callers.len()].clone(), latencies.clone());
                let expired = expired.clone();
                calls.spawn_local(async move {
                    let ended = caller.call_within_deadline().await?;
                    if measured {
                        // One that expired counts with the time it took: leaving it out would flatter.
                        expired.set(expired.get() + u64::from(matches!(ended, Ended::Expired)));
                        report::record(&mut latencies.borrow_mut(), intended.elapsed());
                    }
                    Fallible::Ok(())
                });
                sent += 1;
                while let Some(ended) = calls.try_join_next() {
                    ended??;
                }
                if calls.len() > TOO_MANY {
                    return Err(format!("{TOO_MANY} reviews in flight: {rate}/s is not sustained").into());
                }
            }
            while let Some(ended) = calls.join_next().await {
                ended??;
            }
            let before = before.ok_or("the window was shorter than one interval")?;
            let used = watch.read()?.since(&before);
            let elapsed = measured_from.elapsed();
            pacer.join().map_err(|_| "the pacing thread panicked")?;
            Ok(Report { expired: expired.get(), ..Report::new(&latencies.borrow(), elapsed, used) })
        })
        .await
}
