//! Heard: how long ago each lease was seen to change. Only our own clock counts: those of other machines may be wrong.

use std::{collections::BTreeMap, time::Duration};

use super::Lease;

/// How long ago each lease was seen to change.
#[derive(Debug, Default)]
pub(super) struct Heard(BTreeMap<String, (String, Duration)>);

impl Heard {
    /// Takes a read that began at `now`.
    pub(super) fn hear(&mut self, now: Duration, leases: &[Lease]) {
        self.0.retain(|name, _| leases.iter().any(|lease| lease.name == *name));
        for lease in leases {
            // What changes a lease besides its holder (a command) does not renew it.
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
