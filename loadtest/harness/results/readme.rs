//! The README of a result folder.

use std::env;

use super::Row;
use crate::machine;

/// What is known before anything is measured.
pub(super) fn beginning(label: &str, script: &str, pinning: &str) -> String {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let command = format!("{script} {}", arguments.join(" "));
    format!(
        "# {label}\n\n\
         `{}`\n\n\
         {}\n- {pinning}\n\n\
         `summary.csv` has a line per figure and cell, `raw/` every run behind it; `loadtest/README.md` says how each \
         is measured.\n",
        command.trim_end(),
        machine::describe()
    )
}

/// The table, and whatever the reader must know to read it.
pub(super) fn end(rows: &[Row], notes: &[String]) -> String {
    let mut text = format!("- load average when it ended: {}\n", machine::load_average());
    text.push_str("\n| figure | size | hooks | naive | ours | ratio | target | met |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        text.push_str(&row.markdown());
        text.push('\n');
    }
    if !notes.is_empty() {
        text.push_str("\n## Notes\n\n");
        notes.iter().for_each(|note| text.push_str(&format!("- {note}\n")));
    }
    text
}
