//! Text: times, and shortened texts, of a report.

use std::time::SystemTime;

/// Characters of one text.
pub(super) const LONGEST_TEXT: usize = 400;

/// Time in RFC 3339, to the second.
pub(super) fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The beginning of a text that others wrote.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
