//! InitializerReport: one initializer in the report of a replica.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{HookStanding, is_zero, standing, time};
use crate::{live::RetiredEntry, model::FailurePolicy, telemetry::Attendance};

/// One initializer that a process acts for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializerReport {
    /// Its name.
    pub name: String,
    /// Treatment of objects on which it does not act.
    pub failure_policy: String,
    /// Instances that are attached.
    pub instances: usize,
    /// Objects that wait for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub holds: usize,
    /// Time that the oldest of them has waited, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_hold_seconds: Option<f64>,
    /// Since when no instance has been attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended_since: Option<String>,
    /// Probing: no instance has been attached since it was configured, so it is not asked and refuses nothing. Draining
    /// and Gone: it is not in force any more.
    #[serde(default)]
    pub state: HookStanding,
    /// Since when it is Draining or Gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_since: Option<String>,
}

pub(super) fn attended(one: &Attendance, clock: SystemTime) -> InitializerReport {
    InitializerReport {
        name: one.name.to_string(),
        failure_policy: one.failure_policy.as_str().to_owned(),
        instances: one.instances,
        holds: one.holds,
        oldest_hold_seconds: one.oldest.map(|oldest| oldest.as_secs_f64()),
        unattended_since: one.unattended.map(|time| super::time(clock.checked_sub(time).unwrap_or(clock))),
        state: if one.proven { HookStanding::Active } else { HookStanding::Probing },
        retired_since: None,
    }
}

pub(super) fn left(retired: &RetiredEntry) -> InitializerReport {
    InitializerReport {
        name: retired.name.to_string(),
        failure_policy: FailurePolicy::Ignore.as_str().to_owned(),
        instances: 0,
        holds: 0,
        oldest_hold_seconds: None,
        unattended_since: None,
        state: standing(&retired.rotation),
        retired_since: Some(time(retired.rotation.since())),
    }
}
