//! Initializers: vectors of our own, `tests/vectors/initializers/`, one file one module.

mod collection;
mod controller;
mod create;
mod find;
mod freshness;
mod hidden;
mod in_flight;
mod json_form;
mod late_head;
mod lifecycle;
mod marks;
mod object_head;
mod order;
mod quota;
mod read_repair;
mod read_requests;
mod rotation;
mod timed_out;
mod transition;
mod validation;
mod visibility;
mod watch;

use gatepost_initializers::{Initializers, ListError};
use serde::Deserialize;
use serde_json::Value;

use super::run::{Outcome, Table, equal};

/// Every file of the folder.
pub(crate) const TABLES: [Table; 22] = [
    Table { file: "initializers/collection.json", case: Some(collection::case) },
    Table { file: "initializers/controller.json", case: Some(controller::case) },
    Table { file: "initializers/create.json", case: Some(create::case) },
    Table { file: "initializers/find.json", case: Some(find::case) },
    Table { file: "initializers/freshness.json", case: Some(freshness::case) },
    Table { file: "initializers/hidden.json", case: Some(hidden::case) },
    Table { file: "initializers/in_flight.json", case: Some(in_flight::case) },
    Table { file: "initializers/json_form.json", case: Some(json_form::case) },
    Table { file: "initializers/late_head.json", case: Some(late_head::case) },
    Table { file: "initializers/lifecycle.json", case: Some(lifecycle::case) },
    Table { file: "initializers/marks.json", case: Some(marks::case) },
    Table { file: "initializers/object_head.json", case: Some(object_head::case) },
    Table { file: "initializers/order.json", case: Some(order::case) },
    Table { file: "initializers/quota.json", case: Some(quota::case) },
    Table { file: "initializers/read_repair.json", case: Some(read_repair::case) },
    Table { file: "initializers/read_requests.json", case: Some(read_requests::case) },
    Table { file: "initializers/rotation.json", case: Some(rotation::case) },
    Table { file: "initializers/timed_out.json", case: Some(timed_out::case) },
    Table { file: "initializers/transition.json", case: Some(transition::case) },
    Table { file: "initializers/validation.json", case: Some(validation::case) },
    Table { file: "initializers/visibility.json", case: Some(visibility::case) },
    Table { file: "initializers/watch.json", case: Some(watch::case) },
];

/// A list, or why it is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(default)]
    list: Value,
    code: Option<i32>,
    field: Option<String>,
}

/// A list as an object has it.
fn list(json: &Value) -> Result<Option<Initializers>, String> {
    Initializers::read(json.to_string().as_bytes()).map_err(|error| format!("not understood: {error}"))
}

impl Expect {
    fn judge(&self, ours: Result<Option<Initializers>, ListError>) -> Outcome {
        match ours {
            Ok(ours) => {
                equal("code", None, self.code)?;
                equal("list", ours, list(&self.list)?)
            }
            Err(refused) => {
                equal("code", Some(refused.code()), self.code)?;
                let field = match &refused {
                    ListError::Invalid { field, .. } => Some(field.clone()),
                    ListError::Forbidden(_) => None,
                };
                if self.field.is_some() {
                    equal("field", field, self.field.clone())?;
                }
                let status = refused.into_status();
                equal("status", (&*status.status, Some(status.code)), ("Failure", self.code))
            }
        }
    }
}
