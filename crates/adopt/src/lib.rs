//! Adoption: Gatepost calls webhooks that others have registered, in place of the apiserver.
//!
//! Gatepost marks such a webhook with one match condition, [`CONDITION`], whose expression is `false`. The apiserver
//! then does not call the webhook, whatever else its owner applies. If the webhook's rules match resources for which
//! Gatepost calls no hooks, the expression is true for these resources. If our registration names a Service and
//! excludes namespaces, the expression is true in these namespaces. Gatepost calls webhooks with the condition and
//! skips those without it. During a change, both sides call the webhook, so that every request reaches it:
//!
//! ```text
//! leader: announces ---------> every replica calls it, and claims it ---------> condition applied
//!         (apiserver calls)    (both call: seconds)                             (Gatepost calls)
//! condition gone, by us or by the owner --> replicas go on for GRACE_PERIOD --> skipped
//! (apiserver calls)                         (both call: seconds)                (apiserver calls)
//! ```
//!
//! Each replica runs a [`Follower`] on its reads of the cluster. One replica also runs [`Leadership`], and writes. Both
//! use no clock and no I/O. [`Adoption`] is the loop around them. The sidecar passes it the reads ([`AdoptionReads`]),
//! and an interface to the webhooks in force and to its metrics and logs ([`Sidecar`]).
#![forbid(unsafe_code)]

mod adoption;
mod fights;
mod follower;
mod leader;
mod leadership;
mod lease;
mod reason;
mod receivers;
mod record;
mod scope;
mod startup;
mod webhook;
mod writes;

pub use self::{
    adoption::{Adoption, AdoptionReads, AdoptionView, Sidecar, WebhookInForce},
    fights::{FightRecord, Fights},
    follower::{
        CallPlan, CalledWebhook, Cause, Follower, GRACE_PERIOD, MAX_READ_AGE_WITH_STALE_LEASE, MAX_READ_GAP,
        UnservedWebhook,
    },
    leader::{Decision, Facts, Leader},
    leadership::{Leadership, Plan, Turn, Write},
    lease::{
        AdoptionSettings, Announcement, Claims, LEADER_LEASE, LEADER_LEASE_DURATION, Lease, MAX_FIGHTS, MAX_WEBHOOKS,
        REPLICA_LEASE_DURATION, leader_lease, lease_name, replica_lease,
    },
    reason::Reason,
    receivers::{ApiserverIdentities, ReceiverReader, Receivers, Route},
    record::{AdoptionFigures, AdoptionMetrics, EVENTS_PATH, Webhooks, event},
    scope::{AdoptionRequests, AdoptionScope, parse_selector},
    startup::{Startup, names},
    webhook::{
        AssessedWebhook, CONDITION, ClusterWebhook, EXPRESSION, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION,
        MAX_CONDITIONS, WebhookKey, configuration_path, webhooks_of, without_our_condition,
    },
    writes::{
        FINALIZER, FinalizerChange, MANAGER, OwnRegistration, RegistrationUpdate, WriteOutcome, change_finalizer,
        conditions_document, fence_document, finalizer_document, forced_removal, give_back_document, remove_condition,
        version_without_conditions, write,
    },
};

#[cfg(test)]
mod tests;
