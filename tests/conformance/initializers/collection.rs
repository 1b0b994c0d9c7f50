//! `collection.json`: stored objects that a request for all of them finds.

use gatepost_api::initialization::{ReadVerb, ReadingUser, visibility};
use gatepost_initializers::Lifecycle;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::run::{Nothing, Outcome, Understood, decoded, equal},
    list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    verb: String,
    user: String,
    objects: Vec<Object>,
    expect: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    name: String,
    list: Value,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (Nothing {}, case): (_, Case) = (decoded(shared)?, decoded(case)?);
    Ok(Box::new(move || judge(&case)))
}

fn judge(case: &Case) -> Outcome {
    let verb = match &*case.verb {
        "list" => ReadVerb::List,
        "deletecollection" => ReadVerb::DeleteCollection,
        other => return Err(format!("not understood: verb {other}")),
    };
    let sees = visibility(verb, ReadingUser { user: &case.user, includes: false, may_initialize: false });
    let mut found = Vec::new();
    for object in &case.objects {
        if sees.shows(Lifecycle::of(list(&object.list)?.as_ref()).is_visible()) {
            found.push(object.name.clone());
        }
    }
    equal("objects", found, case.expect.clone())
}
