//! Metrics of this process, with the names that Prometheus' client libraries use. Linux only; on other systems these
//! metrics are absent.

use std::{
    fs,
    sync::{Arc, OnceLock},
    time::Instant,
};

use rustix::process::{Resource, getrlimit};
use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval},
};

use crate::telemetry::{Metrics, Reading, SAMPLE_INTERVAL};

/// Ticks in a second, as `/proc` counts them: 100 on every architecture that Linux runs on today.
// source: proc(5), "sysconf(_SC_CLK_TCK)"; include/asm-generic/param.h, USER_HZ
const TICKS: f64 = 100.0;

/// Registers the readings of the process with the metrics.
pub(super) fn observe(metrics: &Metrics) {
    metrics.observe(Reading::ProcessCpu, || Some(stat()?.cpu_seconds));
    metrics.observe(Reading::ProcessVirtual, || Some(stat()?.virtual_bytes));
    metrics.observe(Reading::ProcessResident, || resident(&fs::read_to_string("/proc/self/status").ok()?));
    metrics.observe(Reading::ProcessOpenFiles, open_files);
    metrics.observe(Reading::ProcessMostFiles, || {
        // Prometheus' own client reports the same if there is no limit.
        Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as f64)
    });
    // Stored, since the start does not change but the wall clock may.
    let start = OnceLock::new();
    metrics.observe(Reading::ProcessStart, move || {
        *start.get_or_init(|| Some(booted(&fs::read_to_string("/proc/stat").ok()?)? + stat()?.start_seconds))
    });
}

/// Parts of `/proc/self/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    virtual_bytes: f64,
    /// Seconds from the boot of the machine to the start of the process.
    start_seconds: f64,
}

fn stat() -> Option<Stat> {
    Stat::read(&fs::read_to_string("/proc/self/stat").ok()?)
}

impl Stat {
    fn read(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, with any characters; the third follows it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let (user, system, start, bytes) = (field(14)?, field(15)?, field(22)?, field(23)?);
        Some(Self { cpu_seconds: (user + system) / TICKS, virtual_bytes: bytes, start_seconds: start / TICKS })
    }
}

/// Returns the resident memory in bytes, from `/proc/self/status`.
fn resident(status: &str) -> Option<f64> {
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(kilobytes.trim().parse::<f64>().ok()? * 1024.0)
}

/// Returns the boot time of the machine in seconds since 1970, from `/proc/stat`.
fn booted(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn open_files() -> Option<f64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2 the folder's size is the number of files. Otherwise the entries count, minus the folder itself.
    match fs::metadata(FOLDER).ok()?.len() {
        0 => Some(fs::read_dir(FOLDER).ok()?.count().saturating_sub(1) as f64),
        open => Some(open as f64),
    }
}

/// Hooks sampled between two yields: adding up the counters of a hook takes some microseconds.
const SAMPLES_PER_YIELD: usize = 32;

/// Samples the calls and failures of each hook and initializer at an interval, to report what fails at present.
pub(super) async fn sample(metrics: Arc<Metrics>) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for hooks in metrics.hook_counters().chunks(SAMPLES_PER_YIELD) {
            let now = Instant::now();
            hooks.iter().for_each(|hook| hook.sample(now));
            yield_now().await;
        }
        for initializers in metrics.initializer_counters().chunks(SAMPLES_PER_YIELD) {
            let now = Instant::now();
            initializers.iter().for_each(|initializer| initializer.sample(now));
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_line_of_proc_is_read_by_its_fields() {
        let line = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194560 5 0 0 0 250 50 0 0 20 0 7 0 12345 1048576 77 1844 1 1";
        let read = Stat::read(line).unwrap();
        assert_eq!(read, Stat { cpu_seconds: 3.0, virtual_bytes: 1_048_576.0, start_seconds: 123.45 });
        assert_eq!(Stat::read("4711 (a) S 1"), None);
        assert_eq!(resident("VmPeak:\t  9 kB\nVmRSS:\t     42 kB\n"), Some(43_008.0));
        assert_eq!(resident("Name:\tx\n"), None);
        assert_eq!(booted("cpu 1 2\nbtime 1767225600\n"), Some(1_767_225_600.0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_every_reading() {
        let metrics = Arc::new(Metrics::default());
        observe(&metrics);
        let text = metrics.render().unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_virtual_memory_bytes") > 1e6);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
    }
}
