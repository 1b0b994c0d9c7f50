//! Report of one replica, as JSON.

use std::{collections::BTreeMap, time::SystemTime};

use gatepost_api::{
    Revision,
    schema::status::{
        BypassInForce, HookState as HookStanding, HookStatus as HookReport, OpenBreakGlass, ReplicaFault,
    },
};
use serde::{Deserialize, Serialize};

/// Report of one replica. Times are RFC 3339, by the replica's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaReport {
    /// The replica's name.
    pub replica: String,
    /// Identity of this run among all runs, including those of the same name.
    #[serde(default)]
    pub instance: String,
    /// Another replica has the same name, and one hides the other.
    #[serde(default)]
    pub contested: bool,
    /// Version of the program.
    pub version: String,
    /// Number of the generation in force, counted by this replica; 0 before the first.
    pub generation: u64,
    /// Revision in force, in the format of [`Revision`].
    pub revision: String,
    /// Digest (hex) of the configuration in force; "" before the first.
    pub digest: String,
    /// The store's revision at the last good read, if the source has revisions.
    #[serde(default)]
    pub observed: Option<u64>,
    /// Seconds since the start of the last good read, at the time of this report.
    #[serde(default)]
    pub age_seconds: Option<f64>,
    /// The configuration is too old: the replica rejects every request.
    pub stale: bool,
    /// The replica is stopping.
    #[serde(default)]
    pub stopping: bool,
    /// Faults that prevent calls of the replica, or of its hooks and initializers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<ReplicaFault>,
    /// Open break-glass documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub break_glass: Vec<OpenBreakGlass>,
    /// The first bypass rules in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bypasses: Vec<BypassInForce>,
    /// Number of bypass rules left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bypasses_left_out: usize,
    /// The newest configuration, if it was rejected.
    #[serde(default)]
    pub rejected: Option<RejectedConfiguration>,
    /// Description of the last good configuration on disk, if it or a document of it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_last_good: Option<String>,
    /// Current failure to read the configuration.
    #[serde(default)]
    pub read_failure: Option<ReadFailure>,
    /// Every hook that is in force, drains, or was removed recently.
    pub hooks: Vec<HookReport>,
    /// Number of hooks left out.
    #[serde(default)]
    pub hooks_left_out: usize,
    /// Initializers with processes: first those without an instance, last those that are no longer in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initializers: Vec<InitializerReport>,
    /// Number of initializers left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub initializers_left_out: usize,
    /// Number of admission policies that decide in the replica.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub policies: usize,
    /// The first hooks and policies that do not enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unenforced: Vec<UnenforcedReport>,
    /// Number of hooks and policies that do not enforce and are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unenforced_left_out: usize,
    /// Number of canaries that `unenforced` does not list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub canaries_left_out: usize,
    /// Plugins of apiservers that follow the rule index; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugins: Option<PluginReport>,
    /// Time of the report.
    pub published: String,
}

/// A hook or policy that does not enforce, or does so for a share of the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnenforcedReport {
    /// What it is: `hook` or `policy`.
    pub what: String,
    /// Its name.
    pub name: String,
    /// Its enforcement: `Warn`, `Audit` or `Shadow`; `Deny` if it is a canary.
    pub enforcement: String,
    /// Its share of the requests if it is a canary, and what it is to replace, such as `5% of NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<String>,
    /// Number of decisions in shadow since the replica started, by outcome, without zeros.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: BTreeMap<String, u64>,
    /// The last requests that it would have denied in shadow, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<KeptRequestReport>,
    /// Number of requests that a canary and the other have both decided since the replica started: `same` and
    /// `different`, without zeros.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub comparisons: BTreeMap<String, u64>,
    /// The last requests that they decided otherwise, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<KeptRequestReport>,
}

/// A request that would have been denied, or that a canary decided otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptRequestReport {
    /// Time of the decision.
    pub at: String,
    /// Operation, kind and name of the object.
    pub request: String,
    /// Message of the rejection; absent if the replica keeps no texts of hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Plugins that follow the rule index of a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginReport {
    /// Number of attached plugins.
    pub attached: usize,
    /// Time that the slowest one took to acknowledge the newest rule index, or has taken so far, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_acknowledgement_seconds: Option<f64>,
    /// Number of a newer generation that decides reviews already, and does not count as in force: a plugin may still
    /// skip requests by an older rule index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged_generation: Option<u64>,
}

/// A configuration that was read and is not in force because it is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedConfiguration {
    /// Revision by the source's count.
    pub revision: String,
    /// Time from which the newest configuration is invalid.
    pub since: String,
    /// The first problems, each with its file, position and fix.
    pub problems: Vec<String>,
    /// Number of problems.
    pub count: usize,
    /// Documents that are held back while the others are in force; empty if the whole configuration was rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldReport>,
    /// Number of held-back documents left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_left_out: usize,
}

impl RejectedConfiguration {
    /// Returns true if nothing of it is in force.
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
    /// True if its last good state is in force, false if nothing of it is.
    pub keeps: bool,
    /// Time from which it has been held back.
    pub since: String,
    /// First problem, with its position and fix.
    pub why: String,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Failure of reads of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFailure {
    /// Error of the last read.
    pub what: String,
    /// Time from which no read has succeeded.
    pub since: String,
}

impl ReplicaReport {
    /// Returns the revision in force, in the form of `wanted`: a number or a digest.
    pub fn in_force(&self, wanted: &Revision) -> Option<Revision> {
        match wanted {
            Revision::Store(_) => Revision::parse(&self.revision),
            // Every source has a digest.
            Revision::Digest(_) => Some(Revision::of_digest(&self.digest)).filter(|_| self.generation > 0),
        }
    }
}

/// Report of one initializer with processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializerReport {
    /// Its name.
    pub name: String,
    /// Failure policy for objects on which it does not act.
    pub failure_policy: String,
    /// Number of attached instances.
    pub instances: usize,
    /// Number of objects that wait for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub holds: usize,
    /// Waiting time of the oldest of these objects, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_hold_seconds: Option<f64>,
    /// Time from which no instance has been attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended_since: Option<String>,
    /// Probing: no instance has been attached since it was configured, so it is not called and rejects nothing.
    /// Draining and Gone: it is no longer in force.
    #[serde(default)]
    pub state: HookStanding,
    /// Time from which it has been Draining or Gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_since: Option<String>,
}

/// Maximum length of one text in a report, in characters.
pub const MAX_TEXT_CHARS: usize = 400;

/// Formats a time as RFC 3339, to the second.
pub fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Cuts a text of others to [`MAX_TEXT_CHARS`] characters.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
