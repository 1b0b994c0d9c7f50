//! The status of an `AdmissionControlConfiguration`: progress of each replica. Replicas write their own entry by
//! server-side apply, each as a field manager of its own, so every list that two may write is merged by its key.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Progress of Gatepost's replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Reports of the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicas: Option<Vec<Replica>>,
    /// Conditions that hold for all replicas together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// Report of one replica on itself and on this object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// The replica's name, unique among the replicas.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Identity of this run among all others, also those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// True where another replica goes by the same name, and one hides the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contested: Option<bool>,
    /// The version of Gatepost that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of the configuration in force there; each replica counts its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The `metadata.generation` of this object that is in force there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The revision of all that is in force there, as the source names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The digest of all that is in force there; replicas with the same one decide the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The store's revision at the last good read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<i64>,
    /// Time of the replica's last write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub renewed: Option<String>,
    /// Age of the last good read then, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// True while that is too old, and every review is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// True once it is stopping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<bool>,
    /// Problems that keep the newest configuration out of force: the first ones of this object. Problems of no object
    /// of this kind stand in the first object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Vec<String>>,
    /// State of this object in force while its newest cannot be served, though others' can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Stays>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub held_since: Option<String>,
    /// In the first object: the documents held back that are no object of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub others_held: Option<Vec<HeldDocument>>,
    /// In the first object: the break-glass documents that are open in the replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub break_glass: Option<Vec<OpenGlass>>,
    /// In the first object: the bypass rules in force in the replica, the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub bypasses: Option<Vec<BypassInForce>>,
    /// In the first object: faults that keep the replica from being called, or its hooks and initializers from being asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub faults: Option<Vec<ReplicaFault>>,
    /// The last good configuration on the replica's disk is in use, or a document of it: of when it is, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_last_good: Option<String>,
    /// The revision that was rejected, as the source names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_revision: Option<String>,
    /// Since when the newest configuration is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rejected_since: Option<String>,
    /// True while reviews under way still use hooks that this object no longer names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
    /// True once this object is being deleted, that was read, and no review uses a hook of it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// States of this object's hooks. A hook that has moved is there twice: with its new endpoint and its old.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<HookStatus>>,
    /// In the first object: the hooks of no object of this kind, such as those of objects that go or are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub others: Option<Vec<HookStatus>>,
}

/// Fault of one replica that is no hook's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaFault {
    /// Part of the replica that is at fault.
    pub kind: ReplicaFaultKind,
    /// Fault, its effect, and what to do.
    pub what: String,
}

/// Part of a replica that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaFaultKind {
    /// The serving certificate is not valid at present.
    Certificate,
    /// The registration with the apiserver does not send what is to be seen.
    Registration,
    /// An initializer has no instance, or does not act.
    Initializer,
}

impl fmt::Display for ReplicaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ReplicaFaultKind::Certificate => "CERTIFICATE",
            ReplicaFaultKind::Registration => "REGISTRATION",
            ReplicaFaultKind::Initializer => "INITIALIZER",
        };
        write!(f, "{kind} {}", self.what)
    }
}

/// State of a document in force while its newest cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stays {
    /// Its last good state.
    LastGood,
    /// Nothing: it never had a good state.
    Nothing,
}

/// A document whose newest state is not in force in one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldDocument {
    /// The document, as the source names it.
    #[schemars(length(min = 1, max = 512))]
    pub document: String,
    /// State in force.
    pub stays: Stays,
    /// Since when.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// First problem.
    pub why: String,
}

/// A break-glass document that is open in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenGlass {
    /// The document's name.
    pub name: String,
    /// The hooks that are not asked; left out: no hook is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<String>>,
    /// Time at which it closes there.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// Reason for opening it.
    pub reason: String,
    /// User who opened it, in his own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A bypass rule in force in one replica; it ends when it is taken out of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BypassInForce {
    /// The rule's name.
    pub name: String,
    /// Effect on the hooks: `Skip` or `FailOpen`.
    pub effect: String,
    /// The hooks that it is about; left out: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<String>>,
    /// The requests that it is about, in words.
    pub scope: String,
    /// Reason for its existence.
    pub reason: String,
}

/// Calls of a hook that failed lately, in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFailures {
    /// Number of failed calls.
    pub failed: u64,
    /// Calls that ended in that time, those that failed included.
    pub calls: u64,
    /// Length of that time, in seconds.
    pub seconds: u64,
    /// Kind of the last failure, as `gatepost_hook_call_failures_total` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Time of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last: Option<String>,
    /// Number of calls that have succeeded since the last failure, where any has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_since: Option<u64>,
    /// Time of the last of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_success: Option<String>,
}

impl CallFailures {
    /// Have as many calls succeeded since the last failure as had failed?
    pub fn has_recovered(&self) -> bool {
        self.succeeded_since.is_some_and(|succeeded| succeeded >= self.failed)
    }
}

/// Calls of a mutating hook ahead of its turn that did not count lately, in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallsInVain {
    /// Number of calls in vain: a hook before it changed the object, or ended the request.
    pub in_vain: u64,
    /// All calls of the hook in that time.
    pub calls: u64,
    /// Length of that time, in seconds.
    pub seconds: u64,
}

/// State of a hook in one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The hook's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Identity among all hooks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub id: String,
    /// The configuration that holds it, or held it, where that is not this object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub configuration: String,
    /// Endpoint at which it is asked, would be, or was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub endpoint: String,
    /// New endpoint, until it has been seen to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<String>,
    /// State of the hook.
    pub state: HookState,
    /// Since when.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: String,
    /// Reason for the state, where there is one to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It has passed no probe within `rollout.probeWithin`: what that means for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overdue: Option<String>,
    /// Since when its endpoint, or the one that it moves to, is probed without success.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub unproven_since: Option<String>,
    /// Its calls that failed lately, where any did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<CallFailures>,
    /// Its calls ahead of its turn that did not count lately, where any did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_vain: Option<CallsInVain>,
}

/// State of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum HookState {
    /// It is tried before it is used.
    Probing,
    /// It is asked.
    #[default]
    Active,
    /// It is no longer asked, and finishes what is under way.
    Draining,
    /// Nothing of it is left.
    Gone,
    /// State of a later version. It is never written.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One thing that holds or does not, as Kubernetes' own kinds say it (`k8s.io/apimachinery`, `metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub condition_type: String,
    /// Does it hold?
    pub status: ConditionStatus,
    /// The `metadata.generation` that it is said of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of its status's last change.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Reason in one word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Reason in a sentence; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// Does a condition hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Unknown.
    Unknown,
}
