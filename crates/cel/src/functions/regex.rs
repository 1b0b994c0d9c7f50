//! Regular expressions in Go's syntax, matched by a library that takes time linear in the text, as Go's does.
//!
//! The two syntaxes differ little, and differences are rewritten or rejected: `\d`, `\w`, `\s` and `\b` are ASCII in
//! Go; in a class, Go gives `[`, `&&`, `--` and `~~` no special meaning.

use std::{ops::Range, rc::Rc, sync::LazyLock};

use regex::{Match, Regex, RegexBuilder};

use crate::{
    functions::function::{Cost, Row, none, part, text},
    meter::{Fault, Meter, Room, cut},
    value::{List, Value},
};

pub(super) const ROWS: &[Row] = &[
    Row("matches", &["string|string->bool", "string,string->bool"], Cost::Pattern, matches),
    Row("find", &["string|string->string"], Cost::Pattern, |args, meter| {
        let Some(value) = args.first() else { return none() };
        let pattern = compile_and_pay(text(args.get(1))?, meter)?;
        match pattern.find(text(Some(value))?, meter)? {
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
            let pattern = compile_and_pay(text(args.get(1))?, meter)?;
            let mut found = List::with_room(Room::default(), 0);
            for one in pattern.find_all(text(Some(value))?, meter).take(most) {
                found.push(part(value, one?.range(), meter)?, meter)?;
            }
            Ok(Value::List(Rc::new(found)))
        },
    ),
];

pub(super) fn matches<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let (text, pattern) = (text(args.first())?, text(args.get(1))?);
    compile_and_pay(pattern, meter)?.is_match(text, meter).map(Value::Bool)
}

/// Returns the ranges of characters that Go escapes in quotes.
pub(super) fn unprintable(text: &str) -> impl Iterator<Item = Range<usize>> {
    // Never `None`: a test compiles the pattern.
    static ODD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(UNPRINTABLE).ok());
    ODD.iter().flat_map(|odd| odd.find_iter(text)).map(|found| found.range())
}

/// Characters that Go escapes. Source: `unicode.IsPrint` in Go.
const UNPRINTABLE: &str = r#"[^\p{L}\p{M}\p{N}\p{P}\p{S} ]+|["\\]+"#;

fn compile_and_pay(pattern: &str, meter: &Meter<'_>) -> Result<Pattern, Fault> {
    meter.step(steps(pattern))?;
    // The message omits the pattern, which may come from an object.
    compiled(pattern).map_err(|_| Fault::error("error parsing regexp"))
}

/// Maximum length of a pattern, and maximum size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 10_000;
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Maximum number of positions of a pattern; fewer fit into [`MAX_COMPILED_BYTES`].
const MAX_POSITIONS: u64 = 50_000;

/// Maximum number of positions visited for all bytes of a text in the worst case: about a second of work.
const MAX_VISITS: u64 = 1 << 28;

/// Visited positions that count as one step; most texts take fewer.
const VISITS_PER_STEP: u64 = 32;

/// A compiled pattern in Go's syntax.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Number of characters and classes, with repetitions expanded.
    positions: u64,
}

impl Pattern {
    /// Counts the steps for matching this many bytes.
    fn pay(&self, bytes: usize, meter: &Meter<'_>) -> Result<(), Fault> {
        let visits = self.positions.saturating_mul(bytes as u64);
        if visits > MAX_VISITS {
            return Err(Fault::error("the pattern has too many repetitions for a text of this length"));
        }
        meter.step(visits / VISITS_PER_STEP)
    }

    pub(crate) fn is_match(&self, text: &str, meter: &Meter<'_>) -> Result<bool, Fault> {
        self.pay(text.len(), meter)?;
        Ok(self.regex.is_match(text))
    }

    pub(crate) fn find<'t>(&self, text: &'t str, meter: &Meter<'_>) -> Result<Option<Match<'t>>, Fault> {
        self.pay(text.len(), meter)?;
        Ok(self.regex.find(text))
    }

    /// Returns every match, in order and without overlap.
    pub(crate) fn find_all<'t>(
        &self,
        text: &'t str,
        meter: &Meter<'_>,
    ) -> impl Iterator<Item = Result<Match<'t>, Fault>> {
        let paid = self.pay(text.len(), meter);
        let found = self.regex.find_iter(text).map(move |found| {
            // The search for the next match may read up to the end.
            self.pay(text.len() - found.end(), meter)?;
            Ok(found)
        });
        paid.err().map(Err).into_iter().chain(found)
    }
}

/// Compiles a pattern in Go's syntax.
pub(crate) fn compiled(pattern: &str) -> Result<Pattern, String> {
    let error = |why: &str| format!("error parsing regexp: {why}: `{}`", cut(pattern));
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err("error parsing regexp: it is longer than 10,000 bytes".to_owned());
    }
    let ours = translate(pattern).map_err(error)?;
    let positions = positions(&ours);
    if positions > MAX_POSITIONS {
        return Err(error("it is too large"));
    }
    let built = RegexBuilder::new(&ours)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(100)
        .build();
    built.map(|regex| Pattern { regex, positions }).map_err(|why| match why {
        regex::Error::CompiledTooBig(_) => error("it is too large"),
        _ => error("invalid syntax"),
    })
}

