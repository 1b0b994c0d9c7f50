//! The status of an `AdmissionControlConfiguration`: progress of each replica. Replicas write their own entry by
//! server-side apply, each as its own field manager, so lists with several writers are merged by a key.

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
    /// Conditions over all replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// Report of one replica about itself and this object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Name of the replica, unique among the replicas.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Identity of this run of the replica, unique even if another replica has the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// True if another replica has the same name, so that one of them hides the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contested: Option<bool>,
    /// Version of Gatepost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of the configuration in force in the replica; each replica counts its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The `metadata.generation` of this object that is in force in the replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Revision of the whole configuration in force in the replica, as the source names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Digest of the whole configuration in force in the replica. Replicas with equal digests decide alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Revision of the store at the last good read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<i64>,
    /// Time of the replica's last write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub renewed: Option<String>,
    /// Age of the last good read at that time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// True if the last good read is too old: requests are rejected unless a bypass or break-glass applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// True if the replica is stopping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<bool>,
    /// The first problems for which the replica rejects the newest state of this object. In the first object, also
    /// problems that belong to no object of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Vec<String>>,
    /// The state of this object that the replica uses instead of the newest, if it rejects only the newest state of
    /// this object, and the rest of the configuration is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<StateInForce>,
    /// Time since when the newest state of this object is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub held_since: Option<String>,
    /// In the first object: documents other than objects of this kind whose newest state is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub others_held: Option<Vec<HeldDocument>>,
    /// In the first object: break-glass documents that are open in the replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub break_glass: Option<Vec<OpenBreakGlass>>,
    /// In the first object: the first bypass rules in force in the replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub bypasses: Option<Vec<BypassInForce>>,
    /// In the first object: faults that prevent calls of the replica, or of its hooks and initializers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub faults: Option<Vec<ReplicaFault>>,
    /// Date of the last good configuration on the replica's disk, and the reason to use it. Set if the replica uses
    /// that configuration, or a document of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_last_good: Option<String>,
    /// Revision that was rejected, as the source names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_revision: Option<String>,
    /// Time since when the newest configuration is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rejected_since: Option<String>,
    /// True while running reviews use hooks that this object no longer contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
    /// True once the replica has read that this object is being deleted, and no review uses its hooks any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// States of this object's hooks. A hook that has moved is listed twice: with its new endpoint and its old.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<HookStatus>>,
    /// In the first object: hooks that belong to no object of this kind, such as those of objects that are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub others: Option<Vec<HookStatus>>,
}

/// A fault of one replica that is not a hook's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaFault {
    /// Part of the replica that is at fault.
    pub kind: ReplicaFaultKind,
    /// The fault, its effect, and what to do.
    pub what: String,
}

/// Part of a replica that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaFaultKind {
    /// The serving certificate is not valid at present.
    Certificate,
    /// The registration with the apiserver does not send every request that hooks or initializers need.
    Registration,
    /// The params of a new binding of a policy were never read, so it is not evaluated.
    Params,
    /// An initializer has no instance, or does not act.
    Initializer,
}

impl fmt::Display for ReplicaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ReplicaFaultKind::Certificate => "CERTIFICATE",
            ReplicaFaultKind::Registration => "REGISTRATION",
            ReplicaFaultKind::Params => "PARAMS",
            ReplicaFaultKind::Initializer => "INITIALIZER",
        };
        write!(f, "{kind} {}", self.what)
    }
}

/// State of a document that is in force instead of its newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StateInForce {
    /// Its last good state.
    LastGood,
    /// Nothing, because it never had a good state.
    Nothing,
}

/// A document whose newest state is not in force in one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldDocument {
    /// Name of the document, as the source gives it.
    #[schemars(length(min = 1, max = 512))]
    pub document: String,
    /// State of the document that is in force.
    pub stays: StateInForce,
    /// Time since when its newest state is not in force.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// First problem of the document.
    pub why: String,
}

/// A break-glass document that is open in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenBreakGlass {
    /// Name of the document.
    pub name: String,
    /// Hooks that are skipped. If omitted, all hooks are skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<String>>,
    /// Time at which it closes in the replica.
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// Reason for opening it.
    pub reason: String,
    /// Name of the user who opened it, as that user wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A bypass rule in force in one replica. It stays in force until it is removed from the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BypassInForce {
    /// Name of the rule.
    pub name: String,
    /// Effect on the hooks: `Skip` or `FailOpen`.
    pub effect: String,
    /// Hooks that the rule applies to. If omitted, it applies to all hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub hooks: Option<Vec<String>>,
    /// Requests that the rule matches, in words.
    pub scope: String,
    /// Reason for the rule.
    pub reason: String,
}

/// Recent failed calls of a hook, in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallFailures {
    /// Number of failed calls.
    pub failed: u64,
    /// Number of calls that ended in the last `seconds`, including failed ones.
    pub calls: u64,
    /// Length of the time in which the calls are counted, in seconds.
    pub seconds: u64,
    /// Kind of the last failure, as `gatepost_hook_call_failures_total` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Time of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last: Option<String>,
    /// Number of successful calls since the last failure, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_since: Option<u64>,
    /// Time of the last successful call since the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_success: Option<String>,
}

impl CallFailures {
    /// Returns true if at least as many calls have succeeded since the last failure as had failed.
    pub fn has_recovered(&self) -> bool {
        self.succeeded_since.is_some_and(|succeeded| succeeded >= self.failed)
    }
}

/// Recent speculative calls of a mutating hook that were discarded, in one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscardedCalls {
    /// Number of discarded calls. A hook before this one changed the object, or ended the request.
    #[serde(rename = "inVain")]
    pub discarded: u64,
    /// Number of all calls of the hook in the last `seconds`.
    pub calls: u64,
    /// Length of the time in which the calls are counted, in seconds.
    pub seconds: u64,
}

/// State of a hook in one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// Name of the hook.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Identity of the hook among all hooks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub id: String,
    /// Name of the configuration that contains or contained the hook, if it is not this object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub configuration: String,
    /// Endpoint at which the hook is, would be, or was called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>")]
    pub endpoint: String,
    /// New endpoint of the hook, until a probe of it has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<String>,
    /// State of the hook.
    pub state: HookState,
    /// Time since when the hook is in this state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: String,
    /// Reason for the state, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Effect on requests of a hook that has passed no probe within `rollout.probeWithin`. Set only for such a hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overdue: Option<String>,
    /// Time since when probes of its endpoint, or of its new endpoint, do not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub unproven_since: Option<String>,
    /// Recent failed calls, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<CallFailures>,
    /// Recent discarded calls, if any.
    #[serde(rename = "inVain", skip_serializing_if = "Option::is_none")]
    pub discarded: Option<DiscardedCalls>,
}

/// State of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum HookState {
    /// The hook is probed, and not called yet.
    Probing,
    /// The hook is called.
    #[default]
    Active,
    /// The hook is no longer called for new requests. Running calls continue.
    Draining,
    /// The hook is no longer used.
    Gone,
    /// A state of a later version of Gatepost. It is never written.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// A condition, as in Kubernetes' own kinds (`k8s.io/apimachinery`, `metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub condition_type: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// The `metadata.generation` for which the condition was determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of the status.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Reason in one word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Reason in a sentence; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// It is unknown whether the condition is met.
    Unknown,
}
