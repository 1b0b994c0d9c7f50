//! JSON Pointer (RFC 6901): steps of a path, escaped and unescaped.

use std::borrow::Cow;

/// Appends a step to a path, escaped.
pub fn push(path: &mut String, step: &str) {
    path.push('/');
    path.push_str(&escaped(step));
}

/// Returns a step as a path has it.
pub fn escaped(step: &str) -> Cow<'_, str> {
    match step.contains(['~', '/']) {
        true => step.replace('~', "~0").replace('/', "~1").into(),
        false => step.into(),
    }
}

/// Returns the step that a path has as `escaped`. A `~` that escapes nothing stays, as in Go's libraries.
pub fn unescaped(escaped: &str) -> Cow<'_, str> {
    match escaped.contains('~') {
        // In this order: `~01` is `~1`.
        true => escaped.replace("~1", "/").replace("~0", "~").into(),
        false => escaped.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_escaped_and_unescaped() {
        let mut path = String::new();
        for step in ["", "a", "a/b~1~", "~01", "é\"\n"] {
            path.clear();
            push(&mut path, step);
            assert_eq!(path[1..].find('/'), None, "{path}");
            assert_eq!(unescaped(&path[1..]), step);
        }
        assert_eq!(escaped("a/b~1~"), "a~1b~01~0");
        for (escaped, step) in [("~2~", "~2~"), ("~~1", "~/"), ("~~01", "~~1"), ("~~10", "~/0"), ("~00", "~0")] {
            assert_eq!(unescaped(escaped), step);
        }
    }
}
