//! Media type: can a `Content-Type` be read?
//!
//! Its value does not matter to kube-apiserver, which recognizes the encoding by the body. But an answer whose type
//! cannot be parsed is not decoded. Source: Go's `mime.ParseMediaType`, called by client-go's `rest.Request`.

use std::collections::BTreeMap;

/// Can the header's value be read? An empty one is as good as none.
pub(super) fn is_readable(value: &[u8]) -> bool {
    if value.is_empty() || value == b"application/json" {
        return true;
    }
    let text = String::from_utf8_lossy(value);
    let end = text.find(';').unwrap_or(text.len());
    is_type(text[..end].to_lowercase().trim()) && are_parameters(&text[end..])
}

/// `type`, or `type/subtype`.
fn is_type(text: &str) -> bool {
    let (main, rest) = token(text);
    let (sub, behind) = rest.strip_prefix('/').map_or((rest, ""), token);
    !main.is_empty() && behind.is_empty() && (rest.is_empty() || rest.starts_with('/') && !sub.is_empty())
}

/// Any number of `; name=value`, no name with two values; one more `;` may end them.
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

/// Name, value, and what is behind them.
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

/// Value of a quoted text, given the text behind its first quote. A backslash is one where it needs not be escaped.
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

/// The token that a text begins with, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_of_it = |sign: char| sign.is_ascii_graphic() && !is_special(sign);
    text.split_at(text.find(|sign| !is_of_it(sign)).unwrap_or(text.len()))
}

/// RFC 2045's tspecials.
fn is_special(sign: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `mime.ParseMediaType` of Go 1.26 reads them.
    #[test]
    fn what_go_can_read_is_readable_and_nothing_else() {
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
            assert!(is_readable(good.as_bytes()), "{good}");
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
            assert!(!is_readable(bad.as_bytes()), "{bad}");
        }
        assert!(!is_readable(b"a/\xff"));
    }
}
