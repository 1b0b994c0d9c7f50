//! `visibility.json`: the objects that one read sees.

use gatepost_api::initialization::{ReadVerb, ReadingUser, Visibility, visibility};
use serde::Deserialize;
use serde_json::Value;

use super::super::run::{Nothing, Outcome, Understood, decoded, equal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    verb: String,
    user: String,
    includes: bool,
    may_initialize: bool,
    expect: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let verb = match &*case.verb {
        "get" => ReadVerb::Get,
        "list" => ReadVerb::List,
        "watch" => ReadVerb::Watch,
        "deletecollection" => ReadVerb::DeleteCollection,
        other => return Err(format!("not understood: verb {other}")),
    };
    let Case { user, includes, may_initialize, .. } = case;
    let ours = visibility(verb, ReadingUser { user, includes: *includes, may_initialize: *may_initialize });
    let expect = match &*case.expect {
        "All" => Visibility::All,
        "Initialized" => Visibility::Initialized,
        other => return Err(format!("not understood: visibility {other}")),
    };
    equal("visibility", ours, expect)
}
