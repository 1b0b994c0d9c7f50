//! Values of an answer's headers, as Go's HTTP client reads them.

use std::{collections::BTreeMap, time::Duration};

/// Content encoding that is accepted, as by kube-apiserver (Go's `http.Transport`).
pub(super) const GZIP: &str = "gzip";

/// Returns true if this value of `Content-Encoding` is gzip. Bodies in other encodings are left as they are, as by Go.
pub(super) fn is_gzip(encoding: &[u8]) -> bool {
    encoding.eq_ignore_ascii_case(GZIP.as_bytes())
}

/// Returns the pause that a value of `Retry-After` requests, as client-go reads it: a whole number of seconds. `None`
/// for a date and anything else; zero for a negative number. Source: `retryAfterSeconds` in client-go's
/// `rest/request.go`, by Go's `strconv.Atoi`.
pub(super) fn retry_after(value: &[u8]) -> Option<Duration> {
    let seconds: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Returns true if this value of `Content-Type` can be parsed. An empty one can.
///
/// kube-apiserver recognizes the encoding by the body, but does not decode an answer whose type cannot be parsed.
/// Source: Go's `mime.ParseMediaType`, called by client-go's `rest.Request`.
pub(super) fn is_readable_media_type(value: &[u8]) -> bool {
    if value.is_empty() || value == b"application/json" {
        return true;
    }
    let text = String::from_utf8_lossy(value);
    let end = text.find(';').unwrap_or(text.len());
    is_type(text[..end].to_lowercase().trim()) && are_parameters(&text[end..])
}

/// Returns true for `type` and `type/subtype`.
fn is_type(text: &str) -> bool {
    let (main, rest) = token(text);
    let (sub, behind) = rest.strip_prefix('/').map_or((rest, ""), token);
    !main.is_empty() && behind.is_empty() && (rest.is_empty() || rest.starts_with('/') && !sub.is_empty())
}

/// Returns true for any number of `; name=value`, without a name that has two values. One more `;` may end them.
fn are_parameters(mut rest: &str) -> bool {
    let mut known = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return true;
        }
        let Some((name, value, behind)) = parameter(rest) else { return rest.trim_end() == ";" };
        if known.insert(name.to_ascii_lowercase(), value.clone()).is_some_and(|before| before != value) {
            return false;
        }
        rest = behind;
    }
}

/// Returns the name and value of the first parameter, and the rest.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=').filter(|_| !name.is_empty())?.trim_start();
    let (value, behind) = match rest.strip_prefix('"') {
        Some(quoted) => quoted_value(quoted)?,
        None => {
            let (value, behind) = token(rest);
            (Some(value).filter(|value| !value.is_empty())?.to_owned(), behind)
        }
    };
    Some((name, value, behind))
}

/// Returns the value of a quoted text, and the rest; `text` begins behind the first quote. A backslash before a
/// character that needs no escape is a backslash.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut signs = text.char_indices().peekable();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return Some((value, &text[at + 1..])),
            '\r' | '\n' => return None,
            '\\' => match signs.next_if(|(_, next)| is_special(*next)) {
                Some((_, special)) => value.push(special),
                None => value.push(sign),
            },
            _ => value.push(sign),
        }
    }
    None
}

/// Returns the token that the text begins with, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_token_char = |sign: char| sign.is_ascii_graphic() && !is_special(sign);
    text.split_at(text.find(|sign| !is_token_char(sign)).unwrap_or(text.len()))
}

/// Returns true for the tspecials of RFC 2045.
fn is_special(sign: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `mime.ParseMediaType` of Go 1.26 reads them.
    #[test]
    fn media_types_are_readable_that_go_can_parse() {
        for good in [
            "",
            "application/json",
            "APPLICATION/JSON ; Charset=\"utf-8\"",
            " text/plain",
            "json",
            "application/json;",
            "application/json ; ",
            "a/b;c=d;e=f",
            "a/b; c=\"\"",
            "a/b; c=\"d\\\"e\\f;=\"",
            "a/b; c=d; c=d",
            "a/b; C=d; c=d",
            "a/b; c*0=d; c*1=e",
            "a/b; c*=utf-8''%zz",
            "a/b;\u{a0}c=d",
            "a/b; c=\"é\"",
            "a!#$%&'*+-.^_`{|}~/b",
            "\u{212a}/b",
            "{}",
        ] {
            assert!(is_readable_media_type(good.as_bytes()), "{good}");
        }
        for bad in [
            " ",
            ";",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a b",
            "application/json, text/plain",
            "application/json;;",
            "application/json; charset",
            "application/json; charset=",
            "application/json; =utf-8",
            "a/b; c=\"d",
            "a/b; c=d e",
            "a/b; c=d; c=e",
            "a/b; C=d; c=e",
            "a/b; c*0=d; c*0=e",
            "a/b c=d",
            "é/b",
            "a/é",
        ] {
            assert!(!is_readable_media_type(bad.as_bytes()), "{bad}");
        }
        assert!(!is_readable_media_type(b"a/\xff"));
    }

    #[test]
    fn retry_after_is_read_in_whole_seconds() {
        let read = |text: &str| retry_after(text.as_bytes()).map(|wait| wait.as_secs());
        for (text, seconds) in
            [("7", 7), ("0", 0), ("+7", 7), ("007", 7), ("-1", 0), ("9223372036854775807", 9_223_372_036_854_775_807)]
        {
            assert_eq!(read(text), Some(seconds), "{text}");
        }
        for unreadable in [
            "",
            " 7",
            "1.5",
            "1_0",
            "0x1",
            "soon",
            "-",
            "7,8",
            "9223372036854775808",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Fri, 06 Nov 2076 08:49:37 GMT",
        ] {
            assert_eq!(read(unreadable), None, "{unreadable}");
        }
    }
}
