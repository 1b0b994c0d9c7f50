//! String: a string field of an answer, as Go's decoder fills it.

use crate::json::{Cursor, JsonReadError};

/// Passes on the string that comes next; `null` leaves the field as it is.
pub(super) fn set(cursor: &mut Cursor<'_>, field: &'static str, put: impl FnOnce(String)) -> Result<(), JsonReadError> {
    if let Some(text) = string(cursor, field)? {
        put(text);
    }
    Ok(())
}

/// String that comes next; `None` for `null`.
pub(super) fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<String>, JsonReadError> {
    Ok(cursor.string(field)?.map(|text| text.plain().into_owned()))
}
