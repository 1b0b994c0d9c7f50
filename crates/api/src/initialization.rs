//! Initialization: names and rules for all code that handles uninitialized objects.
//!
//! An object is uninitialized, and hidden from others, until every initializer of its resource has acted on it.

use std::{collections::HashMap, fmt};

use super::{StatusInfo, StatusMetadata};

/// Verb that a client needs to write an object's list of initializers, or to change an uninitialized object.
// source: "Extension of admission control via initializers and external admission enforcement", "the `initialize`
// verb".
pub const VERB: &str = "initialize";
/// Maximum number of initializers in one list.
pub const MAX_PENDING: usize = 128;

/// Label of an uninitialized object whose apiserver does not support initializers. Its value identifies the
/// initialization.
pub const PENDING_LABEL: &str = "init.gatepost.dev/pending";
/// Annotation with the list of initializers of an object that has [`PENDING_LABEL`].
pub const STATE_ANNOTATION: &str = "init.gatepost.dev/state";
/// Maximum length of a label's value, in bytes.
const MAX_LABEL_VALUE_BYTES: usize = 63;
/// Prefix of the warning by which a proxy learns that the object it has created is uninitialized.
const PENDING_WARNING: &str = "init pending ";

/// Returns a value of the label: the hexadecimal digits of `random`.
pub fn init_id(random: [u64; 2]) -> String {
    format!("{:016x}{:016x}", random[0], random[1])
}

/// Returns true for a possible id: only hexadecimal digits, and not too long for a label's value.
fn is_init_id(text: &str) -> bool {
    (1..=MAX_LABEL_VALUE_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the warning for the creator of an object that is stored uninitialized.
pub fn pending_warning(init_id: &str) -> String {
    format!("{PENDING_WARNING}{init_id}")
}

/// Returns the id in a warning that [`pending_warning`] wrote; `None` for other texts.
pub fn id_in_pending_warning(text: &str) -> Option<&str> {
    text.strip_prefix(PENDING_WARNING).filter(|id| is_init_id(id))
}

/// Resources that an apiserver answers without storing an object. Entries of a configuration cannot name subresources
/// (bindings, evictions, scales).
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
/// Resources that the cluster needs to work, each with the effect of hiding an object of it.
const NEVER_HIDDEN: [(&str, &str, &str); 4] = [
    ("", "events", "they would be written three times each"),
    ("", "namespaces", "nothing could be created in them meanwhile"),
    ("", "nodes", "a kubelet that cannot see its Node registers it again and again"),
    (
        "coordination.k8s.io",
        "leases",
        "who waits for one takes its holder for dead, and Gatepost's replicas agree by one themselves",
    ),
];

/// Reason why objects of a resource are never stored uninitialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The apiserver answers them without storing them.
    NotStored,
    /// They must always be visible. The text describes the effect of hiding them.
    Needed(&'static str),
}

/// Returns the reason why objects of this resource are never stored uninitialized; `None` if they may be.
pub fn unfit(group: &str, resource: &str) -> Option<Unfit> {
    if NOT_STORED.contains(&(group, resource)) {
        return Some(Unfit::NotStored);
    }
    let needed = NEVER_HIDDEN.iter().find(|needed| (needed.0, needed.1) == (group, resource));
    needed.map(|(.., why)| Unfit::Needed(why))
}

/// Names of initializers that wait for each other in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<Box<str>>);

impl fmt::Display for Cycle {
    /// Writes `a after b after a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.first().into_iter();
        let names: Vec<&str> = self.0.iter().chain(first).map(AsRef::as_ref).collect();
        f.write_str(&names.join(" after "))
    }
}

/// Returns the order in which initializers act, as indices. Each follows all that it names; otherwise the order is as
/// written. Unknown names are ignored. Takes time linear in entries and names.
///
/// # Errors
/// [`Cycle`] if some wait for each other.
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
    /// The entries that it waits for are being visited.
    Open,
    Placed,
}

struct Walk<'a> {
    waits: &'a [Vec<usize>],
    state: Vec<Visit>,
    order: Vec<usize>,
}

impl Walk<'_> {
    /// Places an entry after all that it waits for, or returns the cycle that it belongs to. Does not recurse, because
    /// the length of a configuration is not bounded.
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
    /// All objects.
    All,
    /// Initialized objects only.
    Initialized,
}

impl Visibility {
    /// Returns true if an object is visible. `initialized`: the object is initialized.
    pub fn shows(self, initialized: bool) -> bool {
        initialized || self == Self::All
    }
}

/// Verb of a request that reads or selects objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVerb {
    /// One object by its name.
    Get,
    /// All objects of a selection.
    List,
    /// Changes of all objects of a selection.
    Watch,
    /// Deletes all objects of a selection.
    DeleteCollection,
}

/// User of a read, with the facts that decide which objects the user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadingUser<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// True if the request has `includeUninitialized=true`.
    pub includes: bool,
    /// True if the user has the verb `initialize` for the resource, or owns an initializer of it.
    pub may_initialize: bool,
}

/// Users that must see every object. Otherwise the garbage collector would delete dependents of a hidden owner, the
/// namespace controller would leave hidden objects in a deleted namespace, and quota would not count them.
// source: kubernetes#51842, #53109, #47138.
pub const SEE_ALL: [&str; 5] = [
    "system:apiserver",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:resourcequota-controller",
];

/// Returns which objects one request sees. The apiserver applies the result to each object by the object's own
/// `metadata.initializers`. `includeUninitialized` without permission is ignored, as an unknown parameter is.
pub fn visibility(verb: ReadVerb, reader: ReadingUser<'_>) -> Visibility {
    let ReadingUser { user, includes, may_initialize } = reader;
    // Deletion is always allowed, and a namespace must become empty.
    let all = verb == ReadVerb::DeleteCollection || SEE_ALL.contains(&user) || (includes && may_initialize);
    if all { Visibility::All } else { Visibility::Initialized }
}

/// Type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The object was not visible before.
    Added,
    /// The object is visible, and has changed.
    Modified,
    /// The object is no longer visible. The event has the old content and the new resource version.
    Deleted,
}

/// Returns the event to send to a watch; `None` to send none. `before` and `after` are true if the object is visible to
/// the watch before and after the change. An object that does not exist is not visible.
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

/// Status code of the answer to a GET of a hidden object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenAs {
    /// 202: the name is in use, and the object is being initialized.
    Accepted,
    /// 404. A kubelet fails on an object that it cannot read, and accepts one that does not exist.
    NotFound,
}

impl HiddenAs {
    /// Returns the code for a user. `in_group` returns true if the user is in the group.
    pub fn to(in_group: impl FnOnce(&str) -> bool) -> Self {
        if in_group("system:nodes") { Self::NotFound } else { Self::Accepted }
    }
}

/// Hidden object that a GET names, as the answer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenObject<'a> {
    /// API group.
    pub group: &'a str,
    /// Resource, plural.
    pub resource: &'a str,
    /// Name.
    pub name: &'a str,
    /// Uid of the stored object.
    pub uid: &'a str,
    /// Resource version of the stored object, from which a client can watch.
    pub resource_version: &'a str,
}

/// Returns the answer to a GET of a hidden object.
///
/// `status` is `Failure` even with code 202. client-go treats a Status with a code below 300 as an error only then;
/// otherwise a typed client would return an empty object and no error.
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
