//! Resources whose uninitialized objects are hidden, and the resource that a path of the Kubernetes API names, parsed
//! as by kube-apiserver.

use std::collections::BTreeSet;

use gatepost_api::initialization::{Unfit, unfit};

use super::query::{decoded, encode};

/// Opted-in resources, by group and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxiedResources(BTreeSet<(String, String)>);

/// Reason why a resource cannot be opted in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// The text is not a resource.
    #[error("{0:?} is no resource; write its plural, with its group behind a dot: configmaps, widgets.example.com")]
    NotAResource(String),
    /// The resource must not be hidden.
    #[error("{0} are not hidden: {1}")]
    Unfit(String, &'static str),
}

impl ProxiedResources {
    /// Parses resources as kubectl writes them: `configmaps`, `widgets.example.com`.
    ///
    /// # Errors
    /// The first resource that cannot be opted in.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ResourcesError> {
        names.into_iter().map(|name| Self::one(name.trim())).collect::<Result<_, _>>().map(Self)
    }

    fn one(name: &str) -> Result<(String, String), ResourcesError> {
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        let plain =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        if resource.is_empty() || !plain(resource) || !plain(group) || group.starts_with('.') || name.ends_with('.') {
            return Err(ResourcesError::NotAResource(name.to_owned()));
        }
        match unfit(group, resource) {
            Some(Unfit::NotStored) => Err(ResourcesError::Unfit(name.to_owned(), "an apiserver does not store them")),
            Some(Unfit::Needed(why)) => Err(ResourcesError::Unfit(name.to_owned(), why)),
            None => Ok((group.to_owned(), resource.to_owned())),
        }
    }

    /// Returns true if uninitialized objects of this resource are hidden.
    pub fn has(&self, path: &ResourcePath) -> bool {
        // Compares without copies: there are few resources, and every request calls this.
        self.0.iter().any(|(group, resource)| *group == path.group && *resource == path.resource)
    }

    /// Returns true if a resource of this group is opted in.
    pub fn has_group(&self, group: &str) -> bool {
        self.0.iter().any(|(known, _)| known == group)
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no resource is opted in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Path prefix of a watch, in place of the parameter `watch`.
const WATCH: &str = "watch";
/// Verb before the resource that no apiserver serves any more.
const PROXY: &str = "proxy";
/// Subresources of a namespace: after its name, these words are no resources.
const OF_NAMESPACE: [&str; 2] = ["status", "finalize"];

/// Resource that a path of the API names.
// source: kubernetes/apiserver pkg/endpoints/request/requestinfo.go, NewRequestInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace of the object; `None` for all namespaces, or if the resource has none.
    pub namespace: Option<String>,
    /// Resource, in the plural.
    pub resource: String,
    /// Name of the object; `None` for all.
    pub name: Option<String>,
    /// Subresource.
    pub subresource: Option<String>,
    /// Whether `/watch/` follows the version: the request is a watch, whatever the method.
    pub watch: bool,
    /// Whether a part up to the subresource is empty, not UTF-8, or an unserved verb. Another parser may then find
    /// another resource, name or subresource in the path. Further parts are not checked.
    pub is_ambiguous: bool,
}

/// Error for a path that cannot be decoded. An apiserver rejects it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl ResourcePath {
    /// Parses a path; `None` if it names no resource. The resource is "" if its part is empty.
    ///
    /// # Errors
    /// [`Undecodable`].
    pub fn parse(path: &str) -> Result<Option<Self>, Undecodable> {
        // Decodes the whole path before it is split, as `%2F` separates, too. Lossy decoding of invalid UTF-8 removes
        // no slash.
        let bytes = decoded(path.as_bytes(), false).ok_or(Undecodable)?;
        let path = String::from_utf8_lossy(&bytes);
        Ok(Self::read(path.trim_matches('/').split('/').collect()))
    }

    fn read(mut parts: Vec<&str>) -> Option<Self> {
        if parts.len() < 3 {
            return None;
        }
        let is_odd = |part: &&str| part.is_empty() || part.contains(char::REPLACEMENT_CHARACTER);
        let mut taken = 2;
        let group = match parts[0] {
            "api" => "",
            "apis" if parts.len() >= 4 => {
                taken = 3;
                parts[1]
            }
            _ => return None,
        };
        let (group, version) = (group.to_owned(), parts[taken - 1].to_owned());
        let mut is_ambiguous = parts.drain(..taken).any(|part| is_odd(&part));
        let watch = parts.first() == Some(&WATCH);
        let proxy = parts.first() == Some(&PROXY);
        if watch || proxy {
            parts.remove(0);
        }
        is_ambiguous |= proxy;
        let mut namespace = None;
        if let ["namespaces", name, rest, ..] = *parts
            && !OF_NAMESPACE.contains(&rest)
        {
            namespace = Some(name.to_owned());
            is_ambiguous |= is_odd(&name);
            parts.drain(..2);
        }
        is_ambiguous |= parts.iter().take(3).any(is_odd);
        let part = |at: usize| parts.get(at).map(|part| (*part).to_owned());
        let (resource, name, subresource) = (part(0)?, part(1), part(2));
        Some(Self { group, version, namespace, resource, name, subresource, watch, is_ambiguous })
    }

    /// Returns the path of the object's collection. Encodes decoded parts again, so that none of them begins a query.
    pub fn collection(&self) -> String {
        let mut path = String::new();
        let mut add = |part: &str| {
            path.push('/');
            encode(part.as_bytes(), &mut path);
        };
        match &*self.group {
            "" => add("api"),
            group => ["apis", group].into_iter().for_each(&mut add),
        }
        add(&self.version);
        if let Some(namespace) = &self.namespace {
            add("namespaces");
            add(namespace);
        }
        add(&self.resource);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_as_kubectl_writes_them() {
        let resources = ProxiedResources::parse(["configmaps", " widgets.example.com"]).unwrap();
        let has = |path: &str| resources.has(&ResourcePath::parse(path).unwrap().unwrap());
        assert!(has("/api/v1/configmaps") && has("/apis/example.com/v2/namespaces/a/widgets/w"));
        assert!(resources.has_group("") && resources.has_group("example.com") && !resources.has_group("example"));
        assert!(!has("/apis/example.com/v1/configmaps") && !has("/api/v1/widgets") && !has("/api/v1/secrets"));
    }

    #[test]
    fn what_cannot_be_hidden_is_refused_with_the_reason() {
        for (name, reason) in [
            ("nodes", "kubelet"),
            ("namespaces", "nothing could be created"),
            ("leases.coordination.k8s.io", "takes its holder for dead"),
            ("tokenreviews.authentication.k8s.io", "does not store"),
            ("", "is no resource"),
            ("ConfigMaps", "is no resource"),
            ("a/b", "is no resource"),
            ("a.", "is no resource"),
        ] {
            let error = ProxiedResources::parse(["configmaps", name]).unwrap_err().to_string();
            assert!(error.contains(reason), "{name}: {error}");
        }
        assert!(ProxiedResources::parse(["nodes.metrics.k8s.io"]).is_ok(), "another group's");
        assert!(ProxiedResources::parse(["pods"]).is_ok(), "the configuration has to leave their spec alone");
    }
}

