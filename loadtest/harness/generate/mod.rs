//! The load generator: raw HTTP/2, one shared body, and an answer that is checked every time.
//!
//! Four shapes: *closed* keeps so many reviews in flight; *open* sends at a fixed rate and counts latency from the
//! moment a review should have been sent, so that a stall is charged to every review it delays; *sequence* sends so
//! many, one after another; *burst* sends so many at once. The figures that it watches (CPU, allocations) are read at
//! the two ends of the measured part.

mod burst;
mod call;
mod closed;
mod counts;
mod numbered;
mod open;
mod pacer;
mod report;
mod sequence;
mod watch;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub(crate) use counts::Counts;
pub(crate) use report::{Report, histogram, record};

use crate::{
    Fallible,
    review::{Subject, framed},
    size::Size,
};

/// `generate`: what to send, where, how fast and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The sidecar's gRPC address
    #[arg(long)]
    target: SocketAddr,
    /// Size of the object
    #[arg(long, default_value = "2K")]
    size: Size,
    /// Kind of the object
    #[arg(long, value_enum, default_value = "pod")]
    subject: Subject,
    /// Connections to spread the load over
    #[arg(long, default_value_t = 2)]
    connections: usize,
    /// Closed loop: reviews in flight
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
    /// Open loop at this many reviews a second
    #[arg(long, conflicts_with = "in_flight")]
    rate: Option<f64>,
    /// One at a time, exactly this many
    #[arg(long, conflicts_with_all = ["in_flight", "rate"])]
    sequence: Option<usize>,
    /// All at once, exactly this many
    #[arg(long, conflicts_with_all = ["in_flight", "rate", "sequence"])]
    burst: Option<usize>,
    /// Ask Mutate instead of Review, each time about a request of its own
    #[arg(long)]
    mutate: bool,
    /// Unmeasured load before the window; before a sequence, a fifth of it is sent instead
    #[arg(long, value_parser = humantime::parse_duration, default_value = "300ms")]
    warm_up: Duration,
    /// Length of the measurement
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1s")]
    window: Duration,
    /// The deadline every review carries
    #[arg(long, value_parser = humantime::parse_duration, default_value = "10s")]
    deadline: Duration,
    /// Book this process's CPU time on the window
    #[arg(long, value_name = "PID")]
    watch_pid: Option<u32>,
    /// Book the allocations that this socket reports on the window
    #[arg(long, value_name = "SOCKET")]
    watch_counts: Option<PathBuf>,
}

/// Sends the load and prints a [`Report`] as one line of JSON.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    pacer::sharpen_timers();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let body = framed(settings.subject, settings.size);
        let callers = call::connect(settings, &body).await?;
        match (settings.rate, settings.sequence, settings.burst) {
            (Some(rate), ..) => open::run(settings, callers, rate).await,
            (None, Some(count), _) => sequence::run(settings, callers, count).await,
            (None, None, Some(count)) => burst::run(settings, callers, count).await,
            (None, None, None) => closed::run(settings, callers).await,
        }
    })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
