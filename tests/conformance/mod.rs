//! One file of vectors, one module; and what runs them.

pub(crate) mod arguments;
pub(crate) mod folder;
pub(crate) mod format;
pub(crate) mod left_out;
pub(crate) mod run;

mod asking;
mod backend;
mod config_validation_create;
mod dispatch;
mod documents;
mod initializers;
mod json_patch;
mod label_selector_convert;
mod label_selector_match;
mod match_condition_outcome;
mod namespace_matcher;
mod object_matcher;
mod reinvocation;
mod reviews;
mod rules;
mod should_call;
mod statuserror;
pub(crate) mod strict;
mod timeouts;
mod verify_response;
mod webhooks;

use run::Table;

/// The table of a file, where it is understood.
pub(crate) fn table(file: &str) -> Option<&'static Table> {
    all().find(|table| table.file == file)
}

/// Every table: upstream's, and our own.
pub(crate) fn all() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain(&OWN)
}

/// Files of our own.
static OWN: [Table; 22] = initializers::TABLES;

/// Every file of upstream's that is understood.
static TABLES: [Table; 15] = [
    Table { file: "config_validation_create.json", case: Some(config_validation_create::case) },
    Table { file: "dispatch.json", case: Some(dispatch::case) },
    Table { file: "json_patch.json", case: Some(json_patch::case) },
    Table { file: "label_selector_convert.json", case: Some(label_selector_convert::case) },
    Table { file: "label_selector_match.json", case: Some(label_selector_match::case) },
    Table { file: "label_selector_parse.json", case: None },
    Table { file: "match_condition_outcome.json", case: Some(match_condition_outcome::case) },
    Table { file: "namespace_matcher.json", case: Some(namespace_matcher::case) },
    Table { file: "object_matcher.json", case: Some(object_matcher::case) },
    Table { file: "reinvocation.json", case: Some(reinvocation::case) },
    Table { file: "rules.json", case: Some(rules::case) },
    Table { file: "should_call.json", case: Some(should_call::case) },
    Table { file: "statuserror.json", case: Some(statuserror::case) },
    Table { file: "timeouts.json", case: Some(timeouts::case) },
    Table { file: "verify_response.json", case: Some(verify_response::case) },
];
