//! Documents: configurations, definitions, generated files, and the tables they are held against.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]
#[path = "../../fuzz/oracles/mod.rs"]
mod oracles;

mod alerts_name_metrics_that_exist;
mod check_reports_every_problem;
mod configuration_becomes_hooks;
mod definitions_agree_with_the_check;
mod example_reviews_are_consistent;
mod fuzz_corpus;
mod in_cluster_objects_agree;
mod lines_are_short;
mod links_lead_somewhere;
mod metrics_are_documented;
mod patches_apply_as_in_go;
mod proto_is_current;
mod webhook_configurations_are_read_unchanged;
mod what_holds_where_is_tested;
