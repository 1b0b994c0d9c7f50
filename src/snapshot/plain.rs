//! Plain: YAML as programs write it, read straight to values, line by line.
//!
//! What is read here: printable ASCII; block maps and lists; scalars, lists and maps in brackets that end on their
//! line; literal blocks (`|`, `|-`). Nothing is guessed: whatever else a text holds, and be it one sign of another
//! kind, is left whole to serde-saphyr, which says what is wrong with it and where. So there are no errors here, and
//! what is read is exactly what serde-saphyr reads. `document` asserts that wherever assertions are on, as they are in
//! the fuzzer.

use super::value::Value;

/// The limits of `document::yaml_options` are further out: what they refuse must never be read here.
const MOST_NODES: usize = 1_000_000;
const MOST_DOCUMENTS: usize = 1000;
const DEEPEST: usize = 32;
/// YAML's own limit is 1,024.
const LONGEST_KEY: usize = 256;

/// The documents of this text without the empty ones, or none where it is not as plain as that.
pub(super) fn read(text: &str) -> Option<Vec<Value>> {
    let plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b'\n' | b' '..=b'~'));
    if !plain || !text.ends_with('\n') {
        return None;
    }
    let mut lines = Lines { rest: text, line: "", indent: 0, nodes: 0 };
    let (mut documents, mut markers) = (Vec::new(), 0);
    lines.advance();
    while !lines.line.is_empty() {
        if lines.is_marker() {
            markers += 1;
            lines.advance();
            continue;
        }
        documents.push(lines.block(DEEPEST)?);
        if !lines.line.is_empty() && !lines.is_marker() {
            return None;
        }
    }
    (markers < MOST_DOCUMENTS).then_some(documents)
}

/// Where the reading stands. Each method reads what begins at the current line, and leaves the line behind it current;
/// whoever called sees by its indentation whether that line is one of its own.
struct Lines<'a> {
    /// The lines after the current one.
    rest: &'a str,
    /// The current line from its first sign on. Empty at the end of the text and only there.
    line: &'a str,
    /// The column of that sign.
    indent: usize,
    nodes: usize,
}

impl<'a> Lines<'a> {
    /// To the next line that is neither empty nor a comment.
    fn advance(&mut self) {
        while let Some((line, rest)) = self.rest.split_once('\n') {
            self.rest = rest;
            self.line = line.trim_start_matches(' ');
            if !self.line.is_empty() && !self.line.starts_with('#') {
                self.indent = line.len() - self.line.len();
                return;
            }
        }
        (self.line, self.indent) = ("", 0);
    }

    fn is_marker(&self) -> bool {
        self.indent == 0 && self.line == "---"
    }

    fn count(&mut self) -> Option<()> {
        self.nodes += 1;
        (self.nodes < MOST_NODES).then_some(())
    }

    /// A list or map whose first entry begins here.
    fn block(&mut self, depth: usize) -> Option<Value> {
        if self.line.starts_with("- ") { self.list(depth) } else { self.map(depth) }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let (depth, column) = (depth.checked_sub(1)?, self.indent);
        self.count()?;
        let mut items = Vec::new();
        while self.indent == column
            && let Some(item) = self.line.strip_prefix("- ")
        {
            let item = item.trim_start_matches(' ');
            self.indent += self.line.len() - item.len();
            self.line = item;
            let nested = item.starts_with("- ") || split_key(item).is_some();
            items.push(if nested { self.block(depth)? } else { self.scalar(column, depth)? });
            if self.indent > column {
                return None;
            }
        }
        Some(Value::List(items))
    }

    fn map(&mut self, depth: usize) -> Option<Value> {
        let (depth, column) = (depth.checked_sub(1)?, self.indent);
        self.count()?;
        let mut entries = Vec::new();
        while self.indent == column
            && let Some((key, rest)) = split_key(self.line)
        {
            self.count()?;
            self.line = rest;
            let value = if rest.is_empty() { self.below(column, depth)? } else { self.scalar(column, depth)? };
            entries.push((key.into(), value));
            if self.indent > column {
                return None;
            }
        }
        (!entries.is_empty()).then_some(Value::Map(entries))
    }

    /// The value of a key that has none on its line.
    fn below(&mut self, column: usize, depth: usize) -> Option<Value> {
        self.advance();
        if self.indent > column {
            return self.block(depth);
        }
        // A list may stand below its key without being indented.
        if self.indent == column && self.line.starts_with("- ") {
            return self.list(depth);
        }
        self.count()?;
        Some(Value::Null)
    }

    /// A value that begins and, but for a literal block, ends on this line, of an entry that begins in this column. A
    /// line below that is indented further would belong to it: the caller then gives up.
    fn scalar(&mut self, column: usize, depth: usize) -> Option<Value> {
        let (value, rest) = match self.line.as_bytes().first()? {
            b'|' => return self.literal(column),
            b'[' | b'{' | b'"' | b'\'' => self.inline(self.line, depth)?,
            _ => {
                self.count()?;
                let text = self.line.split_once(" #").map_or(self.line, |(text, _)| text).trim_end_matches(' ');
                if text.contains(": ") || text.ends_with(':') {
                    return None;
                }
                (resolved(text)?, "")
            }
        };
        let comment = rest.trim_start_matches(' ');
        // A comment is parted from what it stands behind.
        if !(comment.is_empty() || comment.starts_with('#') && comment.len() < rest.len()) {
            return None;
        }
        self.advance();
        Some(value)
    }

