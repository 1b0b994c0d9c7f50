//! Object: one configuration object as it was listed, and what is written into it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    kube::{KubeClient, KubeError},
    source::kubernetes::configurations,
};

/// Keeps an object that is deleted until its hooks have drained everywhere.
pub const FINALIZER: &str = "gatepost.dev/drain";
/// Owner of the finalizer in `managedFields`: the same for all replicas, as one sets it and another takes it away.
const DRAINER: &str = "gatepost-drain";
/// A field manager's name is no longer than 128 bytes.
const LONGEST_NAME: usize = 100;

/// Part of an object's metadata that is of use here.
#[derive(Clone, Debug)]
pub(super) struct Head<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    pub(super) revision: &'a str,
    pub(super) deleted: bool,
    finalizers: Vec<&'a str>,
}

impl<'a> Head<'a> {
    pub(super) fn of(object: &'a Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let finalizers = metadata.get("finalizers").and_then(Value::as_array);
        Some(Self {
            name: text("name")?,
            uid: text("uid")?,
            generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or_default(),
            revision: text("resourceVersion").unwrap_or_default(),
            deleted: text("deletionTimestamp").is_some(),
            finalizers: finalizers.into_iter().flatten().filter_map(Value::as_str).collect(),
        })
    }

    pub(super) fn is_held(&self) -> bool {
        self.finalizers.contains(&FINALIZER)
    }

    fn finalizer_path(&self) -> String {
        format!("{}/{}?fieldManager={DRAINER}", configurations(), self.name)
    }
}

/// Field manager of an entry. Names may be longer than an apiserver takes.
pub(super) fn manager(replica: &str) -> String {
    match replica.len() <= LONGEST_NAME {
        true => format!("gatepost-{replica}"),
        false => format!("gatepost-{}", hex(&Sha256::digest(replica))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes that our share of the object's status, as this field manager.
pub(super) async fn apply(client: &KubeClient, manager: &str, name: &str, status: &Value) -> Result<(), KubeError> {
    let path = format!("{}/{name}/status", configurations());
    let object = json!({
        "apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
        "metadata": { "name": name }, "status": status,
    });
    passed_over(client.apply_as(manager, &path, &object).await, &[404, 409])
}

/// Sets the finalizer, if the object is still as it was read.
pub(super) async fn hold(client: &KubeClient, head: &Head<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = head.finalizers.iter().copied().chain([FINALIZER]).collect();
    let patch = json!({ "metadata": { "resourceVersion": head.revision, "finalizers": finalizers } });
    passed_over(client.patch(&head.finalizer_path(), "application/merge-patch+json", &patch).await, &[404, 409])
}

/// Takes the finalizer away, if the object is still as it was read.
pub(super) async fn release(client: &KubeClient, head: &Head<'_>) -> Result<(), KubeError> {
    let finalizers: Vec<_> = head.finalizers.iter().copied().filter(|one| *one != FINALIZER).collect();
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": head.revision },
        { "op": "replace", "path": "/metadata/finalizers", "value": finalizers },
    ]);
    // 422: a test has failed.
    passed_over(client.patch(&head.finalizer_path(), "application/json-patch+json", &patch).await, &[404, 409, 422])
}

/// Result without the codes that mean that the object is gone, or was changed meanwhile: the next turn sees the new
/// state.
fn passed_over(outcome: Result<(), KubeError>, codes: &[u16]) -> Result<(), KubeError> {
    match outcome {
        Err(KubeError::Unwritten { code, .. }) if codes.contains(&code) => Ok(()),
        other => other,
    }
}
