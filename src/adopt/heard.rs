//! Heard: time since each lease was seen to change, by our own clock alone: those of other machines may be wrong.

use std::{collections::BTreeMap, time::Duration};

use super::Lease;

/// Last observed holder and renewal of each lease, by its name, and the time at which they were first observed.
#[derive(Debug, Default)]
pub(super) struct Heard(BTreeMap<String, (String, Duration)>);

impl Heard {
    /// Records a read that began at `now`.
    pub(super) fn hear(&mut self, now: Duration, leases: &[Lease]) {
        self.0.retain(|name, _| leases.iter().any(|lease| lease.name == *name));
        for lease in leases {
            // A change by anyone but the holder (a command) does not renew the lease.
            let state = format!("{} {}", lease.holder, lease.renewed);
            match self.0.get_mut(&lease.name) {
                Some((known, _)) if *known == state => {}
                Some(known) => *known = (state, now),
                None => drop(self.0.insert(lease.name.clone(), (state, now))),
            }
        }
    }

    /// Time since the lease was seen to change; zero where it was never seen.
    pub(super) fn silence(&self, now: Duration, lease: &Lease) -> Duration {
        self.0.get(&lease.name).map_or(Duration::ZERO, |(_, at)| now.saturating_sub(*at))
    }
}
