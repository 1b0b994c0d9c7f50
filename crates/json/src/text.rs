//! Single tokens: white space, strings, numbers and words; and the error for a text that is not JSON.

use std::borrow::Cow;

use bytestring::ByteString;

use crate::block;

/// The deepest nesting of objects and arrays, as in Go's decoder.
pub const MAX_DEPTH: usize = 10_000;

/// The text is not JSON. The message contains the offset and the fault, but nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {what}")]
pub struct JsonError {
    /// Offset of the faulty byte.
    pub at: usize,
    /// The fault.
    pub what: &'static str,
}

impl JsonError {
    /// Creates an error for a fault at an offset.
    pub const fn new(at: usize, what: &'static str) -> Self {
        Self { at, what }
    }
}

/// Returns the offset of the next byte that is not white space.
pub(super) fn past_blanks(text: &str, at: usize) -> usize {
    let blanks = text.as_bytes()[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    at + blanks.count()
}

/// A checked string, as it is written between its quotes.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> JsonText<'a> {
    /// Reads the string whose opening quote is at `at`. Returns it with the offset behind its closing quote.
    ///
    /// # Errors
    /// [`JsonError`] if there is no valid string.
    pub fn read(text: &'a str, at: usize) -> Result<(Self, usize), JsonError> {
        let bytes = text.as_bytes();
        let mut escaped = false;
        let mut end = at + 1;
        loop {
            end = past_plain(bytes, end);
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

    /// Returns the value of the string. Half a surrogate pair becomes U+FFFD, as in Go's decoder.
    pub fn plain(self) -> Cow<'a, str> {
        if self.escaped { unescape(self.raw).into() } else { self.raw.into() }
    }

    /// Returns the value of the string: a slice of `body`, from which it was read, unless it contains an escape.
    pub fn shared(self, body: &ByteString) -> ByteString {
        if self.escaped { unescape(self.raw).into() } else { body.slice_ref(self.raw) }
    }
}

/// Returns an offset up to which a string that has reached `at` contains only plain characters. The byte there ends them,
/// unless the text ends within eight bytes.
fn past_plain(bytes: &[u8], at: usize) -> usize {
    /// Number of words to look at before scanning whole blocks pays.
    const WORDS: usize = 3;
    let mut end = at;
    for word in 1.. {
        let Some(bytes) = bytes.get(end..).and_then(<[u8]>::first_chunk) else { break };
        let plain = plain_bytes(u64::from_le_bytes(*bytes));
        end += plain;
        if plain < 8 {
            break;
        }
        if word == WORDS {
            end = block::past_plain(bytes, end);
        }
    }
    end
}

/// Returns the number of bytes, from the lowest on, that are plain characters of a string.
fn plain_bytes(word: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // The subtraction borrows from the bytes above only: the lowest byte with a high bit is one that is meant.
    let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let ends = (below(word, 0x20) | is(b'"') | is(b'\\')) & (ONES << 7);
    ends.trailing_zeros() as usize / 8
}

/// The error for a raw control character in a string.
pub(super) const fn control(at: usize) -> JsonError {
    JsonError::new(at, "a control character must be escaped in a string")
}

/// Returns the offset behind an escape whose letter is at `at`.
pub(super) fn past_escape(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') if bytes.get(at + 1..at + 5).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit)) => {
            Ok(at + 5)
        }
        _ => Err(JsonError::new(at, "this is no escape")),
    }
}

/// Replaces the escapes in `raw`, which must have been checked.
fn unescape(raw: &str) -> String {
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

/// Returns the character of an escape that begins with `u`, and the escape's length, including a second surrogate.
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

/// Returns the end of the number, `true`, `false` or `null` at `at`.
///
/// # Errors
/// [`JsonError`] if there is none, or it is not followed by a delimiter.
pub(super) fn scalar(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = match rest.first() {
        Some(b't') => word(rest, b"true"),
        Some(b'f') => word(rest, b"false"),
        Some(b'n') => word(rest, b"null"),
        Some(b'-' | b'0'..=b'9') => number(rest),
        _ => None,
    };
    match end {
        Some(end) if ends_here(rest.get(end)) => Ok(at + end),
        _ => Err(JsonError::new(at, "expected a value")),
    }
}

fn ends_here(next: Option<&u8>) -> bool {
    matches!(next, None | Some(b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\n' | b'\r'))
}

fn word(rest: &[u8], word: &[u8]) -> Option<usize> {
    rest.starts_with(word).then_some(word.len())
}

fn number(rest: &[u8]) -> Option<usize> {
    let start = usize::from(rest.first() == Some(&b'-'));
    let mut at = past_digits(rest, start)?;
    if rest[start] == b'0' && at > start + 1 {
        return None;
    }
    if rest.get(at) == Some(&b'.') {
        at = past_digits(rest, at + 1)?;
    }
    if let Some(b'e' | b'E') = rest.get(at) {
        at += 1 + usize::from(matches!(rest.get(at + 1), Some(b'+' | b'-')));
        at = past_digits(rest, at)?;
    }
    Some(at)
}

/// Returns the offset behind one or more digits at `at`.
fn past_digits(rest: &[u8], at: usize) -> Option<usize> {
    let digits = rest.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then_some(at + digits)
}
