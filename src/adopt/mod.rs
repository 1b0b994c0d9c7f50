//! Adopt: webhooks that others registered with an apiserver, and that Gatepost calls in its place.
//!
//! The mark of such a webhook is one match condition, [`CONDITION`], whose expression is `false`: the apiserver then does
//! not call the webhook, whatever else its owner applies. (Where its rules match resources about which Gatepost asks no
//! hook, the expression is true of these; where our registration leads to a Service and leaves namespaces out, it is true
//! in these.) Gatepost calls what carries it and passes over what does not, with an overlap on both sides so that no
//! request is judged by nobody:
//!
//! ```text
//! leader: announces ---------> every replica calls it, and says so ---------> condition applied
//!         (apiserver calls)    (both call: seconds)                           (Gatepost calls)
//! condition gone, by us or by the owner --> replicas go on for GRACE --> passed over
//! (apiserver calls)                         (both call: seconds)         (apiserver calls)
//! ```
//!
//! Nothing here reads a clock or a socket. `source::kubernetes` reads the cluster and runs [`Follower`], each replica for
//! itself; `watch::adoption` runs [`Lead`] on one replica, and writes.

mod asking;
mod decision;
mod fights;
mod follower;
mod guards;
mod heard;
mod key;
mod lead;
mod leader;
mod leases;
mod patch;
mod reason;
mod receivers;
mod selector;
mod standing;
mod unserved;

pub use self::{
    asking::{Asked, Asking, Cause, GRACE, RESUMES, SeenWebhook},
    decision::Decision,
    fights::{Fights, KeptFights},
    follower::{Followed, Follower, UNHEARD_FOR},
    guards::{Guard, Registered},
    key::WebhookKey,
    lead::{Lead, Plan, Turn, Write},
    leader::{Facts, Leader},
    leases::{
        Announcement, Claims, LEADER, LEADS, LIVE, Lease, MOST_FIGHTS, MOST_WEBHOOKS, Wishes, leader_lease, lease_name,
        replica_lease,
    },
    patch::{Carrier, GUARD, MANAGER, applied, fenced, forced_removal, given_back, guard},
    reason::Reason,
    receivers::{ApiserverIdentities, Receivers, Way},
    selector::{AdoptionScope, parse_selector},
    standing::{CONDITION, EXPRESSION, FENCE, GIVEN_BACK, MOST_CONDITIONS, WebhookStanding, standings, stripped},
    unserved::Unserved,
};

#[cfg(test)]
mod tests;
