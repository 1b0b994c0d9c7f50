//! Initialization: names and rules that everything which touches unfinished objects shares.
//!
//! An object is unfinished until every initializer of its resource has acted on it. Until then others do not see it.

use std::{collections::HashMap, fmt};

use super::{StatusInfo, StatusMetadata};

/// The verb that a client needs to write an object's list itself, or to change an object that is not initialized.
// source: "Extension of admission control via initializers and external admission enforcement", "the `initialize` verb".
pub const VERB: &str = "initialize";
/// Entries of one list.
pub const MAX_PENDING: usize = 128;

/// Label that an object has until it is initialized, where its apiserver knows nothing of initializers. Its value names
/// the initialization.
pub const PENDING_LABEL: &str = "init.gatepost.dev/pending";
/// Annotation with the list of such an object.
pub const STATE_ANNOTATION: &str = "init.gatepost.dev/state";
/// Bytes of a label's value.
const MAX_LABEL_BYTES: usize = 63;
/// Beginning of the warning by which a proxy learns that the object it has created waits.
const PENDING_WARNING: &str = "init pending ";

/// Value of the label for so much randomness: its hexadecimal digits.
pub fn init_id(random: [u64; 2]) -> String {
    format!("{:016x}{:016x}", random[0], random[1])
}

/// True for a value of the label that Gatepost may have set.
fn is_init_id(text: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Warning to the creator of an object that is stored unfinished.
pub fn pending_warning(init_id: &str) -> String {
    format!("{PENDING_WARNING}{init_id}")
}

/// The id in such a warning.
pub fn id_in_pending_warning(text: &str) -> Option<&str> {
    text.strip_prefix(PENDING_WARNING).filter(|id| is_init_id(id))
}

/// Resources whose objects an apiserver answers and does not store. Subresources (bindings, evictions, scales) have no
/// entries at all.
// source: k8s.io/kubernetes pkg/registry, storages that implement rest.Creater alone.
const NOT_STORED: [(&str, &str); 7] = [
    ("", "bindings"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];
/// Resources without which the cluster itself does not work, each with what happens while one of them is hidden.
const NEEDED: [(&str, &str, &str); 4] = [
    ("", "events", "they would be written three times each"),
    ("", "namespaces", "nothing could be created in them meanwhile"),
    ("", "nodes", "a kubelet that cannot see its Node registers it again and again"),
    (
        "coordination.k8s.io",
        "leases",
        "who waits for one takes its holder for dead, and Gatepost's replicas agree by one themselves",
    ),
];

/// Reason why objects of a resource are never stored unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// They are answered, and not stored.
    NotStored,
    /// They must be visible; what happens otherwise.
    Needed(&'static str),
}

/// Reason why objects of this resource are never stored unfinished, where there is one.
pub fn unfit(group: &str, resource: &str) -> Option<Unfit> {
    if NOT_STORED.contains(&(group, resource)) {
        return Some(Unfit::NotStored);
    }
    let needed = NEEDED.iter().find(|needed| (needed.0, needed.1) == (group, resource));
    needed.map(|(.., why)| Unfit::Needed(why))
}

/// Names of initializers that wait for each other in a circle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<Box<str>>);

impl fmt::Display for Cycle {
    /// `a after b after a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.first().into_iter();
        let names: Vec<&str> = self.0.iter().chain(first).map(AsRef::as_ref).collect();
        f.write_str(&names.join(" after "))
    }
}

/// The order in which initializers act, as indices: each behind all that it names, and otherwise as written. Unknown
/// names are ignored. Linear in entries and names.
///
/// # Errors
/// Some wait for each other.
pub fn order<'a, N, A>(entries: &'a [N], name: impl Fn(&'a N) -> &'a str, after: A) -> Result<Vec<usize>, Cycle>
where
    A: Fn(&'a N) -> &'a [Box<str>],
{
    let places: HashMap<&str, usize> = entries.iter().enumerate().map(|(at, entry)| (name(entry), at)).collect();
    let waits: Vec<Vec<usize>> = entries
        .iter()
        .map(|entry| after(entry).iter().filter_map(|other| places.get(&**other).copied()).collect())
        .collect();
    let mut walk = Walk { waits: &waits, state: vec![Visit::New; entries.len()], order: Vec::new() };
    for at in 0..entries.len() {
        if let Some(cycle) = walk.visit(at) {
            return Err(Cycle(cycle.into_iter().map(|at| name(&entries[at]).into()).collect()));
        }
    }
    Ok(walk.order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    /// Entries that it waits for are being visited.
    Open,
    Placed,
}

struct Walk<'a> {
    waits: &'a [Vec<usize>],
    state: Vec<Visit>,
    order: Vec<usize>,
}

impl Walk<'_> {
    /// Places an entry behind all that it waits for, or returns the circle that it is in. It does not recurse, as the
    /// configuration may be of any length.
    fn visit(&mut self, first: usize) -> Option<Vec<usize>> {
        if self.state[first] == Visit::Placed {
            return None;
        }
        let waits = self.waits;
        let mut path = vec![(first, waits[first].iter())];
        self.state[first] = Visit::Open;
        while let Some((at, waited)) = path.last_mut() {
            let at = *at;
            match waited.next() {
                None => {
                    self.state[at] = Visit::Placed;
                    self.order.push(at);
                    path.pop();
                }
                Some(&next) => match self.state[next] {
                    Visit::Placed => {}
                    Visit::New => {
                        self.state[next] = Visit::Open;
                        path.push((next, waits[next].iter()));
                    }
                    Visit::Open => {
                        let circle = path.iter().map(|(at, _)| *at).skip_while(|at| *at != next);
                        return Some(circle.collect());
                    }
                },
            }
        }
        None
    }
}

/// Objects of one resource that a request sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All of them.
    All,
    /// Initialized ones.
    Initialized,
}

