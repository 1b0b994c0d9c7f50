//! Regular expressions: Go's syntax, run by a library that takes time linear in the text, as Go's does.
//!
//! The two syntaxes differ in little, and what differs is written anew or refused; nothing is left to mean something
//! else: `\d`, `\w`, `\s` and `\b` are of ASCII in Go; in a class `[`, `&&`, `--` and `~~` are nothing special there.

use regex::{Regex, RegexBuilder};

use super::{Cost, Row, none, operators::part, operators::text};
use crate::cel::{
    fault::{Fault, cut},
    meter::Meter,
    value::Value,
};

pub(super) const ROWS: &[Row] = &[
    Row("matches", &["string|string->bool", "string,string->bool"], Cost::Pattern, |args, meter| {
        let (text, pattern) = (text(args.first())?, text(args.get(1))?);
        Ok(Value::Bool(compiled_now(pattern, meter)?.is_match(text)))
    }),
    Row("find", &["string|string->string"], Cost::Pattern, |args, meter| {
        let Some(value) = args.first() else { return none() };
        match compiled_now(text(args.get(1))?, meter)?.find(text(Some(value))?) {
            Some(found) => part(value, found.range(), meter),
            None => Ok(Value::made("")),
        }
    }),
    Row(
        "findAll",
        &["string|string->list(string)", "string|string,int->list(string)"],
        Cost::Pattern,
        |args, meter| {
            let Some(value) = args.first() else { return none() };
            let most = match args.get(2) {
                Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
                None => usize::MAX,
                Some(_) => return none(),
            };
            let pattern = compiled_now(text(args.get(1))?, meter)?;
            let mut found = Vec::new();
            for one in pattern.find_iter(text(Some(value))?).take(most) {
                meter.step(1)?;
                found.push(part(value, one.range(), meter)?);
            }
            Ok(Value::list(found))
        },
    ),
];

/// The longest pattern; its size when compiled is bounded too.
const LONGEST: usize = 10_000;
const LARGEST: usize = 1 << 20;

fn compiled_now(pattern: &str, meter: &Meter<'_>) -> Result<Regex, Fault> {
    // A tenth of a microsecond a character, or so.
    meter.step(50 + 20 * pattern.len() as u64)?;
    // It may stand in the object, and is not repeated.
    compiled(pattern).map_err(|_| Fault::error("error parsing regexp"))
}

/// A pattern in Go's syntax, compiled.
pub(in crate::cel) fn compiled(pattern: &str) -> Result<Regex, String> {
    let error = |why: &str| format!("error parsing regexp: {why}: `{}`", cut(pattern));
    if pattern.len() > LONGEST {
        return Err("error parsing regexp: it is longer than 10,000 bytes".to_owned());
    }
    let ours = translated(pattern).map_err(error)?;
    RegexBuilder::new(&ours).size_limit(LARGEST).dfa_size_limit(LARGEST).nest_limit(100).build().map_err(
        |why| match why {
            regex::Error::CompiledTooBig(_) => error("it is too large"),
            _ => error("invalid syntax"),
        },
    )
}

/// The same pattern in the library's syntax.
fn translated(pattern: &str) -> Result<String, &'static str> {
    let mut ours = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    let mut class_begins = false;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        let fresh = std::mem::take(&mut class_begins);
        rest = match char {
            '\\' => escape(after, in_class, &mut ours)?,
            '[' if in_class => match after.strip_prefix(':').and_then(|posix| posix.find(":]")) {
                Some(end) => {
                    ours.push_str(&rest[..end + 4]);
                    &rest[end + 4..]
                }
                None => {
                    ours.push_str("\\[");
                    after
                }
            },
            '[' => {
                in_class = true;
                ours.push('[');
                let after = match after.strip_prefix('^') {
                    Some(after) => {
                        ours.push('^');
                        after
                    }
                    None => after,
                };
                class_begins = true;
                after
            }
            ']' if in_class && fresh => {
                ours.push_str("\\]");
                after
            }
            ']' if in_class => {
                in_class = false;
                ours.push(']');
                after
            }
            '&' | '~' if in_class => {
                ours.push('\\');
                ours.push(char);
                after
            }
            '-' if in_class && (fresh || after.starts_with(']')) => {
                ours.push_str("\\-");
                after
            }
            '-' if in_class && after.starts_with('-') => return Err("a range to - is not taken here"),
            '{' if !in_class && is_repetition(after) && repeats(after) > 1000 => return Err("invalid repeat count"),
            '{' if !in_class && !is_repetition(after) => {
                ours.push_str("\\{");
                after
            }
            '}' if !in_class && !ends_repetition(&ours) => {
                ours.push_str("\\}");
                after
            }
            '(' if !in_class && after.starts_with('?') => group(after, &mut ours)?,
            other => {
                ours.push(other);
                after
            }
        };
    }
    Ok(ours)
}

