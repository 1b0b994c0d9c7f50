//! Named formats of strings. Source: `k8s.io/apiserver/pkg/cel/library/format.go`,
//! `k8s.io/apimachinery/pkg/util/validation`, `k8s.io/kube-openapi/pkg/validation/strfmt`.

use crate::{time::Timestamp, url::Url};

/// A named format.
pub(super) struct Format {
    /// Name after `format.`.
    pub(super) name: &'static str,
    /// Name that is compared and printed.
    shown: &'static str,
    /// Size of upstream's regular expression for the format, which determines the cost.
    pub(super) regex_size: u64,
    check: fn(&str) -> Vec<String>,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.shown)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown
    }
}

impl Format {
    /// Returns the faults of the text; none if it has this format.
    pub(super) fn problems(&self, text: &str) -> Vec<String> {
        (self.check)(text)
    }
}

/// Every named format.
pub(super) static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", shown: "DNS1123Label", regex_size: 30, check: dns_label },
    Format { name: "dns1123Subdomain", shown: "DNS1123Subdomain", regex_size: 60, check: dns_subdomain },
    Format { name: "dns1035Label", shown: "DNS1035Label", regex_size: 30, check: dns1035_label },
    Format { name: "qualifiedName", shown: "QualifiedName", regex_size: 60, check: qualified_name },
    Format {
        name: "dns1123LabelPrefix",
        shown: "DNS1123LabelPrefix",
        regex_size: 30,
        check: |text| dns_label(&masked(text)),
    },
    Format {
        name: "dns1123SubdomainPrefix",
        shown: "DNS1123SubdomainPrefix",
        regex_size: 60,
        check: |text| dns_subdomain(&masked(text)),
    },
    Format {
        name: "dns1035LabelPrefix",
        shown: "DNS1035LabelPrefix",
        regex_size: 30,
        check: |text| dns1035_label(&masked(text)),
    },
    Format { name: "labelValue", shown: "LabelValue", regex_size: 40, check: label_value },
    Format {
        name: "uri",
        shown: "URI",
        regex_size: 1103,
        check: |text| problem_unless(Url::is_url(text), "invalid URI"),
    },
    Format {
        name: "uuid",
        shown: "uuid",
        regex_size: 70,
        check: |text| problem_unless(is_uuid(text), "does not match the UUID format"),
    },
    Format {
        name: "byte",
        shown: "byte",
        regex_size: 84,
        check: |text| problem_unless(is_base64(text), "invalid base64"),
    },
    Format { name: "date", shown: "date", regex_size: 71, check: |text| problem_unless(is_date(text), "invalid date") },
    Format {
        name: "datetime",
        shown: "datetime",
        regex_size: 71,
        check: |text| problem_unless(is_datetime(text), "invalid datetime"),
    },
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                       alphanumeric character";

/// Returns true if this is a DNS label by RFC 1123.
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

/// Returns true if these are DNS labels with dots between them.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    is_between(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), b"-")
}

/// Returns true if the bytes at both ends are `plain`, and all bytes are `plain` or among `others`.
fn is_between(text: &str, plain: fn(u8) -> bool, others: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].iter().all(|byte| byte.is_some_and(|byte| plain(*byte)));
    ends && bytes.iter().all(|byte| plain(*byte) || others.contains(byte))
}

fn problem_unless(is_valid: bool, problem: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![problem.to_owned()] }
}

fn too_long(text: &str, most: usize, unit: &str) -> Vec<String> {
    problem_unless(text.len() <= most, &format!("must be no more than {most} {unit}"))
}

/// Returns a problem in upstream's words.
fn no_match(what: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

/// Replaces the dash at the end of a prefix, so that the prefix can be checked as a name.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        // As in upstream, also replaces the character before the dash.
        Some(rest) if !rest.is_empty() => {
            let mut rest = rest.to_owned();
            rest.pop();
            rest + "a"
        }
        _ => text.to_owned(),
    }
}

fn dns_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63, "characters");
    if !is_label(text) {
        problems.push(match text.split('.').all(is_label) {
            true => "must not contain dots".to_owned(),
            false => no_match(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ),
        });
    }
    problems
}

fn dns_subdomain(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253, "characters");
    if !text.split('.').all(is_label) {
        problems.push(no_match(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63, "characters");
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(no_match(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

fn is_name(text: &str) -> bool {
    is_between(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

fn qualified_name(text: &str) -> Vec<String> {
    let examples = ["MyName", "my.name", "123-abc"];
    let parts: Vec<_> = text.split('/').collect();
    let mut problems = Vec::new();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            problems.extend(dns_subdomain(prefix).iter().map(|problem| format!("prefix part {problem}")));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                no_match(NAME_RULE, NAME, &examples)
            )];
        }
    };
    match name {
        "" => problems.push("name part must be non-empty".to_owned()),
        name => problems.extend(too_long(name, 63, "bytes").iter().map(|problem| format!("name part {problem}"))),
    }
    if !is_name(name) {
        problems.push(format!("name part {}", no_match(NAME_RULE, NAME, &examples)));
    }
    problems
}

fn label_value(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63, "bytes");
    if !text.is_empty() && !is_name(text) {
        let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                    start and end with an alphanumeric character";
        problems.push(no_match(what, &format!("({NAME})?"), &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// Returns true if this is a UUID. Each dash is optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (number, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if number > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..digits) {
            Some(part) if part.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest = &rest[digits..],
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Returns true if this is base64. Source: `github.com/asaskevich/govalidator`, Base64.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && are_digits
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some()
}

fn is_datetime(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some((clock, behind)) = time.split_at_checked(8) else { return false };
    let in_range = |at: usize, most: u8| {
        clock.get(at..at + 2).is_some_and(|two| {
            two.bytes().all(|byte| byte.is_ascii_digit()) && two.parse().is_ok_and(|number: u8| number <= most)
        })
    };
    let clock_fits = in_range(0, 23) && in_range(3, 59) && in_range(6, 59);
    let colons = clock.as_bytes()[2] == b':' && clock.as_bytes()[5] == b':';
    is_date(date) && clock_fits && colons && is_zone(past_fraction(behind))
}

/// Skips any one character and digits, if a zone follows them.
fn past_fraction(text: &str) -> &str {
    let Some(sign) = text.chars().next() else { return text };
    let behind = &text[sign.len_utf8()..];
    let rest = behind.trim_start_matches(|digit: char| digit.is_ascii_digit());
    if rest.len() < behind.len() && is_zone(rest) { rest } else { text }
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"z" => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()),
        _ => false,
    }
}
