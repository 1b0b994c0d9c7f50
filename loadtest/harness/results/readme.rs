//! The README of a result folder.

use super::Row;
use crate::machine;

/// Beginning of the README, known before anything is measured.
pub(super) fn beginning(label: &str, command: &str, pinning: &str) -> String {
    format!(
        "# {label}\n\n\
         `{command}`\n\n\
         {}\n- {pinning}\n\n\
         `loadtest/README.md` says how each figure is measured; `raw/` holds every run.\n",
        machine::describe()
    )
}

/// The table, and whatever the reader must know to read it.
pub(super) fn end(rows: &[Row], notes: &[String]) -> String {
    let mut text = format!("\n- load average when it ended: {}\n", machine::load_average());
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
