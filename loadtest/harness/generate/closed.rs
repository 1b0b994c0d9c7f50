//! Closed loop: a fixed number of reviews in flight, through warm-up and window without a pause.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use tokio::{task::LocalSet, time};

use super::{Settings, call::Caller, report, report::Report, watch::Watch};
use crate::Fallible;

/// Time for reviews still under way once the window is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fewer reviews than this and the ones cut by the window's ends would weigh too much: the window is prolonged...
const ENOUGH: u64 = 100;

/// ...up to so many times its length.
const LONGER: u32 = 6;

/// Part of a run; only `Measured` counts.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    WarmUp,
    Measured,
    Over,
}

pub(super) async fn run(settings: &Settings, callers: Vec<Caller>) -> Fallible<Report> {
    let part = Rc::new(Cell::new(Part::WarmUp));
    let latencies = Rc::new(RefCell::new(report::histogram()?));
    let watch = Watch::new(settings);
    let local = LocalSet::new();
    let workers: Vec<_> = (0..settings.in_flight)
        .map(|index| {
            let caller = callers[index % callers.len()].clone();
            local.spawn_local(keep_calling(caller, part.clone(), latencies.clone()))
        })
        .collect();
    local
        .run_until(async {
            time::sleep(settings.warm_up).await;
            let before = watch.read()?;
            part.set(Part::Measured);
            let start = Instant::now();
            time::sleep(settings.window).await;
            while latencies.borrow().len() < ENOUGH && start.elapsed() < settings.window * LONGER {
                time::sleep(settings.window / 10).await;
            }
            let (elapsed, used) = (start.elapsed(), watch.read()?.since(&before));
            part.set(Part::Over);
            let measured = latencies.borrow().clone();
            for worker in workers {
                time::timeout(PATIENCE, worker).await.map_err(|_| "a review never ended")???;
            }
            Ok(Report::new(&measured, elapsed, used))
        })
        .await
}

/// A worker that fails ends; the run reports it when it joins, so a broken run never passes for a measured one.
async fn keep_calling(caller: Caller, part: Rc<Cell<Part>>, latencies: Rc<RefCell<Histogram<u64>>>) -> Fallible<()> {
    while part.get() != Part::Over {
        let start = Instant::now();
        caller.call().await?;
        if part.get() == Part::Measured {
            report::record(&mut latencies.borrow_mut(), start.elapsed());
        }
    }
    Ok(())
}
