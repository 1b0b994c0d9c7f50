//! Copies: the bytes that the value of a `copy` counts for, and its place in the tree.

use bytes::Bytes;
use bytestring::ByteString;

use super::{
    OperationFault,
    node::{Child, Children, Node, Piece},
    text::{Span, Text},
    tree::{Null, Tree, Value},
    write::Writer,
};

/// A value as Go would write it: without white space, and with escapes for HTML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measure {
    len: usize,
    blanks: usize,
    /// Members that were removed, and were passed over all the same.
    removed: usize,
    /// Bytes of memory that its opened parts take.
    held: usize,
}

/// Bytes of memory for one byte of a copy. A copy that would take more is written anew.
const DEAREST: usize = 8;
/// As much as any copy may take.
const CHEAP: usize = 16 << 10;

impl Measure {
    fn add(&mut self, text: &str) {
        let mut in_string = false;
        let mut escaped = false;
        let bytes = text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            if !in_string && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                self.blanks += 1;
                continue;
            }
            self.len += match byte {
                b'<' | b'>' | b'&' => 6,
                // U+2028 and U+2029 have three bytes, and an escape six.
                0xe2 if matches!(bytes.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])) => 4,
                _ => 1,
            };
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = !in_string,
                _ => {}
            }
        }
    }
}

impl Tree {
    /// A copy of a value, and of how many bytes it counts for, at most `left`. Where it had white space, the value
    /// itself is to become what comes second: then it has none, and can be copied often in a time that its size pays
    /// for.
    pub(super) fn copied(&mut self, value: Value, left: usize) -> Result<(Value, Value, usize), OperationFault> {
        let measure = match value {
            Value::Null(Null::Absent) => return Ok((value, value, 0)),
            Value::Null(Null::Given | Null::Copied) => {
                let counts = "null".len();
                return if counts > left {
                    Err(OperationFault::CopiedTooMuch)
                } else {
                    Ok((Value::Null(Null::Copied), value, counts))
                };
            }
            Value::Raw(_) | Value::Open(_) => self.measure(value),
        };
        if measure.len > left {
            return Err(OperationFault::CopiedTooMuch);
        }
        if measure.blanks > 0 {
            let compact = self.compact(value)?;
            return Ok((compact, compact, measure.len));
        }
        if measure.removed > measure.len {
            self.sweep(value);
        }
        // Opened parts may take many times the memory of their bytes, and only the value itself has been paid for.
        if measure.held > CHEAP + DEAREST * measure.len {
            return Ok((self.compact(value)?, value, measure.len));
        }
        self.weight.take(measure.held)?;
        let copy = match value {
            Value::Open(id) => Value::Open(self.copy_node(id)),
            Value::Raw(_) | Value::Null(_) => value,
        };
        Ok((copy, value, measure.len))
    }

    /// Sets aside what was removed from containers in the value: copying it again then costs what it is long.
    fn sweep(&mut self, value: Value) {
        let Value::Open(id) = value else { return };
        let mut reached = vec![id];
        while let Some(id) = reached.pop() {
            if let Children::Object(object) = &mut self.node_mut(id).children {
                object.sweep();
            }
            reached.extend(self.open_children(id).into_iter().map(|(_, _, id)| id));
        }
    }

    fn measure(&self, value: Value) -> Measure {
        let mut measure = Measure::default();
        let mut open = Vec::new();
        let mut add = |measure: &mut Measure, value: Value| match value {
            Value::Null(_) => measure.len += "null".len(),
            Value::Raw(span) => measure.add(self.str(span)),
            Value::Open(id) => open.push(id),
        };
        add(&mut measure, value);
        while let Some(id) = open.pop() {
            self.measure_node(self.node(id), &mut measure, &mut open);
        }
        measure
    }

    fn measure_node(&self, node: &Node, measure: &mut Measure, open: &mut Vec<u32>) {
        let before = measure.len;
        measure.held += node.held();
        for piece in node.all_pieces() {
            match piece {
                Piece::Run(run) => {
                    measure.add(self.str(Span { text: node.span.text, start: run.start, end: run.end }));
                }
                Piece::Child(Child { value: None, .. }) => {
                    measure.removed += 1;
                    continue;
                }
                Piece::Child(Child { key, value: Some(value), .. }) => {
                    if node.is_object() {
                        measure.add(self.str(*key));
                        measure.len += ":".len();
                    }
                    match value {
                        Value::Null(_) => measure.len += "null".len(),
                        Value::Raw(span) => measure.add(self.str(*span)),
                        Value::Open(id) => open.push(*id),
                    }
                }
            }
            measure.len += ",".len();
        }
        // As many brackets as there are, and one comma fewer.
        measure.len += if measure.len > before { 1 } else { 2 };
    }

    /// The same value without white space, in a text of its own.
    fn compact(&mut self, value: Value) -> Result<Value, OperationFault> {
        let mut writer = Writer::new(self);
        writer.value(value);
        let mut compact = Vec::new();
        let (mut in_string, mut escaped) = (false, false);
        for byte in writer.finish().iter().flat_map(|bytes: &Bytes| bytes.iter()) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' if !in_string => continue,
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = !in_string,
                _ => {}
            }
            compact.push(*byte);
        }
        compact.shrink_to_fit();
        self.weight.take(compact.len())?;
        let Ok(compact) = ByteString::try_from(compact) else { return Ok(value) };
        let end = compact.len() as u32;
        let text = self.add_text(Text::written(compact));
        Ok(Value::Raw(Span { text, start: 0, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_as_go_writes_them() {
        let count = |text: &str| {
            let mut measure = Measure::default();
            measure.add(text);
            (measure.len, measure.blanks)
        };
        assert_eq!(count(r#"{"a":[1,2]}"#), (11, 0));
        assert_eq!(count("{ \"a b\" :\t[1,\n2] }"), (13, 5));
        assert_eq!(count(r#""<a> & \"b c\"""#), (r#""\u003ca\u003e \u0026 \"b c\"""#.len(), 0));
        assert_eq!(count("\"\u{2028}\u{2029}\u{2027}\""), (17, 0));
    }
}
