//! The cluster whose namespaces are read and labelled.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::plan::Planned;
use crate::{
    kube::{KubeClient, KubeError},
    model::Labels,
    snapshot::hazards::LABEL,
};

const NAMESPACES: &str = "/api/v1/namespaces";
/// Field manager of our labels, as managedFields shows it.
const MANAGER: &str = "gatepost-runlevels";

/// The labels of every namespace.
pub(super) async fn read(client: &KubeClient) -> Result<BTreeMap<String, Labels>, KubeError> {
    let list = client.list(NAMESPACES).await?;
    Ok(list.items.iter().filter_map(labelled).collect())
}

fn labelled(namespace: &Value) -> Option<(String, Labels)> {
    let metadata = namespace.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let labels = metadata.get("labels").and_then(Value::as_object);
    let texts = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    Some((name.to_owned(), texts.collect()))
}

/// Writes one label and nothing else; with `dry`, the apiserver only says whether it would.
pub(super) async fn label(client: &KubeClient, planned: &Planned, dry: bool) -> Result<(), KubeError> {
    let dry = if dry { "&dryRun=All" } else { "" };
    let path = format!("{NAMESPACES}/{}?fieldManager={MANAGER}{dry}", planned.name);
    let patch = json!({"metadata": {"labels": {LABEL: planned.level}}});
    client.patch(&path, "application/merge-patch+json", &patch).await
}
