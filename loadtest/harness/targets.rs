//! Targets: aim of each figure, from the table of the issue that asked for it.

use std::fmt;

use crate::size::Size;

/// A bound on a ratio or on our own value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// True when `value` keeps the bound.
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">={bound}"),
            Self::AtMost(bound) => write!(f, "<={bound}"),
        }
    }
}

/// Sidecar CPU per review, naive / ours.
pub(crate) fn cpu(size: Size, hooks: usize) -> Option<Target> {
    let row = match hooks {
        1 => [1.5, 1.8, 2.0, 2.2],
        4 => [1.9, 2.1, 2.5, 2.4],
        16 => [2.5, 2.8, 3.3, 3.8],
        _ => return None,
    };
    column(size).map(|column| Target::AtLeast(row[column]))
}

/// Closed-loop throughput at 16 hooks, ours / naive.
pub(crate) fn throughput() -> Option<Target> {
    Some(Target::AtLeast(2.3))
}

/// CPU with mutual TLS to 4 hooks, naive / ours; 2 KiB is informational.
pub(crate) fn mtls(size: Size, hooks: usize) -> Option<Target> {
    let row = [None, Some(1.8), Some(1.6), Some(1.35)];
    column(size).filter(|_| hooks == 4).and_then(|column| row[column]).map(Target::AtLeast)
}

/// p50 at a fixed rate, ours / naive; one hook is informational.
pub(crate) fn p50(size: Size, hooks: usize) -> Option<Target> {
    let bound = match (column(size)?, hooks) {
        (_, 1) => return None,
        (0 | 1, 4) => 1.0,
        (0 | 1, _) => 0.75,
        _ => 0.7,
    };
    Some(Target::AtMost(bound))
}

/// p99 at that rate, ours / naive.
pub(crate) fn p99(hooks: usize) -> Option<Target> {
    (hooks > 1).then_some(Target::AtMost(1.0))
}

/// Bytes allocated per extra hook; on our value.
pub(crate) const BYTES_PER_HOOK: Target = Target::AtMost(4096.0);
/// Allocations of 4 KiB and more per extra hook: none. The rest is what background work blurs.
pub(crate) const LARGE_PER_HOOK: Target = Target::AtMost(0.05);
/// Peak live heap / sum of objects in flight; on our value.
pub(crate) const PEAK_HEAP: Target = Target::AtMost(1.15);
/// Peak RSS / sum of objects in flight; on our value.
pub(crate) const PEAK_RSS: Target = Target::AtMost(2.2);
/// p99 of uninvolved reviews, with a hung hook / without.
pub(crate) const HUNG: Target = Target::AtMost(1.1);

/// p99 of a CREATE with three initializers, less that without them, in ms.
pub(crate) const INITIALIZED: Target = Target::AtMost(1.0);
/// Resident memory with 1,000 objects held, above that of the idle process, in MiB.
pub(crate) const HOLDS: Target = Target::AtMost(64.0);
/// CPU time of the controller's pass over 10,000 objects, in ms.
pub(crate) const CONTROLLER: Target = Target::AtMost(100.0);
/// LIST of 5,000 objects through the read proxy / direct.
pub(crate) const PROXIED_LIST: Target = Target::AtMost(1.1);
/// p50 of a GET through the read proxy, less that of a direct one, in ms.
pub(crate) const PROXIED_GET: Target = Target::AtMost(0.3);
/// Arrival of a watch event through the read proxy, less its direct one, in ms.
pub(crate) const PROXIED_EVENT: Target = Target::AtMost(0.3);

fn column(size: Size) -> Option<usize> {
    Size::TABLE.iter().position(|known| *known == size)
}
