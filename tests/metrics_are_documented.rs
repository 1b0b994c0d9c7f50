//! `docs/metrics.md` is what the metrics table says.
//!
//! `GATEPOST_REGENERATE=1 cargo test --test metrics_are_documented` writes it anew.

use std::fs;

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
        "docs/metrics.md is not what the table prints; run GATEPOST_REGENERATE=1 cargo test --test metrics_are_documented"
    );
}
