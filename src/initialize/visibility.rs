//! Visibility: objects that are not initialized, as GET, LIST and WATCH show them.
//!
//! It is decided once for a request, by who asks and how; the apiserver then applies it to each object by its own
//! `metadata.initializers`. So a read costs one question, however many objects it is about.

use crate::model::{StatusInfo, StatusMetadata};

/// Objects of one resource that a request sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All of them.
    All,
    /// Initialized ones.
    Initialized,
}

impl Visibility {
    /// True where it shows an object that is initialized, or is not.
    pub fn shows(self, initialized: bool) -> bool {
        initialized || self == Self::All
    }
}

/// Verb of a request that reads objects, or finds those it changes by reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVerb {
    /// One object by its name.
    Get,
    /// All objects of a selection.
    List,
    /// Their changes.
    Watch,
    /// All objects of a selection are deleted.
    DeleteCollection,
}

/// User of a read, and the way it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadingUser<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// `includeUninitialized=true` is given.
    pub includes: bool,
    /// The user holds the verb `initialize` for the resource, or owns an initializer of it.
    pub may_initialize: bool,
}

/// Users that must see every object. The garbage collector takes the dependents of an owner that it does not find for
/// orphans and deletes them; the namespace controller would leave hidden objects in a namespace that is gone; quota
/// would be counted without them.
// source: reference §C (#51842, #53109, #47138) and §D4, "GC, namespace, quota and node-lifecycle identities".
pub const SEE_ALL: [&str; 5] = [
    "system:apiserver",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:resourcequota-controller",
];

/// Objects that one request sees. A user who asks for unfinished objects without permission gets the others: a
/// parameter that is not understood changes nothing either.
pub fn visibility(verb: ReadVerb, reader: ReadingUser<'_>) -> Visibility {
    let ReadingUser { user, includes, may_initialize } = reader;
    // Deleting is always allowed, and a namespace must become empty.
    let all = verb == ReadVerb::DeleteCollection || SEE_ALL.contains(&user) || (includes && may_initialize);
    if all { Visibility::All } else { Visibility::Initialized }
}

/// Type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// An object that was not seen before.
    Added,
    /// An object that is seen, and has changed.
    Modified,
    /// An object that is seen no more. Its content is that before the change, with the event's resource version.
    Deleted,
}

/// Event that a watch is sent, where it is sent one: `before` and `after` say whether it sees the object as it was and as
/// it is. An object that did not exist, or does not any more, is not seen.
// source: kubernetes/apiserver 1.13 pkg/storage/etcd3/watcher.go and cacher/cacher.go, convertToWatchEvent.
pub fn translated(event: WatchEvent, before: bool, after: bool) -> Option<WatchEvent> {
    let (before, after) = match event {
        WatchEvent::Added => (false, after),
        WatchEvent::Modified => (before, after),
        WatchEvent::Deleted => (before, false),
    };
    match (before, after) {
        (false, true) => Some(WatchEvent::Added),
        (true, true) => Some(WatchEvent::Modified),
        (true, false) => Some(WatchEvent::Deleted),
        (false, false) => None,
    }
}

/// Code of the answer to a GET of an object that is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenAs {
    /// 202: the name is taken, and the object is on its way.
    Accepted,
    /// 404. A kubelet takes an object that it cannot read for an error and one that is not there for none.
    NotFound,
}

impl HiddenAs {
    /// Answer for a user of these groups.
    pub fn to(in_group: impl FnOnce(&str) -> bool) -> Self {
        if in_group("system:nodes") { Self::NotFound } else { Self::Accepted }
    }
}

/// The object that a GET names, as far as its answer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenObject<'a> {
    /// API group.
    pub group: &'a str,
    /// Resource, plural.
    pub resource: &'a str,
    /// Name.
    pub name: &'a str,
    /// uid, of the object that is there.
    pub uid: &'a str,
    /// Its resource version, from which a client can watch.
    pub resource_version: &'a str,
}

/// Answer to a GET of an object that is hidden.
///
/// `status` is `Failure` although the code is a success: client-go takes a Status below 300 for an error only then, and
/// a typed client would otherwise return an empty object and no error.
// source: extension proposal, "Explicit GETs ... 202 Accepted"; reference §D4, "Trap".
pub fn hidden(how: HiddenAs, named: HiddenObject<'_>) -> StatusInfo {
    let HiddenObject { group, resource, name, uid, resource_version } = named;
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let failure = |code, reason: &str, message| StatusInfo {
        code,
        status: "Failure".into(),
        reason: reason.into(),
        message,
        details_name: name.into(),
        details_group: group.into(),
        details_kind: resource.into(),
        ..StatusInfo::default()
    };
    match how {
        HiddenAs::NotFound => failure(404, "NotFound", format!("{shown} \"{name}\" not found")),
        HiddenAs::Accepted => StatusInfo {
            details_uid: uid.into(),
            metadata: Some(Box::new(StatusMetadata {
                resource_version: resource_version.into(),
                ..StatusMetadata::default()
            })),
            ..failure(202, "Initializing", format!("{shown} \"{name}\" is not initialized yet"))
        },
    }
}
