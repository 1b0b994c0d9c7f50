//! Resources: the resources whose unfinished objects are hidden.

use std::collections::BTreeSet;

use super::path::ResourcePath;
use gatepost_api::initialization::{Unfit, unfit};

/// Resources that are opted in, by group and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxiedResources(BTreeSet<(String, String)>);

/// Reason why resources cannot be opted in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// A text that names no resource.
    #[error("{0:?} is no resource; write its plural, with its group behind a dot: configmaps, widgets.example.com")]
    NotAResource(String),
    /// A resource that may not be hidden.
    #[error("{0} are not hidden: {1}")]
    Unfit(String, &'static str),
}

impl ProxiedResources {
    /// Resources as kubectl writes them: `configmaps`, `widgets.example.com`.
    ///
    /// # Errors
    /// The first that cannot be opted in.
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

    /// True where unfinished objects of this resource are hidden.
    pub fn has(&self, path: &ResourcePath) -> bool {
        // No copies: there are few of them, and every request asks.
        self.0.iter().any(|(group, resource)| *group == path.group && *resource == path.resource)
    }

    /// True where a resource of this group is among them.
    pub fn has_group(&self, group: &str) -> bool {
        self.0.iter().any(|(known, _)| known == group)
    }

    /// Number of them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
