//! One file of vectors, one module; and what runs them.

pub(crate) mod arguments;
pub(crate) mod folder;
pub(crate) mod left_out;
pub(crate) mod run;

mod asking;
mod documents;
mod label_selector_convert;
mod label_selector_match;
mod namespace_matcher;
mod object_matcher;
mod reviews;
mod rules;
mod statuserror;

use run::Table;

/// Every file that is understood.
pub(crate) const TABLES: [Table; 10] = [
    Table { file: "json_patch.json", case: None },
    Table { file: "label_selector_convert.json", case: Some(label_selector_convert::case) },
    Table { file: "label_selector_match.json", case: Some(label_selector_match::case) },
    Table { file: "label_selector_parse.json", case: None },
    Table { file: "match_condition_outcome.json", case: None },
    Table { file: "namespace_matcher.json", case: Some(namespace_matcher::case) },
    Table { file: "object_matcher.json", case: Some(object_matcher::case) },
    Table { file: "reinvocation.json", case: None },
    Table { file: "rules.json", case: Some(rules::case) },
    Table { file: "statuserror.json", case: Some(statuserror::case) },
];
