//! Pointer: the path of an operation, read as kube-apiserver's library reads it.
//!
//! Two departures from RFC 6901: text before the first `/` counts for nothing, and a `~` that is no escape is itself.

use std::borrow::Cow;

/// A path to a child of a container.
#[derive(Clone, Copy)]
pub(super) struct Pointer<'a> {
    /// Path of the container, still escaped, without the first slash; `None` where it is the root.
    parents: Option<&'a str>,
    /// Name of the child, still escaped.
    last: &'a str,
}

impl<'a> Pointer<'a> {
    /// `None` where the path has no slash, and so means no child.
    pub(super) fn new(path: &'a str) -> Option<Self> {
        let (_, rest) = path.split_once('/')?;
        Some(match rest.rsplit_once('/') {
            Some((parents, last)) => Self { parents: Some(parents), last },
            None => Self { parents: None, last: rest },
        })
    }

    /// Path of the container, unescaped.
    pub(super) fn parents(self) -> impl Iterator<Item = Cow<'a, str>> {
        self.parents.into_iter().flat_map(|parents| parents.split('/')).map(unescaped)
    }

    /// Name of the child, unescaped.
    pub(super) fn last(self) -> Cow<'a, str> {
        unescaped(self.last)
    }
}

fn unescaped(part: &str) -> Cow<'_, str> {
    if !part.contains('~') {
        return part.into();
    }
    let mut plain = String::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('~') {
        plain.push_str(before);
        let (sign, behind) = match after.as_bytes().first() {
            Some(b'0') => ('~', &after[1..]),
            Some(b'1') => ('/', &after[1..]),
            _ => ('~', after),
        };
        plain.push(sign);
        rest = behind;
    }
    plain.push_str(rest);
    plain.into()
}

/// Appends a step to a path, escaped.
pub(super) fn push(path: &mut String, part: &str) {
    path.push('/');
    for sign in part.chars() {
        match sign {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            sign => path.push(sign),
        }
    }
}

/// Bytes of a step, escaped, in a path that is written as a JSON string.
pub(super) fn len_in_json(part: &str) -> usize {
    let escaped = part.bytes().map(|byte| match byte {
        b'~' | b'/' | b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..b' ' => 6,
        _ => 1,
    });
    "/".len() + escaped.sum::<usize>()
}

/// An index as Go's `strconv.Atoi` reads it: a sign and leading zeros are allowed.
pub(super) fn index(part: &str) -> Option<i64> {
    let digits = part.strip_prefix(['+', '-']).unwrap_or(part);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    part.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_in_go() {
        let read = |path: &str| {
            let pointer = Pointer::new(path)?;
            Some((pointer.parents().map(Cow::into_owned).collect::<Vec<_>>().join("|"), pointer.last().into_owned()))
        };
        let some = |parents: &str, last: &str| Some((parents.to_owned(), last.to_owned()));
        assert_eq!(read(""), None);
        assert_eq!(read("a"), None);
        assert_eq!(read("/"), some("", ""));
        assert_eq!(read("/a"), some("", "a"));
        assert_eq!(read("x/a"), some("", "a"));
        assert_eq!(read("/a//b"), some("a|", "b"));
        assert_eq!(read("/a~1b/~01~2~/~0~1~"), some("a/b|~1~2~", "~/~"));
    }

    #[test]
    fn indexes_are_read_as_in_go() {
        for (text, wanted) in [("0", 0), ("01", 1), ("+1", 1), ("-1", -1), ("-0", 0), ("9223372036854775807", i64::MAX)]
        {
            assert_eq!(index(text), Some(wanted), "{text}");
        }
        for text in ["", "-", "+", "1_0", " 1", "1 ", "1.0", "0x1", "--1", "9223372036854775808", "a"] {
            assert_eq!(index(text), None, "{text}");
        }
    }

    #[test]
    fn a_step_that_is_pushed_reads_the_same() {
        let mut path = String::new();
        push(&mut path, "a/b~1~");
        assert_eq!(path, "/a~1b~01~0");
        assert_eq!(Pointer::new(&path).unwrap().last(), "a/b~1~");
    }

    #[test]
    fn a_step_is_as_long_as_it_is_written() {
        for step in (0..0x3000).filter_map(char::from_u32).map(String::from).chain(["".into(), "a/b~1\n\"é".into()]) {
            let mut path = String::new();
            push(&mut path, &step);
            let written = serde_json::Value::from(path).to_string();
            assert_eq!(len_in_json(&step), written.len() - 2, "{step:?}");
        }
    }
}
