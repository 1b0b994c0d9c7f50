//! Container: keys and values of one object or array, each value only located.

use std::borrow::Cow;

use super::{Cursor, JsonError, JsonText, cursor::JsonReadError};

/// Calls `each` for every key of the object that begins at `at`, in order: where the key begins, what it says, and
/// where its value begins. Says where the object ends.
///
/// # Errors
/// [`JsonError`]: there is no valid object.
pub fn members<'a>(
    text: &'a str,
    at: usize,
    mut each: impl FnMut(usize, Cow<'a, str>, usize),
) -> Result<usize, JsonError> {
    let mut cursor = Cursor::new(&text[at..]);
    located(at, || {
        if cursor.object("it")? {
            loop {
                let before = at + cursor.at();
                let Some(key) = cursor.key()? else { break };
                // A comma and blanks may stand before it.
                let begins = before + text[before..].bytes().take_while(|byte| *byte != b'"').count();
                each(begins, key.plain(), at + cursor.place()?.start);
            }
        }
        Ok(at + cursor.behind())
    })
}

/// Calls `each` for every item of the array that begins at `at`, in order: where it begins. Says where the
/// array ends.
///
/// # Errors
/// [`JsonError`]: there is no valid array.
pub fn items(text: &str, at: usize, mut each: impl FnMut(usize)) -> Result<usize, JsonError> {
    let mut cursor = Cursor::new(&text[at..]);
    located(at, || {
        if cursor.array("it")? {
            while cursor.item()? {
                each(at + cursor.place()?.start);
            }
        }
        Ok(at + cursor.behind())
    })
}

/// The string whose opening quote stands at `at`.
///
/// # Errors
/// [`JsonError`]: there is no valid string.
pub fn string(text: &str, at: usize) -> Result<Cow<'_, str>, JsonError> {
    JsonText::read(text, at).map(|(string, _)| string.plain())
}

/// The number or word that begins at `at`.
///
/// # Errors
/// [`JsonError`]: there is none.
pub fn scalar(text: &str, at: usize) -> Result<&str, JsonError> {
    super::number::scalar(text.as_bytes(), at).map(|end| &text[at..end])
}

fn located(at: usize, read: impl FnOnce() -> Result<usize, JsonReadError>) -> Result<usize, JsonError> {
    read().map_err(|error| match error {
        JsonReadError::Json(error) => JsonError { at: at + error.at, ..error },
        JsonReadError::Type { .. } => JsonError::new(at, "this is no container"),
    })
}