    /// A block whose lines are taken as they stand, but for their common indentation.
    fn literal(&mut self, column: usize) -> Option<Value> {
        self.count()?;
        let chomped = match self.line {
            "|" => false,
            "|-" => true,
            _ => return None,
        };
        let indent = indent_of(self.rest);
        let (mut text, mut kept) = (String::new(), 0);
        if indent <= column || self.rest[indent..].starts_with('\n') {
            return None;
        }
        while let Some((line, rest)) = self.rest.split_once('\n') {
            match indent_of(line) {
                // Empty lines count where others follow them.
                0 if line.is_empty() => {}
                // Spaces that end a line early may be content or not.
                spaces if spaces == line.len() => return None,
                spaces if spaces < indent => break,
                _ => {
                    text.push_str(&line[indent..]);
                    kept = text.len();
                }
            }
            text.push('\n');
            self.rest = rest;
        }
        text.truncate(if chomped { kept } else { kept + 1 });
        self.advance();
        Some(Value::Text(text.into()))
    }

    /// A value in quotes or brackets, or one inside of brackets; and the rest of the line.
    fn inline<'l>(&mut self, line: &'l str, depth: usize) -> Option<(Value, &'l str)> {
        self.count()?;
        match line.as_bytes().first()? {
            b'[' => self.entries(line, ']', depth.checked_sub(1)?, Value::List, Self::inline),
            b'{' => self.entries(line, '}', depth.checked_sub(1)?, Value::Map, |lines, line, depth| {
                let (key, rest) = split_key(line)?;
                lines.count()?;
                let (value, rest) = lines.inline(rest, depth)?;
                Some(((key.into(), value), rest))
            }),
            b'"' | b'\'' => quoted(line),
            _ => {
                let bytes = line.as_bytes();
                let inside = |at: usize| match bytes[at] {
                    b':' => bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric),
                    byte => is_of_a_name(byte),
                };
                let end = (0..bytes.len()).find(|at| !inside(*at))?;
                Some((resolved(&line[..end])?, &line[end..]))
            }
        }
    }

    /// The entries between two brackets.
    fn entries<'l, E>(
        &mut self,
        line: &'l str,
        close: char,
        depth: usize,
        value: fn(Vec<E>) -> Value,
        entry: fn(&mut Self, &'l str, usize) -> Option<(E, &'l str)>,
    ) -> Option<(Value, &'l str)> {
        let (mut entries, mut line) = (Vec::new(), line[1..].trim_start_matches(' '));
        if let Some(rest) = line.strip_prefix(close) {
            return Some((value(entries), rest));
        }
        loop {
            let (one, rest) = entry(self, line, depth)?;
            entries.push(one);
            let rest = rest.trim_start_matches(' ');
            if let Some(rest) = rest.strip_prefix(close) {
                return Some((value(entries), rest));
            }
            line = rest.strip_prefix(',')?.trim_start_matches(' ');
        }
    }
}

/// A text in quotes. Of signs that are written otherwise, only the quotes themselves and the backslash are known.
fn quoted(line: &str) -> Option<(Value, &str)> {
    let (quote, escape) = if line.starts_with('"') { ('"', '\\') } else { ('\'', '\'') };
    let (mut text, mut rest) = (String::new(), &line[1..]);
    loop {
        let at = rest.find([quote, escape])?;
        text.push_str(&rest[..at]);
        let sign = rest[at..].strip_prefix(escape).and_then(|after| after.chars().next());
        match sign.filter(|sign| [quote, escape].contains(sign)) {
            Some(sign) => text.push(sign),
            None if rest[at..].starts_with(quote) => return Some((Value::Text(text.into()), &rest[at + 1..])),
            None => return None,
        }
        rest = &rest[at + 2..];
    }
}

fn indent_of(line: &str) -> usize {
    line.bytes().take_while(|byte| *byte == b' ').count()
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'/' | b'_')
}

fn begins_plainly(text: &str) -> bool {
    text.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '/')
}

/// A line's key without its colon, and what follows, which is empty if it is a comment. Never one that could be null,
/// or a number: of what stands twice behind a number, serde-saphyr keeps the last.
fn split_key(line: &str) -> Option<(&str, &str)> {
    let bytes = line.as_bytes();
    if !begins_plainly(line) || bytes[0].is_ascii_digit() {
        return None;
    }
    let ends = |at: usize| bytes[at] == b':' && matches!(bytes.get(at + 1), None | Some(b' '));
    let end = (0..bytes.len()).find(|at| ends(*at) || !(is_of_a_name(bytes[*at]) || bytes[*at] == b':'))?;
    let key = &line[..end];
    if !ends(end) || end > LONGEST_KEY || key.eq_ignore_ascii_case("null") {
        return None;
    }
    let rest = line[end + 1..].trim_start_matches(' ');
    Some((key, if rest.starts_with('#') { "" } else { rest }))
}

/// What a scalar without quotes means. Numbers begin with a digit, a sign or a dot; here, only whole ones as everybody
/// writes them are taken for numbers, and only what can be none for a text.
fn resolved(text: &str) -> Option<Value> {
    const WORDS: [(&str, Value); 3] =
        [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
    if !begins_plainly(text) {
        return None;
    }
    let bytes = text.as_bytes();
    if !bytes[0].is_ascii_digit() {
        let word = WORDS.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        return Some(word.map_or_else(|| Value::Text(text.into()), |(_, value)| value));
    }
    if bytes.iter().all(u8::is_ascii_digit) {
        return text.parse().ok().filter(|_| text.len() <= 18 && (bytes[0] != b'0' || text == "0")).map(Value::Integer);
    }
    let of_a_base = bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X' | b'o' | b'O' | b'b' | b'B');
    let may_be_a_number = of_a_base || text.contains('_') || text.parse::<f64>().is_ok();
    (!may_be_a_number).then(|| Value::Text(text.into()))
}

#[cfg(test)]
mod tests;
