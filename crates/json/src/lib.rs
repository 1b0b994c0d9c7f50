//! JSON as text that stays where it is: a value is read only where somebody asks for it, and the rest is passed by at
//! the speed of a scan. All of RFC 8259 is checked on the way, so what is passed on is JSON.
//!
//! Text is `&str`: whoever has bytes checks once that they are UTF-8.
//!
//! A [`Rope`] is a message as the shared pieces it arrived in.
#![forbid(unsafe_code)]

mod block;
mod container;
mod cursor;
mod ends;
mod nesting;
mod number;
mod rope;
mod skip;
mod text;
mod tokens;

pub use self::{
    container::{items, members, scalar, string},
    cursor::{Cursor, JsonReadError},
    ends::{ContainerEnds, Ends, Noted, brackets},
    nesting::Nesting,
    rope::Rope,
    skip::skip,
    text::JsonText,
};

/// Objects and arrays may nest no deeper, as in Go's decoder.
pub const MAX_DEPTH: usize = 10_000;

/// The text is not JSON. Says where and what, and repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {what}")]
pub struct JsonError {
    /// Offset of the byte at fault.
    pub at: usize,
    /// Fault at that place.
    pub what: &'static str,
}

impl JsonError {
    /// This fault at this offset.
    pub const fn new(at: usize, what: &'static str) -> Self {
        Self { at, what }
    }
}

/// Checks that the bytes are one JSON object and nothing else but white space, fit to stand `around` objects deep.
///
/// # Errors
/// [`JsonError`], also where the bytes are not UTF-8.
pub fn object(bytes: &[u8], around: usize) -> Result<(), JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::new(error.valid_up_to(), "this is not UTF-8"))?;
    let start = past_blanks(text, 0);
    if text.as_bytes().get(start) != Some(&b'{') {
        return Err(JsonError::new(start, "this is not a JSON object"));
    }
    let end = past_blanks(text, skip::within(text, start, around)?);
    if end < text.len() {
        return Err(JsonError::new(end, "there is more after the object"));
    }
    Ok(())
}

/// Checks that the bytes are one JSON value and nothing else but white space.
///
/// # Errors
/// [`JsonError`], also where the bytes are not UTF-8.
pub fn value(bytes: &[u8]) -> Result<(), JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::new(error.valid_up_to(), "this is not UTF-8"))?;
    let end = past_blanks(text, skip(text, 0)?);
    if end < text.len() {
        return Err(JsonError::new(end, "there is more after the value"));
    }
    Ok(())
}

/// Does the text begin as a JSON object does?
pub fn is_object(text: &str) -> bool {
    text.as_bytes().get(past_blanks(text, 0)) == Some(&b'{')
}

/// Offset of the next byte that is no white space.
fn past_blanks(text: &str, at: usize) -> usize {
    let blanks = text.as_bytes()[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    at + blanks.count()
}

#[cfg(test)]
mod tests;
