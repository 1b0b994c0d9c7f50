//! Report of one replica, as JSON in both directions.

use std::time::SystemTime;

use gatepost_api::{
    Revision,
    schema::status::{BypassInForce, HookState as HookStanding, HookStatus as HookReport, OpenGlass, ReplicaFault},
};
use serde::{Deserialize, Serialize};

/// Report of one replica. Times are RFC 3339, in its own clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaReport {
    /// The replica's name.
    pub replica: String,
    /// Identity of this run among all others, also those of the same name.
    #[serde(default)]
    pub instance: String,
    /// Another replica goes by the same name, and one hides the other.
    #[serde(default)]
    pub contested: bool,
    /// The version of its program.
    pub version: String,
    /// Number of the generation in force; 0 before the first. It counts this replica's own swaps.
    pub generation: u64,
    /// Revision in force, as [`Revision`] writes it.
    pub revision: String,
    /// Digest (hex) of what is in force; "" before the first.
    pub digest: String,
    /// The store's revision at the last good read, where the source has such a thing.
    #[serde(default)]
    pub observed: Option<u64>,
    /// Seconds since the start of the last good read, at the time of this report.
    #[serde(default)]
    pub age_seconds: Option<f64>,
    /// The configuration is too old: the replica rejects every request.
    pub stale: bool,
    /// It is stopping.
    #[serde(default)]
    pub stopping: bool,
    /// Faults that prevent calls of the replica, or of its hooks and initializers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<ReplicaFault>,
    /// Break-glass documents that are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub break_glass: Vec<OpenGlass>,
    /// Bypass rules in force, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bypasses: Vec<BypassInForce>,
    /// Number of bypass rules left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bypasses_left_out: usize,
    /// The newest configuration, where that was rejected.
    #[serde(default)]
    pub rejected: Option<RejectedConfiguration>,
    /// The last good configuration on disk is in use, or a document of it: since when it was in force first, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_last_good: Option<String>,
    /// Failure to read the configuration, at present.
    #[serde(default)]
    pub read_failure: Option<ReadFailure>,
    /// Every hook in force, those that drain, and those that went lately.
    pub hooks: Vec<HookReport>,
    /// Number of hooks left out.
    #[serde(default)]
    pub hooks_left_out: usize,
    /// The initializers that a process acts for, those without an instance first; then those that no longer are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initializers: Vec<InitializerReport>,
    /// Number of initializers left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initializers_left_out: usize,
    /// Time of the report.
    pub published: String,
}

/// A configuration that was read and is not in force because it is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedConfiguration {
    /// Revision by the source's count.
    pub revision: String,
    /// Time from which the newest configuration is invalid.
    pub since: String,
    /// The first problems, each with its file, its place and its fix.
    pub problems: Vec<String>,
    /// Number of problems.
    pub count: usize,
    /// The documents that are held back, while the others are in force; none where all of it was rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldReport>,
    /// Number of held-back documents left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_left_out: usize,
}

impl RejectedConfiguration {
    /// Is nothing of it in force?
    pub fn is_whole(&self) -> bool {
        self.held.is_empty()
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldReport {
    /// The document, as the source names it.
    pub document: String,
    /// Its last good state is in force; otherwise nothing of it is.
    pub keeps: bool,
    /// Since when.
    pub since: String,
    /// First problem, with its place and its fix.
    pub why: String,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Reads of the configuration that fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFailure {
    /// Error of the last read.
    pub what: String,
    /// Time from which no read has succeeded.
    pub since: String,
}

impl ReplicaReport {
    /// Revision in force there, in the terms of `wanted`: a number, or a digest.
    pub fn in_force(&self, wanted: &Revision) -> Option<Revision> {
        match wanted {
            Revision::Store(_) => Revision::parse(&self.revision),
            // The digest is known whatever the source calls its states.
            Revision::Digest(_) => Some(Revision::of_digest(&self.digest)).filter(|_| self.generation > 0),
        }
    }
}

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

/// Maximum length of one text, in characters.
pub const MAX_TEXT_CHARS: usize = 400;

/// Time in RFC 3339, to the second.
pub fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The beginning of a text that others wrote.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