/// Behind a backslash.
fn escape<'p>(after: &'p str, in_class: bool, ours: &mut String) -> Result<&'p str, &'static str> {
    let Some(char) = after.chars().next() else { return Err("trailing backslash at end of expression") };
    let behind = &after[char.len_utf8()..];
    let class = |members: &str, negated: bool| match (in_class, negated) {
        (true, false) => members.to_owned(),
        (false, false) => format!("[{members}]"),
        (_, true) => format!("[^{members}]"),
    };
    match char {
        'd' | 'D' => ours.push_str(&class("0-9", char == 'D')),
        'w' | 'W' => ours.push_str(&class("0-9A-Za-z_", char == 'W')),
        's' | 'S' => ours.push_str(&class("\\t\\n\\x0C\\r ", char == 'S')),
        'b' if !in_class => ours.push_str("(?-u:\\b)"),
        'B' if !in_class => return Err("\\B is not taken here"),
        'A' | 'z' if !in_class => {
            ours.push('\\');
            ours.push(char);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
            ours.push('\\');
            ours.push(char);
        }
        'x' => {
            ours.push_str("\\x");
            let digits = match behind.strip_prefix('{') {
                Some(braced) => braced.find('}').map(|end| end + 2),
                None => Some(2),
            };
            let code = digits.and_then(|len| behind.get(..len)).ok_or("invalid escape sequence")?;
            ours.push_str(code);
            return Ok(&behind[code.len()..]);
        }
        'p' | 'P' => {
            ours.push('\\');
            ours.push(char);
            let len = match behind.strip_prefix('{') {
                Some(braced) => braced.find('}').map(|end| end + 2),
                None => behind.chars().next().map(char::len_utf8),
            };
            let name = len.and_then(|len| behind.get(..len)).ok_or("invalid character class range")?;
            ours.push_str(name);
            return Ok(&behind[name.len()..]);
        }
        'Q' if !in_class => {
            let (quoted, behind) = behind.split_once("\\E").unwrap_or((behind, ""));
            ours.push_str(&regex::escape(quoted));
            return Ok(behind);
        }
        '0'..='7' => {
            let digits = after.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            // Go takes \1 to \7 only where more digits follow.
            if char != '0' && digits < 2 {
                return Err("invalid escape sequence");
            }
            let code = u32::from_str_radix(&after[..digits], 8).map_err(|_| "invalid escape sequence")?;
            ours.push_str(&format!("\\x{{{code:x}}}"));
            return Ok(&after[digits..]);
        }
        sign if sign.is_ascii_punctuation() => ours.push_str(&format!("\\x{{{:x}}}", u32::from(sign))),
        _ => return Err("invalid escape sequence"),
    }
    Ok(behind)
}

/// Behind `(`, where a `?` stands: only the groups and flags that Go has.
fn group<'p>(after: &'p str, ours: &mut String) -> Result<&'p str, &'static str> {
    ours.push('(');
    let end = after.find([':', ')', '>']).ok_or("missing closing )")?;
    let head = &after[..=end];
    let flags = head.strip_prefix('?').map(|flags| &flags[..flags.len() - 1]);
    let named = head.starts_with("?P<") || head.starts_with("?<");
    let known = flags.is_some_and(|flags| flags.bytes().all(|flag| b"imsU-".contains(&flag)));
    if !named && (!known || head.ends_with('>')) {
        return Err("invalid or unsupported Perl syntax");
    }
    ours.push_str(head);
    Ok(&after[end + 1..])
}

/// `3}`, `3,}` or `3,5}`, of at most 1,000.
fn is_repetition(after: &str) -> bool {
    let Some((inner, _)) = after.split_once('}') else { return false };
    let number = |text: &str| !text.is_empty() && text.len() < 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    match inner.split_once(',') {
        None => number(inner),
        Some((least, most)) => number(least) && (most.is_empty() || number(most)),
    }
}

/// Number of repetitions, at most or at least.
fn repeats(after: &str) -> u32 {
    let inner = after.split_once('}').map_or("", |(inner, _)| inner);
    inner.split(',').filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

/// Is what was written so far the beginning of a repetition?
fn ends_repetition(ours: &str) -> bool {
    let Some(open) = ours.rfind('{') else { return false };
    !ours[..open].ends_with('\\') && is_repetition(&format!("{}}}", &ours[open + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_means_by_a_pattern_is_kept() {
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
        ];
        for (pattern, text, wanted) in cases {
            assert_eq!(compiled(pattern).unwrap().is_match(text), wanted, "{pattern} on {text}");
        }
        for pattern in [r"(?=a)", r"(?x)a", r"\u0041", r"\1", "(", "[a", r"a\", "a{1001}", r"\<", "*a", r"(?<"] {
            assert!(pattern == r"\<" || compiled(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn large_patterns_are_refused() {
        assert!(compiled(&"a".repeat(LONGEST + 1)).is_err());
        assert!(compiled(&format!("{}a{}", "(".repeat(3000), "){9}".repeat(3000))).is_err());
        assert!(compiled("((a{100}){100}){100}").is_err());
    }
}