impl Visibility {
    /// Does it show an object that is initialized, or is not?
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

/// Users that must see every object. The garbage collector deletes dependents whose owner it does not find; the namespace
/// controller would leave hidden objects in a deleted namespace; quota would be counted without them.
// source: kubernetes#51842, #53109, #47138.
pub const SEE_ALL: [&str; 5] = [
    "system:apiserver",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:resourcequota-controller",
];

/// Objects that one request sees, decided once for it; the apiserver applies it to each object by its own
/// `metadata.initializers`. A user who asks for unfinished objects without permission gets the others, as an unknown
/// parameter changes nothing either.
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

/// Event that a watch is sent, if any: `before` and `after` say whether it sees the object as it was and as it is. An
/// object that does not exist is not seen.
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
    /// 404. A kubelet fails on an object that it cannot read, and accepts one that does not exist.
    NotFound,
}

impl HiddenAs {
    /// Answer for a user of these groups.
    pub fn to(in_group: impl FnOnce(&str) -> bool) -> Self {
        if in_group("system:nodes") { Self::NotFound } else { Self::Accepted }
    }
}

/// The object that a GET names, as its answer describes it.
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
// source: "Extension of admission control via initializers and external admission enforcement", "Explicit GETs ... 202
// Accepted".
pub fn hidden(how: HiddenAs, named: HiddenObject<'_>) -> StatusInfo {
    let HiddenObject { group, resource, name, uid, resource_version } = named;
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let failure = |code, reason: &str, message: String| StatusInfo {
        details_name: name.into(),
        details_group: group.into(),
        details_kind: resource.into(),
        ..StatusInfo::failure(code, reason, message)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_warning_names_the_label() {
        let id = init_id([u64::MAX, 7]);
        assert_eq!((id.len(), is_init_id(&id)), (32, true));
        assert_eq!(id_in_pending_warning(&pending_warning(&id)), Some(&*id));
        for other in ["init pending ", "init pending a b", "pending", &pending_warning(&"a".repeat(64))] {
            assert_eq!(id_in_pending_warning(other), None, "{other}");
        }
    }

    type Entry = (&'static str, Vec<Box<str>>);

    fn ordered(entries: &[Entry]) -> Result<Vec<&str>, String> {
        let order = order(entries, |entry| entry.0, |entry| &entry.1).map_err(|cycle| cycle.to_string())?;
        Ok(order.into_iter().map(|at| entries[at].0).collect())
    }

    #[test]
    fn order_puts_initializers_behind_all_that_they_name() {
        let entry = |name, after: &[&str]| (name, after.iter().map(|name| Box::from(*name)).collect());
        assert_eq!(ordered(&[entry("a", &[]), entry("b", &[])]).unwrap(), ["a", "b"]);
        assert_eq!(ordered(&[entry("a", &["c"]), entry("b", &[]), entry("c", &[])]).unwrap(), ["c", "a", "b"]);
        assert_eq!(ordered(&[entry("a", &["b", "c"]), entry("b", &["c"]), entry("c", &[])]).unwrap(), ["c", "b", "a"]);
        assert_eq!(ordered(&[entry("a", &["a"])]).unwrap_err(), "a after a");
        let circle = [entry("x", &["a"]), entry("a", &["b"]), entry("b", &["c"]), entry("c", &["a"])];
        assert_eq!(ordered(&circle).unwrap_err(), "a after b after c after a");
    }

    #[test]
    fn order_of_a_long_chain_needs_no_stack() {
        let names: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let entries: Vec<(&str, Vec<Box<str>>)> =
            names.windows(2).map(|pair| (&*pair[0], vec![Box::from(&*pair[1])])).collect();
        let order = order(&entries, |entry| entry.0, |entry| &entry.1).unwrap();
        assert_eq!((order.len(), order[0]), (entries.len(), entries.len() - 1));
    }
}
