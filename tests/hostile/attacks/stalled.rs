//! Outputs that nobody reads.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    hook::Hook,
};

/// A thousand call failures, each of which may be a line, into a log that is not read.
pub fn log_nobody_reads() -> Attack {
    Attack {
        name: "log-nobody-reads",
        item: "17, 33",
        hooks: |_| vec![Hook::absent("absent"), Hook::absent("away").ignored().of("secrets")],
        serve: Serve {
            stalled_log: true,
            arguments: &["--log-level", "debug", "--log-format", "json"],
            ..Serve::PLAIN
        },
        during: |stage| {
            let press = Press { reviews: 600, every: Duration::from_millis(4), at_once: 20, ..Press::USUAL };
            let tally = press::pods(stage, press)?;
            match tally.denied {
                600 => Ok(tally.said()),
                _ => Err(format!("a log that is not read stops verdicts: {}", tally.said())),
            }
        },
        bounds: Bounds { log: 4 << 20, ..Bounds::USUAL },
    }
}

/// SIGTERM while the audit log is a pipe that nobody reads.
pub fn audit_nobody_reads() -> Attack {
    Attack {
        name: "audit-nobody-reads",
        item: "33",
        hooks: |notes| vec![Hook::good("audited", notes)],
        serve: Serve { stalled_audit: true, ..Serve::PLAIN },
        during: |stage| {
            let tally = press::pods(stage, Press { reviews: 400, every: Duration::from_millis(2), ..Press::USUAL })?;
            if tally.allowed != 400 {
                return Err(format!("an audit log that is not read stops verdicts: {}", tally.said()));
            }
            let began = Instant::now();
            stage.process.terminate();
            // The admin pages go with the process.
            while stage.process.page("/livez", Duration::from_millis(200)).is_some() {
                if began.elapsed() > Duration::from_secs(6) {
                    return Err("it serves 6 s after SIGTERM".to_owned());
                }
                thread::sleep(Duration::from_millis(20));
            }
            while stage.process.resident() > 0 {
                if began.elapsed() > Duration::from_secs(6) {
                    return Err("it is there 6 s after SIGTERM, with --max-deadline 3s".to_owned());
                }
                thread::sleep(Duration::from_millis(20));
            }
            Ok(format!("gone {:?} after SIGTERM", began.elapsed()))
        },
        bounds: Bounds { ends: true, ..Bounds::USUAL },
    }
}
