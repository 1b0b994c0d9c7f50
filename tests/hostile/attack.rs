//! One attack: its players, and the cost that it may have.

use std::time::Duration;

use crate::{hook::Hook, notes::Notes, stage::Stage};

/// The memory budget that `serve` is given.
pub const BUDGET: u64 = 64 << 20;

/// Count of something that costs the sidecar time in proportion: a tenth where it is not optimized.
pub fn scaled(count: usize) -> usize {
    match cfg!(debug_assertions) && std::env::var_os("GATEPOST").is_none() {
        true => count / 10,
        false => count,
    }
}

/// One attack on a running sidecar.
pub struct Attack {
    /// A word by which it is called on the command line.
    pub name: &'static str,
    /// The item of the issue that it belongs to.
    pub item: &'static str,
    /// The hooks beside the bystander's.
    pub hooks: fn(&Notes) -> Vec<Hook>,
    /// Terms on which the sidecar is started.
    pub serve: Serve,
    /// The attack itself. Returns findings for people; or the fault.
    pub during: fn(&Stage) -> Result<String, String>,
    /// Cost that the attack may have.
    pub bounds: Bounds,
}

/// Terms on which a sidecar is started.
#[derive(Clone, Copy)]
pub struct Serve {
    /// Further arguments.
    pub arguments: &'static [&'static str],
    /// The most descriptors that it may have open.
    pub descriptors: Option<u32>,
    /// The pipe that is its standard error is not read while the attack lasts.
    pub stalled_log: bool,
    /// The audit log is a pipe that is opened and not read.
    pub stalled_audit: bool,
}

impl Serve {
    /// As shipped, but for what the harness sets.
    pub const PLAIN: Self = Self { arguments: &[], descriptors: None, stalled_log: false, stalled_audit: false };
}

/// Limits on the cost of an attack.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Resident bytes beyond the baseline while it lasts.
    pub peak: u64,
    /// Resident bytes beyond the baseline afterwards.
    pub left: u64,
    /// Descriptors beyond the baseline afterwards.
    pub descriptors: usize,
    /// Processor time in the second afterwards.
    pub idle_cpu: Duration,
    /// Time within which all this has to be so.
    pub settled_within: Duration,
    /// Bytes of log.
    pub log: u64,
    /// The process ends itself in the attack: nothing is there to be looked at afterwards.
    pub ends: bool,
}

impl Bounds {
    /// Bounds of every attack that has no reason for wider ones.
    pub const USUAL: Self = Self {
        peak: 2 * BUDGET + (64 << 20),
        left: 48 << 20,
        descriptors: 12,
        idle_cpu: Duration::from_millis(200),
        settled_within: Duration::from_secs(14),
        log: 1 << 20,
        ends: false,
    };
}
