//! Adoption: Gatepost uses webhooks and policies that others have registered, in place of the apiserver.
//!
//! An *entry* is what is taken over and given back on its own: a webhook of a configuration, or a binding of a policy.
//! Gatepost marks an entry, and the apiserver then does not use it, whatever else its owner applies:
//!
//! - The mark of a webhook is one match condition, [`CONDITION`], whose expression is `false`. If the webhook's rules
//!   match resources for which Gatepost calls no hooks, the expression is true for these resources. If our registration
//!   names a Service and excludes namespaces, the expression is true in these namespaces.
//! - The mark of a binding is a suffix of the name of its policy, [`PARKED_SUFFIX`]: the binding is parked, as no policy
//!   has that name.
//!
//! Gatepost uses entries with the mark (it *calls* them: the webhook, or the evaluation of the policy) and skips those
//! without it. During a change, both sides use the entry, so that every request reaches it:
//!
//! ```text
//! leader: announces ---------> every replica calls it, and claims it ---------> mark applied
//!         (apiserver calls)    (both call: seconds)                             (Gatepost calls)
//! mark gone, by us or by the owner --> replicas go on for GRACE_PERIOD --> skipped
//! (apiserver calls)                    (both call: seconds)                (apiserver calls)
//! ```
//!
//! Each replica runs a [`Follower`] on its reads of the cluster. One replica also runs [`Leadership`], and writes. Both
//! use no clock and no I/O. [`Adoption`] is the loop around them. The sidecar passes it the reads ([`AdoptionReads`]),
//! and an interface to the entries in force and to its metrics and logs ([`Sidecar`]).
#![forbid(unsafe_code)]

mod adoption;
mod binding;
mod entry;
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
    adoption::{Adoption, AdoptionReads, AdoptionView, EntryInForce, Sidecar},
    binding::{PARKED_SUFFIX, bindings_of, can_be_parked},
    entry::{AssessedEntry, ClusterEntry, EntryKey, EntryKind, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION, ObjectAccess},
    fights::{FightRecord, Fights},
    follower::{
        CallPlan, CalledEntry, Cause, Follower, GRACE_PERIOD, MAX_READ_AGE_WITH_STALE_LEASE, MAX_READ_GAP,
        UnservedEntry,
    },
    leader::{Decision, Facts, Leader},
    leadership::{Leadership, Plan, Turn, Write},
    lease::{
        AdoptionSettings, Announcement, Claims, LEADER_LEASE, LEADER_LEASE_DURATION, Lease, MAX_ENTRIES, MAX_FIGHTS,
        REPLICA_LEASE_DURATION, leader_lease, lease_name, replica_lease,
    },
    reason::Reason,
    receivers::{ApiserverIdentities, ReceiverReader, Receivers, Route},
    record::{AdoptionFigures, AdoptionMetrics, EVENTS_PATH, TakenEntries, event},
    scope::{AdoptionRequests, AdoptionScope, parse_selector},
    startup::{Startup, names},
    webhook::{
        CONDITION, EXPRESSION, MAX_CONDITIONS, exempt_match, exempt_policy_match, webhooks_of, without_our_condition,
    },
    writes::{
        FINALIZER, FinalizerChange, MANAGER, OwnRegistration, RegistrationUpdate, WriteOutcome, change_finalizer,
        conditions_document, fence_document, finalizer_document, forced_removal, give_back_document, remove_mark,
        version_without_conditions, write,
    },
};

#[cfg(test)]
mod tests;
