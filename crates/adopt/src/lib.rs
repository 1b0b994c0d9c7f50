//! Adoption: webhooks that others registered with an apiserver, and that Gatepost calls in its place.
//!
//! The mark of such a webhook is one match condition, [`CONDITION`], whose expression is `false`. The apiserver then does
//! not call the webhook, whatever else its owner applies. Where its rules match resources for which Gatepost calls no
//! hooks, the expression is true for these. Where our registration leads to a Service and excludes namespaces, it is true
//! in these. Gatepost calls webhooks with the condition and skips those without it. Both sides overlap, so that somebody
//! calls the webhook for every request:
//!
//! ```text
//! leader: announces ---------> every replica calls it, and claims it ---------> condition applied
//!         (apiserver calls)    (both call: seconds)                             (Gatepost calls)
//! condition gone, by us or by the owner --> replicas go on for GRACE_PERIOD --> skipped
//! (apiserver calls)                         (both call: seconds)                (apiserver calls)
//! ```
//!
//! Each replica runs a [`Follower`] on what it reads from the cluster. One replica also runs [`Leadership`], and writes.
//! Neither knows a clock or a socket. [`Adoption`] is the loop around them; the sidecar gives it what it reads
//! ([`AdoptionReads`]), what it calls and where it reports ([`Sidecar`]).
#![forbid(unsafe_code)]

mod adoption;
mod documents;
mod fights;
mod follower;
mod leader;
mod leadership;
mod lease;
mod metrics;
mod reason;
mod receivers;
mod record;
mod registrations;
mod rights;
mod scope;
mod settings;
mod startup;
mod webhook;
mod writes;

pub use self::{
    adoption::{Adoption, AdoptionReads, AdoptionView, Sidecar, WebhookInForce},
    documents::{
        Carrier, FINALIZER, MANAGER, conditions_document, fence_document, finalizer_document, forced_removal,
        give_back_document,
    },
    fights::{FightRecord, Fights},
    follower::{
        CallPlan, CalledWebhook, Cause, Follower, GRACE_PERIOD, MAX_READ_AGE_WITH_STALE_LEASE, MAX_READ_GAP,
        UnservedWebhook,
    },
    leader::{Decision, Facts, Leader},
    leadership::{Leadership, Plan, Turn, Write},
    lease::{
        Announcement, Claims, LEADER_LEASE, LEADER_LEASE_DURATION, Lease, MAX_FIGHTS, MAX_WEBHOOKS,
        REPLICA_LEASE_DURATION, leader_lease, lease_name, replica_lease,
    },
    metrics::{AdoptionMetrics, Webhooks},
    reason::Reason,
    receivers::{ApiserverIdentities, ReceiverReader, Receivers, Route},
    record::{EVENTS_PATH, event},
    registrations::{FinalizerChange, OwnRegistration},
    scope::{AdoptionRequests, AdoptionScope, parse_selector},
    settings::AdoptionSettings,
    startup::{Startup, names},
    webhook::{
        CONDITION, EXPRESSION, FENCE, GIVEN_BACK, MAX_CONDITIONS, SeenWebhook, WebhookKey, WebhookStanding,
        configuration_path, standings, stripped,
    },
    writes::{RegistrationUpdate, WriteOutcome, change_finalizer, remove_condition, version_without_conditions, write},
};

#[cfg(test)]
mod tests;
