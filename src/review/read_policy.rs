//! Read policy: the objects that one read of an apiserver shows, which stores them before they are initialized.

use crate::model::initialization::{ReadVerb, ReadingUser, Visibility, visibility};
use std::{sync::Arc, time::Instant};

use tokio::time::timeout_at;

use super::{gate::Gate, initialize::permission};
use crate::{
    cel::User,
    clock::now,
    initialize::{HeadRule, ReadRepair, unfinished::StoredObject},
    live::Generation,
    model::FailurePolicy,
};

/// One read.
#[derive(Clone, Debug)]
pub struct ObjectRead {
    /// Its verb.
    pub verb: ReadVerb,
    /// Name of the user.
    pub username: Arc<str>,
    /// Attributes of the user.
    pub user: Arc<User>,
    /// API group.
    pub group: Box<str>,
    /// Resource.
    pub resource: Box<str>,
    /// Namespace; may be empty.
    pub namespace: Box<str>,
    /// Name; may be empty.
    pub name: Box<str>,
    /// Unfinished objects are asked for.
    pub includes: bool,
}

/// Decision on one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Objects that it shows.
    pub visibility: Visibility,
    /// Names that do not fail open; `None` while the configuration is not known to be current.
    pub must_act: Option<Vec<Arc<str>>>,
    /// Age of objects whose head goes otherwise.
    pub repair: ReadRepair,
    /// Revision of the configuration.
    pub revision: String,
}

/// Decides one read, by `deadline`. A question without an answer hides objects, which is safe.
pub async fn read_policy(gate: &Gate, read: &ObjectRead, deadline: Instant) -> ReadPolicy {
    let fresh = gate.current.is_fresh(now());
    let generation = gate.current.load();
    let permitted = read.includes && fresh && permitted(gate, &generation, read, deadline).await;
    let user = ReadingUser { user: &read.username, includes: read.includes, may_initialize: permitted };
    ReadPolicy {
        visibility: visibility(read.verb, user),
        must_act: fresh.then(|| must_act(&generation, &read.group, &read.resource)),
        repair: ReadRepair::of(generation.snapshot.initializers_of(&read.group, &read.resource)),
        revision: generation.revision.to_string(),
    }
}

/// Permission to see unfinished objects of the resource: owners of its initializers have it, and who may `initialize` it.
async fn permitted(gate: &Gate, generation: &Generation, read: &ObjectRead, deadline: Instant) -> bool {
    let entry = generation.snapshot.initializers_of(&read.group, &read.resource);
    let in_group =
        |wanted: &[Box<str>]| wanted.iter().any(|wanted| read.user.groups.iter().any(|one| **one == **wanted));
    let owners = entry.into_iter().flat_map(|entry| &entry.initializers).filter_map(|one| one.owners.as_ref());
    let named = entry.and_then(|entry| entry.may_initialize.as_ref());
    if owners.chain(named).any(|who| who.is(&read.username, in_group)) {
        return true;
    }
    let Some(authorizer) = &gate.authorizer else { return false };
    let check = permission((&read.group, &read.resource), (&read.namespace, &read.name));
    let Ok(asked) = authorizer.ask(&read.username, &read.user, check) else { return false };
    matches!(timeout_at(deadline.into(), asked).await, Ok(Ok(Ok(decision))) if decision.allowed)
}

/// Names of the resource's initializers that do not fail open.
fn must_act(generation: &Generation, group: &str, resource: &str) -> Vec<Arc<str>> {
    let entry = generation.snapshot.initializers_of(group, resource);
    let all = entry.into_iter().flat_map(|entry| &entry.initializers);
    all.filter(|one| one.failure_policy != FailurePolicy::Ignore).map(|one| Arc::clone(&one.name)).collect()
}

/// Configuration of the head of a stored object's list.
pub fn head_rule(generation: &Generation, object: &StoredObject) -> HeadRule {
    HeadRule::of(generation.snapshot.initializers_of(&object.group, &object.resource), object)
}
