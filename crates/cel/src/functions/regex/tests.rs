//! Patterns of Go's syntax, and what they take.

use crate::functions::regex::*;

#[test]
fn patterns_mean_what_they_do_in_go() {
    let cases = [
        (r"^\d+$", "12", true),
        (r"^\d+$", "١٢", false),
        (r"^\w+$", "é", false),
        (r"\bfoo\b", "a foo b", true),
        (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
        (r"^[[a]+$", "[a", true),
        (r"^[a&&b]+$", "a&b", true),
        (r"^[]a]+$", "]a", true),
        (r"^[\w.-]+$", "a.b-c", true),
        (r"^[^\s]+$", "a b", false),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{2}$", "aa", true),
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"^\x41\101$", "AA", true),
        (r"(?i)^ABC$", "abc", true),
        (r"^(?P<name>a)$", "a", true),
        (r"^[[:alpha:]]+$", "ab", true),
        (r"^\/\-\:$", "/-:", true),
        ("a$", "a\n", false),
        (r"{", "{", true),
        (r"^{{x}}$", "{{x}}", true),
        (r"^a{2}?b+?$", "aab", true),
        (r"^(?)a$", "a", true),
    ];
    for (pattern, text, wanted) in cases {
        assert_eq!(compiled(pattern).unwrap().regex.is_match(text), wanted, "{pattern} on {text}");
    }
    for pattern in [
        r"(?=a)", r"(?x)a", r"\u0041", r"\1", "(", "[a", r"a\", "a{1001}", r"\<", "*a", "a+*", "a{2}{3}", "a???",
        r"(?<",
    ] {
        assert!(pattern == r"\<" || compiled(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn large_patterns_are_rejected() {
    assert!(compiled(&"a".repeat(MAX_PATTERN_BYTES + 1)).is_err());
    assert!(compiled(&format!("{}a{}", "(".repeat(3000), "){9}".repeat(3000))).is_err());
    assert!(compiled("((a{100}){100}){100}").is_err());
}

#[test]
fn repetitions_count_as_if_written_out() {
    for (pattern, wanted) in [
        ("", 0),
        ("abc", 3),
        ("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", 63),
        ("(a{10}){10}", 100),
        ("((a?){30}){30}b", 901),
        (r"\pL{3}", 24),
        (r"[^\]]{2}", 16),
        (r"[\]]{2}", 2),
        ("a{x}", 4),
    ] {
        assert_eq!(positions(pattern), wanted, "{pattern}");
    }
}

#[test]
fn unprintable_characters_are_those_that_go_escapes() {
    let odd = |text| unprintable(text).collect::<Vec<_>>();
    assert!(odd("a b\u{e9}\u{1f9ff}").is_empty());
    assert_eq!(odd("a\n\u{a0}b\"c\\"), [1..4, 5..6, 7..8]);
}
