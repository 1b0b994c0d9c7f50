//! Discovery of the resources that an apiserver serves.
//!
//! Apiservers since 1.27 list all resources in two documents, whose `ETag`s show if they have changed. Older ones need
//! one request for each version of each group. Source: `k8s.io/api/apidiscovery/v2`,
//! `k8s.io/apimachinery/pkg/apis/meta/v1` APIGroupList and APIResourceList.

use serde_json::Value;

use super::{KubeClient, KubeError};
use gatepost_api::Served;

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Paths of the two documents: of the core group, and of all others.
const PATHS: [&str; 2] = ["/api", "/apis"];
/// Maximum number of group versions requested from an older apiserver; the resources of further ones stay unknown.
const MAX_GROUP_VERSIONS: usize = 500;

/// Repeated discovery of the resources of one apiserver.
#[derive(Debug, Default)]
pub struct Discoverer {
    last: [Option<CachedDocument>; 2],
}

/// One of the two documents, as last read.
#[derive(Debug)]
struct CachedDocument {
    tag: Option<String>,
    served: Served,
}

impl Discoverer {
    /// Returns all served resources; `None` if they have not changed since the last call.
    ///
    /// # Errors
    /// [`KubeError`] of a request.
    pub async fn read(&mut self, client: &KubeClient) -> Result<Option<Served>, KubeError> {
        let mut read = [None, None];
        for ((path, last), part) in PATHS.into_iter().zip(&self.last).zip(&mut read) {
            let tag = last.as_ref().and_then(|last| last.tag.as_deref());
            let Some((document, tag)) = client.get_if_changed(path, ACCEPT, tag).await? else { continue };
            let served = match document["kind"].as_str() {
                Some("APIGroupDiscoveryList") => aggregated(&document),
                _ => one_by_one(client, path, &document).await?,
            };
            // Documents of the older form do not change when resources do.
            let tag = tag.filter(|_| document["kind"] == "APIGroupDiscoveryList");
            *part = Some(CachedDocument { tag, served });
        }
        // Only after both reads succeeded: otherwise a change in one document would be recorded, but not returned.
        let mut changed = false;
        for (last, part) in self.last.iter_mut().zip(read).filter_map(|(last, part)| Some((last, part?))) {
            changed |= last.as_ref().is_none_or(|last| last.served != part.served);
            *last = Some(part);
        }
        Ok(changed.then(|| {
            let mut all = Served::default();
            self.last.iter().flatten().for_each(|part| all.join(&part.served));
            all
        }))
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// Reads all groups from one document.
fn aggregated(document: &Value) -> Served {
    let mut served = Served::default();
    for group in list(document, "items") {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in list(group, "versions") {
            let Some(of) = version["version"].as_str() else { continue };
            // An aggregated apiserver does not answer: its resources may be outdated or missing.
            if version["freshness"] == "Stale" {
                served.doubt(name);
            }
            for resource in list(version, "resources").filter_map(|resource| resource["resource"].as_str()) {
                served.add(name, of, resource);
            }
        }
    }
    served
}

/// Requests each version separately.
async fn one_by_one(client: &KubeClient, path: &str, document: &Value) -> Result<Served, KubeError> {
    let mut served = Served::default();
    for (number, (group, version)) in versions_of(document).into_iter().enumerate() {
        if number >= MAX_GROUP_VERSIONS {
            served.doubt(group);
            continue;
        }
        let of = if group.is_empty() { format!("{path}/{version}") } else { format!("{path}/{group}/{version}") };
        match client.get(&of).await {
            Ok(document) => {
                let names = list(&document, "resources").filter_map(|resource| resource["name"].as_str());
                names.filter(|name| !name.contains('/')).for_each(|name| served.add(group, version, name));
            }
            // An aggregated apiserver does not answer.
            Err(KubeError::Refused { .. }) => served.doubt(group),
            Err(failure) => return Err(failure),
        }
    }
    Ok(served)
}

/// Returns group and version of all entries in an older document.
fn versions_of(document: &Value) -> Vec<(&str, &str)> {
    let core = list(document, "versions").filter_map(Value::as_str).map(|version| ("", version));
    let named = list(document, "groups").flat_map(|group| {
        let name = group["name"].as_str().unwrap_or_default();
        list(group, "versions").filter_map(move |version| Some((name, version["version"].as_str()?)))
    });
    core.chain(named).collect()
}