#[cfg(test)]
mod path_tests {
    use super::*;

    fn read(path: &str) -> Option<String> {
        let ResourcePath { group, version, namespace, resource, name, subresource, watch, is_ambiguous } =
            ResourcePath::parse(path).ok()??;
        let shown = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        let [namespace, name, subresource] = [namespace, name, subresource].map(shown);
        let watch = if watch { " watch" } else { "" };
        let ambiguous = if is_ambiguous { " ambiguous" } else { "" };
        Some(format!("{group}|{version} {namespace} {resource} {name} {subresource}{watch}{ambiguous}"))
    }

    #[test]
    fn a_path_is_read_as_by_kube_apiserver() {
        for (path, wanted) in [
            ("/api/v1/configmaps", "|v1 - configmaps - -"),
            ("/api/v1/namespaces/shop/configmaps/", "|v1 shop configmaps - -"),
            ("/api/v1/namespaces/shop/configmaps/a", "|v1 shop configmaps a -"),
            ("//api/v1/namespaces/shop/config%6Daps/a", "|v1 shop configmaps a -"),
            ("/api/v1/namespaces/shop%2Fconfigmaps/a", "|v1 shop configmaps a -"),
            ("/api/v1/watch/namespaces/shop/configmaps/a", "|v1 shop configmaps a - watch"),
            ("/apis/example.com/v1/watch/widgets", "example.com|v1 - widgets - - watch"),
            ("/apis/example.com/v1/namespaces/shop/widgets/w/status", "example.com|v1 shop widgets w status"),
            ("/api/v1/namespaces", "|v1 - namespaces - -"),
            ("/api/v1/namespaces/shop", "|v1 - namespaces shop -"),
            ("/api/v1/namespaces/shop/finalize", "|v1 - namespaces shop finalize"),
            ("/api/v1/namespaces/shop/services/s/proxy/a//b", "|v1 shop services s proxy"),
            ("/api/v1/proxy/namespaces/shop/pods/p", "|v1 shop pods p - ambiguous"),
            ("/api/v1/namespaces/shop//configmaps", "|v1 shop  configmaps - ambiguous"),
            ("/apis/example.com/v1/widgets/w//%FF", "example.com|v1 - widgets w  ambiguous"),
            ("/apis/example.com/v1/widgets///%FF", "example.com|v1 - widgets   ambiguous"),
            ("/apis/example.com/v1/widgets/%FF", "example.com|v1 - widgets \u{fffd} - ambiguous"),
        ] {
            assert_eq!(read(path).as_deref(), Some(wanted), "{path}");
        }
        for path in
            ["/", "/api", "/api/v1", "/apis/example.com/v1", "/healthz/a/b", "/api/v1/watch", "/api/v1/con%zzfigmaps"]
        {
            assert_eq!(read(path), None, "{path}");
        }
        assert_eq!(ResourcePath::parse("/api/v1/con%zzfigmaps"), Err(Undecodable));
    }

    #[test]
    fn a_collection_has_a_path() {
        for path in ["/api/v1/namespaces/shop/configmaps", "/apis/example.com/v1/widgets", "/api/v1/namespaces"] {
            let read = ResourcePath::parse(&format!("{path}/a")).unwrap().unwrap();
            assert_eq!((read.collection(), read.name.as_deref()), (path.to_owned(), Some("a")));
        }
        let odd = ResourcePath::parse("/api/v1/namespaces/a%3Fb%23/configmaps/c").unwrap().unwrap();
        assert_eq!(odd.collection(), "/api/v1/namespaces/a%3Fb%23/configmaps");
    }
}
