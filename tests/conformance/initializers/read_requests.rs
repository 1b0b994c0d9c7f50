//! `read_requests.json`: requests of the read proxy, as the apiserver gets them.

use gatepost_read_proxy::{ProxiedResources, plan::ReadPlan, query::Query};
use http::{HeaderMap, HeaderValue, Method, Uri, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    resources: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    method: String,
    target: String,
    #[serde(default)]
    content_type: String,
    sees: String,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    plan: String,
    target: Option<String>,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&shared, &case)))
}

fn judge(shared: &Shared, case: &Case) -> Outcome {
    let resources =
        ProxiedResources::parse(shared.resources.iter().map(String::as_str)).map_err(|error| error.to_string())?;
    let method: Method = case.method.parse().map_err(|_| "not understood: method".to_owned())?;
    let target: Uri = case.target.parse().map_err(|_| "not understood: target".to_owned())?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(&case.content_type).map_err(|error| error.to_string())?);
    let plan = ReadPlan::of(&method, target.path(), &headers, &resources);
    let name = match plan {
        ReadPlan::Pass => "pass",
        ReadPlan::Filter(_) => "filter",
        ReadPlan::Get(_) => "get",
        ReadPlan::Create(_) => "create",
        ReadPlan::Refuse(_) => "refuse",
    };
    equal("plan", name, &*case.expect.plan)?;
    let Some(wanted) = &case.expect.target else { return Ok(()) };
    let query = Query::new(target.query());
    let query = match &*case.sees {
        "all" => query.without_include(),
        "initialized" => query.initialized_only(),
        other => return Err(format!("not understood: sees {other}")),
    };
    let ours = if query.is_empty() { target.path().to_owned() } else { format!("{}?{query}", target.path()) };
    equal("target", &ours, wanted)
}
