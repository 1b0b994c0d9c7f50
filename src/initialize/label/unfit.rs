//! Unfit: resources whose objects are never stored unfinished, and so never hidden.

/// Resources whose objects an apiserver answers and does not keep. Of subresources (bindings, evictions, scales) there are
/// no entries at all.
// source: k8s.io/kubernetes pkg/registry, storages that implement rest.Creater alone.
const NOT_KEPT: [(&str, &str); 7] = [
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
    NotKept,
    /// They must be seen; what happens where they are not.
    Needed(&'static str),
}

/// Reason why objects of this resource are never stored unfinished, where there is one.
pub fn unfit(group: &str, resource: &str) -> Option<Unfit> {
    if NOT_KEPT.contains(&(group, resource)) {
        return Some(Unfit::NotKept);
    }
    let needed = NEEDED.iter().find(|needed| (needed.0, needed.1) == (group, resource));
    needed.map(|(.., why)| Unfit::Needed(why))
}
