//! `statuserror.json`: status for the client when a hook says no.

use std::sync::Arc;

use gatepost::review::{Reasons, decide};
use gatepost_api::Hook;
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionResponse},
    apimachinery::pkg::apis::meta::v1::Status,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    asking::{LONG, everything, on_runtime},
    documents::{configuration, snapshot},
    reviews::{self, text},
    run::{Nothing, Outcome, Understood, decoded, equal},
};
use crate::support::{
    gate::{caller, in_force},
    http_hook::{HttpHook, HttpScript},
    scripted_hook::{Script, ScriptedHook},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    hook_name: String,
    /// The status in the hook's answer, where it has one.
    result: Option<Said>,
    expect: Expect,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Said {
    status: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    code: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    message: String,
    code: i32,
    status: String,
    reason: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(|| on_runtime(judge(case))))
}

/// The same whether the hook speaks gRPC or is a webhook.
async fn judge(case: Case) -> Outcome {
    let status = case.result.clone().map(|Said { status, message, reason, code }| Status {
        status,
        message,
        reason,
        code,
        ..Default::default()
    });
    let no = AdmissionResponse { allowed: Some(false), status, ..Default::default() };
    let hook = ScriptedHook::start(Script::Respond(no)).await;
    check_refusal(&case, &hook.url()).await.map_err(|failure| format!("over gRPC: {failure}"))?;
    let webhook = HttpHook::plain(HttpScript::Respond(json!({"allowed": false, "status": case.result}))).await;
    check_refusal(&case, &webhook.url()).await.map_err(|failure| format!("over HTTP: {failure}"))
}

async fn check_refusal(case: &Case, url: &str) -> Outcome {
    let entry = json!({"name": "hook", "clientConfig": {"url": url}, "rules": everything()});
    let snapshot = snapshot(&[configuration(json!([entry]))])?;
    let named = Hook { name: case.hook_name.as_str().into(), ..(*snapshot.hooks[0]).clone() };
    let gate = in_force(snapshot, &[Arc::new(named)], Reasons::First);
    let request = AdmissionRequest {
        resource: reviews::resource(&["".into(), "v1".into(), "things".into()]),
        operation: text("CREATE"),
        ..Default::default()
    };
    let verdict = decide(&gate, &reviews::review(request)?, &caller(LONG)).await;
    let refusal = verdict.refusal.ok_or("the request is allowed")?;
    let answered =
        Expect { message: refusal.message, code: refusal.code, status: refusal.status, reason: refusal.reason };
    equal("status", &answered, &case.expect)
}
