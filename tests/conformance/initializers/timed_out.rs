//! `timed_out.json`: Statuses of objects that were not initialized in time.

use std::sync::Arc;

use gatepost_api::{FailurePolicy, StatusInfo};
use gatepost_initializers::{Correction, CorrectiveAction, HeadRule, Initializers, unfinished::StoredObject};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    object: Object,
    #[serde(rename = "as")]
    remedy: Remedy,
    #[serde(default)]
    policy: Option<Policy>,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Remedy {
    Hold,
    Correction,
}

#[derive(Clone, Copy, Deserialize)]
enum Policy {
    Ignore,
    Fail,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    group: String,
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    pending: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    code: i32,
    status: String,
    reason: String,
    uid: String,
    resource_version: String,
    group: String,
    kind: String,
    name: String,
    /// The reason of the only cause, and its field.
    cause: String,
    field: String,
    /// Parts of the message.
    message: Vec<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    if matches!(case.remedy, Remedy::Correction) != case.policy.is_some() {
        return Err("not understood: a correction is by a policy, and nothing else is".into());
    }
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let Object { group, resource, namespace, name, uid, resource_version, pending } = &case.object;
    let object = Arc::new(StoredObject {
        group: group.as_str().into(),
        resource: resource.as_str().into(),
        namespace: namespace.as_str().into(),
        name: name.as_str().into(),
        uid: uid.as_str().into(),
        resource_version: resource_version.as_str().into(),
        list: Initializers::of(pending.iter().map(String::as_str)),
    });
    let status =
        case.policy.map_or_else(|| Some(Box::new(object.still_pending())), |policy| corrected(&object, policy));
    equal("a status", status.is_some(), case.expect.is_some())?;
    let (Some(ours), Some(expect)) = (status, &case.expect) else { return Ok(()) };
    equal("code", ours.code, expect.code)?;
    equal("status and reason", (&ours.status, &ours.reason), (&expect.status, &expect.reason))?;
    equal("uid", &ours.details_uid, &expect.uid)?;
    let version = ours.metadata.as_ref().map(|metadata| metadata.resource_version.clone()).unwrap_or_default();
    equal("resource version", &version, &expect.resource_version)?;
    let details = (&ours.details_group, &ours.details_kind, &ours.details_name);
    equal("details", details, (&expect.group, &expect.kind, &expect.name))?;
    let causes: Vec<_> = ours.causes.iter().map(|cause| (&*cause.reason, &*cause.field)).collect();
    equal("causes", causes, vec![(&*expect.cause, &*expect.field)])?;
    let missing = expect.message.iter().find(|part| !ours.message.contains(&***part));
    missing.map_or(Ok(()), |part| Err(format!("{:?} does not say {part:?}", ours.message)))
}

fn corrected(object: &Arc<StoredObject>, policy: Policy) -> Option<Box<StatusInfo>> {
    let policy = match policy {
        Policy::Ignore => FailurePolicy::Ignore,
        Policy::Fail => FailurePolicy::Fail,
    };
    match Correction::of(object, HeadRule { policy, ..HeadRule::default() })?.remedy {
        CorrectiveAction::Fail(status) => Some(status),
        CorrectiveAction::RemoveHead(_) | CorrectiveAction::Delete => None,
    }
}