/// Returns the steps for compiling a pattern: about half a microsecond per character. Unicode classes have hundreds of
/// ranges.
pub(super) fn steps(pattern: &str) -> u64 {
    let has_large_classes = !pattern.is_ascii() || ["\\p", "\\P", "(?", "[^"].iter().any(|sign| pattern.contains(sign));
    let of_a_position = if has_large_classes { 150 } else { 4 };
    50 + 20 * pattern.len() as u64 + positions(pattern).min(MAX_POSITIONS) * of_a_position
}

/// Returns the approximate number of characters and classes, with repetitions expanded. Wide classes count more.
fn positions(pattern: &str) -> u64 {
    const WIDE_CLASS_POSITIONS: u64 = 8;
    // Sum before each open group, sum in the innermost group, and size of the item after that sum.
    let (mut outside, mut sum, mut last) = (Vec::new(), 0_u64, 0_u64);
    let mut rest = pattern;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        let item = match char {
            '(' => {
                outside.push(sum.saturating_add(last));
                (sum, last) = (0, 0);
                continue;
            }
            ')' => {
                last = sum.saturating_add(last);
                sum = outside.pop().unwrap_or_default();
                continue;
            }
            '{' if is_repetition(rest) => {
                last = last.saturating_mul(repeats(rest).max(1).into());
                rest = after_brace(rest);
                continue;
            }
            '\\' => {
                let escaped = rest.chars().next();
                rest = &rest[escaped.map_or(0, char::len_utf8)..];
                let is_wide = matches!(escaped, Some('p' | 'P'));
                if (is_wide || escaped == Some('x')) && rest.starts_with('{') {
                    rest = after_brace(rest);
                } else if is_wide {
                    rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
                }
                if is_wide { WIDE_CLASS_POSITIONS } else { 1 }
            }
            '[' => {
                let mut end = rest.len();
                let mut escaped = false;
                for (at, char) in rest.char_indices() {
                    if char == ']' && !escaped && at > 0 {
                        end = at;
                        break;
                    }
                    escaped = char == '\\' && !escaped;
                }
                let class = &rest[..end];
                rest = &rest[(end + 1).min(rest.len())..];
                let is_wide =
                    !class.is_ascii() || class.starts_with('^') || class.contains("\\p") || class.contains("\\P");
                if is_wide { WIDE_CLASS_POSITIONS } else { 1 }
            }
            '?' | '*' | '+' | '|' => continue,
            '.' => WIDE_CLASS_POSITIONS,
            char if char.is_ascii() => 1,
            _ => 4,
        };
        sum = sum.saturating_add(last);
        last = item;
    }
    outside.into_iter().fold(sum.saturating_add(last), u64::saturating_add)
}

/// Returns the text after the next closing brace; empty if there is none.
fn after_brace(text: &str) -> &str {
    text.find('}').map_or("", |end| &text[end + 1..])
}

/// Returns the beginning of a text, at most `most` bytes.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

/// Translates a pattern to the library's syntax.
fn translate(pattern: &str) -> Result<String, &'static str> {
    let mut ours = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    let mut class_begins = false;
    let mut is_repeated = false;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        let fresh = std::mem::take(&mut class_begins);
        let was_repeated = std::mem::take(&mut is_repeated);
        rest = match char {
            '\\' => escape(after, in_class, &mut ours)?,
            '[' if in_class => match after.strip_prefix(':').and_then(|posix| beginning(posix, 12).find(":]")) {
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
            '*' | '+' | '?' | '{' if !in_class && (char != '{' || is_repetition(after)) => {
                if was_repeated {
                    return Err("invalid nested repetition operator");
                }
                is_repeated = true;
                let after = if char == '{' { after_brace(after) } else { after };
                let after = after.strip_prefix('?').unwrap_or(after);
                ours.push_str(&rest[..rest.len() - after.len()]);
                after
            }
            '{' | '}' if !in_class => {
                ours.push('\\');
                ours.push(char);
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

/// Translates an escape after its backslash, and returns the rest.
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
            // Go accepts \1 to \7 only if more digits follow.
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

/// Translates a group after `(` if it begins with `?`, and returns the rest. Accepts only the groups and flags of Go.
fn group<'p>(after: &'p str, ours: &mut String) -> Result<&'p str, &'static str> {
    ours.push('(');
    let end = after.find([':', ')', '>']).ok_or("missing closing )")?;
    let head = &after[..=end];
    let flags = head.strip_prefix('?').map(|flags| &flags[..flags.len() - 1]);
    let named = head.starts_with("?P<") || head.starts_with("?<");
    let known = flags.is_some_and(|flags| flags.bytes().all(|flag| b"imsU-".contains(&flag)));
    if head == "?)" {
        // No flags at all.
        ours.pop();
        return Ok(&after[end + 1..]);
    }
    if !named && (!known || head.ends_with('>')) {
        return Err("invalid or unsupported Perl syntax");
    }
    ours.push_str(head);
    Ok(&after[end + 1..])
}

/// Returns true for `3}`, `3,}` or `3,5}`, with numbers of at most four digits.
fn is_repetition(after: &str) -> bool {
    let Some((inner, _)) = beginning(after, 10).split_once('}') else { return false };
    let number = |text: &str| !text.is_empty() && text.len() < 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    match inner.split_once(',') {
        None => number(inner),
        Some((least, most)) => number(least) && (most.is_empty() || number(most)),
    }
}

/// Returns the largest number in a repetition.
fn repeats(after: &str) -> u32 {
    let inner = beginning(after, 10).split_once('}').map_or("", |(inner, _)| inner);
    inner.split(',').filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
