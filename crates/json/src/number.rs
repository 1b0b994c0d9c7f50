//! Numbers and the three words.

use super::JsonError;

/// End of the number, `true`, `false` or `null` at `at`.
///
/// # Errors
/// It is none, or something else than a delimiter follows.
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

/// Behind the digits at `at`, of which there must be one at least.
fn past_digits(rest: &[u8], at: usize) -> Option<usize> {
    let digits = rest.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then_some(at + digits)
}
