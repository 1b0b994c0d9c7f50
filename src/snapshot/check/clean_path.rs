//! Clean path: a webhook's path as kube-apiserver asks it, cleaned and escaped.
//!
//! Source: client-go's `rest.Request`, which joins (`path.Clean`) and escapes (`url.URL.EscapedPath`) the path it was
//! given: unescaped that of `clientConfig.url`, as it stands that of `clientConfig.service`.

use std::fmt::Write as _;

/// Path of a URL, whose escapes were checked: they are read first, as Go's `url.Parse` does. So `%2F` is a slash, and
/// `%2e%2e` a step up.
pub(crate) fn of_url(path: &str) -> String {
    cleaned(&unescaped(path))
}

/// Path of a service, in which `%` stands for itself.
pub(crate) fn of_service(path: &str) -> String {
    cleaned(path.as_bytes())
}

/// One slash between steps and none at the end, `.` and `..` carried out, escaped where Go does.
fn cleaned(path: &[u8]) -> String {
    let mut steps = Vec::new();
    for step in path.split(|byte| *byte == b'/') {
        match step {
            b"" | b"." => {}
            b".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    let mut written = String::from(if steps.is_empty() { "/" } else { "" });
    for step in steps {
        written.push('/');
        for &byte in step {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(&byte) {
                written.push(char::from(byte));
            } else {
                // Writing to a String does not fail.
                _ = write!(written, "%{byte:02X}");
            }
        }
    }
    written
}

fn unescaped(path: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[2..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asked of client-go v0.36.3: the request URI of `rest.UnversionedRESTClientFor` with this path of a URL.
    const ASKED: [(&str, &str); 26] = [
        ("", "/"),
        ("/", "/"),
        ("/validate", "/validate"),
        ("/validate/", "/validate"),
        ("//x", "/x"),
        ("/x//y///", "/x/y"),
        ("/./x/.", "/x"),
        ("/a/../b", "/b"),
        ("/../../b", "/b"),
        ("/a/..", "/"),
        ("/a%2Fb", "/a/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/%2F%2Fa", "/a"),
        ("/[x]", "/%5Bx%5D"),
        ("/'x'", "/%27x%27"),
        ("/\"x\"", "/%22x%22"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%20b"),
        ("/%61", "/a"),
        ("/é", "/%C3%A9"),
        ("/a%3Fb%23c", "/a%3Fb%23c"),
        ("/a%25b", "/a%25b"),
        ("/a%0Ab", "/a%0Ab"),
        ("/$&+,:;=@-_.~", "/$&+,:;=@-_.~"),
        ("/!(*)", "/%21%28%2A%29"),
        ("/<>\\^`{|}", "/%3C%3E%5C%5E%60%7B%7C%7D"),
    ];

    #[test]
    fn a_url_s_path_is_asked_as_client_go_asks_it() {
        for (written, asked) in ASKED {
            assert_eq!(of_url(written), asked, "{written}");
            assert_eq!(of_url(asked), asked, "{written}: what is clean stays as it is");
        }
    }

    #[test]
    fn a_service_s_path_holds_no_escapes() {
        assert_eq!(of_service("/a%2Fb/"), "/a%252Fb");
        assert_eq!(of_service("validate"), "/validate");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_clean_is_a_rooted_path(path in "(\\PC|[%/.]|%2[ef]|\\.\\.){0,24}") {
            let asked = of_url(&path);
            proptest::prop_assert!(asked.starts_with('/') && (asked.len() == 1 || !asked.ends_with('/')), "{asked}");
            proptest::prop_assert!(!asked.split('/').any(|step| step == "." || step == ".."), "{asked}");
            proptest::prop_assert!(!asked.contains("//"), "{asked}");
        }
    }
}
