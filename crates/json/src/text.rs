//! Text: one string of the JSON, as it stands there.

use std::borrow::Cow;

use bytestring::ByteString;

use super::{JsonError, block};

/// A string, without its quotes, checked.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> JsonText<'a> {
    /// The string whose opening quote stands at `at`, and where it ends, closing quote included.
    pub fn read(text: &'a str, at: usize) -> Result<(Self, usize), JsonError> {
        let bytes = text.as_bytes();
        /// Bytes after which it is worth looking at whole blocks.
        const SHORT: usize = 24;
        let mut escaped = false;
        let mut end = at + 1;
        let mut next_block = end + SHORT;
        loop {
            if end >= next_block {
                end = block::past_plain(bytes, end);
                next_block = end + block::LEN;
            }
            match bytes.get(end) {
                Some(b'"') => return Ok((Self { raw: &text[at + 1..end], escaped }, end + 1)),
                Some(b'\\') => {
                    escaped = true;
                    end = past_escape(bytes, end + 1)?;
                }
                Some(..0x20) => return Err(control(end)),
                Some(_) => end += 1,
                None => return Err(JsonError::new(at, "the text ends inside a string that begins here")),
            }
        }
    }

    /// Value of the string. Half a surrogate pair becomes U+FFFD, as in Go's decoder.
    pub fn plain(self) -> Cow<'a, str> {
        if self.escaped { unescaped(self.raw).into() } else { self.raw.into() }
    }

    /// Value of the string, as a slice of `body`, which it was read from, where nothing in it is escaped.
    pub fn shared(self, body: &ByteString) -> ByteString {
        if self.escaped { unescaped(self.raw).into() } else { body.slice_ref(self.raw) }
    }
}

/// A raw control character in a string.
pub(super) const fn control(at: usize) -> JsonError {
    JsonError::new(at, "a control character must be escaped in a string")
}

/// Behind an escape, whose letter stands at `at`.
pub(super) fn past_escape(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') if bytes.get(at + 1..at + 5).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit)) => {
            Ok(at + 5)
        }
        _ => Err(JsonError::new(at, "this is no escape")),
    }
}

/// `raw` must have been checked.
fn unescaped(raw: &str) -> String {
    let mut plain = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut after = escape.chars();
        let sign = match after.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let (sign, len) = code_point(escape);
                plain.push(sign);
                rest = &escape[len..];
                continue;
            }
            Some(itself) => itself,
            None => break,
        };
        plain.push(sign);
        rest = after.as_str();
    }
    plain.push_str(rest);
    plain
}

/// The character of an escape that begins with `u`, and the length of it, a second half included.
fn code_point(escape: &str) -> (char, usize) {
    let high = unit(escape);
    let low = escape.get(5..).and_then(|rest| rest.strip_prefix('\\')).filter(|rest| rest.starts_with('u')).map(unit);
    match (high, low) {
        (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
            let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 11)
        }
        _ => (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 5),
    }
}

fn unit(escape: &str) -> u32 {
    escape.get(1..5).and_then(|code| u32::from_str_radix(code, 16).ok()).unwrap_or(0xfffd)
}
