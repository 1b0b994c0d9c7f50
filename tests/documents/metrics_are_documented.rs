//! `docs/metrics.md` is what the metrics table says, and `docs/when-things-fail.md` describes every failure kind.
//!
//! `GATEPOST_REGENERATE=1 cargo test --test documents metrics_are_documented` writes it anew.

use std::fs;

use gatepost_api::FailureKind;

#[test]
fn the_page_is_printed_from_the_table() {
    let page = gatepost::telemetry::table::markdown();
    if std::env::var_os("GATEPOST_REGENERATE").is_some() {
        fs::create_dir_all("docs").expect("folder");
        fs::write("docs/metrics.md", &page).expect("written");
    }
    let committed = fs::read_to_string("docs/metrics.md").unwrap_or_default();
    assert!(
        committed == page,
        "docs/metrics.md is not what the table prints; run GATEPOST_REGENERATE=1 cargo test --test documents metrics_are_documented"
    );
}

#[test]
fn every_kind_of_call_failure_is_described() {
    let page = fs::read_to_string("docs/when-things-fail.md").expect("is there");
    let mut described: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("- **`")?.split_once("`**:")).map(|(kind, _)| kind).collect();
    let mut kinds: Vec<_> = FailureKind::ALL.iter().map(|kind| kind.as_str()).collect();
    described.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(described, kinds);
}
