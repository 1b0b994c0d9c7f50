//! Resource: one resource as an apiserver serves it, with the paths of its objects.

use serde_json::Value;

use gatepost_kube_support::{KubeClient, KubeError};

/// Resource in a version that its apiserver serves, the preferred one if possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedResource {
    /// API group.
    pub(super) group: Box<str>,
    /// Version.
    pub(super) version: Box<str>,
    /// Plural name of the resource.
    pub(super) resource: Box<str>,
    /// Kind of its objects.
    pub(super) kind: Box<str>,
    namespaced: bool,
}

impl ServedResource {
    /// Looks a resource up; `None` if it is not served.
    ///
    /// # Errors
    /// Returns the error of the requests to the apiserver.
    pub(super) async fn find(client: &KubeClient, group: &str, resource: &str) -> Result<Option<Self>, KubeError> {
        for version in versions(client, group).await? {
            let document = client.get(&base(group, &version)).await?;
            let resources = document["resources"].as_array().into_iter().flatten();
            let mut named = resources.filter(|served| served["name"] == *resource);
            let Some(served) = named.next() else { continue };
            let (group, version, resource) = (group.into(), version.into(), resource.into());
            let kind = served["kind"].as_str().unwrap_or_default().into();
            let namespaced = served["namespaced"].as_bool().unwrap_or_default();
            return Ok(Some(Self { group, version, resource, kind, namespaced }));
        }
        Ok(None)
    }

    /// Creates a namespaced resource.
    #[cfg(test)]
    pub(super) fn of(group: &str, version: &str, resource: &str, kind: &str) -> Self {
        let (group, version, resource, kind) = (group.into(), version.into(), resource.into(), kind.into());
        Self { group, version, resource, kind, namespaced: true }
    }

    /// Returns the path of all objects.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", base(&self.group, &self.version), self.resource)
    }

    /// Returns the path of the objects of one namespace.
    pub(super) fn within(&self, namespace: &str) -> String {
        match self.namespaced {
            true => format!("{}/namespaces/{namespace}/{}", base(&self.group, &self.version), self.resource),
            false => self.path(),
        }
    }
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Returns the versions of a group, the preferred one first.
async fn versions(client: &KubeClient, group: &str) -> Result<Vec<String>, KubeError> {
    if group.is_empty() {
        return Ok(vec!["v1".to_owned()]);
    }
    let document = match client.get(&format!("/apis/{group}")).await {
        Err(KubeError::Refused { code: 404, .. }) => return Ok(Vec::new()),
        document => document?,
    };
    let preferred = document.pointer("/preferredVersion/version").and_then(Value::as_str);
    let all = document["versions"].as_array().into_iter().flatten().filter_map(|one| one["version"].as_str());
    let others = all.filter(|version| Some(*version) != preferred);
    Ok(preferred.into_iter().chain(others).map(str::to_owned).collect())
}
