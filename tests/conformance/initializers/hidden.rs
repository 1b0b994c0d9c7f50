//! `hidden.json`: the answer to a GET of an object that is not initialized.

use gatepost_api::initialization::{HiddenAs, HiddenObject, hidden};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    group: String,
    resource: String,
    name: String,
    uid: String,
    resource_version: String,
    user_groups: Vec<String>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    code: i32,
    status: String,
    reason: String,
    uid: String,
    resource_version: String,
    kind: String,
    name: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let Case { group, resource, name, uid, resource_version, user_groups, expect, .. } = case;
    let how = HiddenAs::to(|wanted| user_groups.iter().any(|group| group == wanted));
    let ours = hidden(how, HiddenObject { group, resource, name, uid, resource_version });
    equal("code", ours.code, expect.code)?;
    equal("status", &ours.status, &expect.status)?;
    equal("reason", &ours.reason, &expect.reason)?;
    equal("uid", &ours.details_uid, &expect.uid)?;
    let version = ours.metadata.as_ref().map(|metadata| metadata.resource_version.clone()).unwrap_or_default();
    equal("resource version", &version, &expect.resource_version)?;
    equal("details", (&ours.details_kind, &ours.details_name), (&expect.kind, &expect.name))?;
    equal("the message names it", ours.message.contains(&format!("{name:?}")), true)
}
