//! `Walk` reads a protobuf message field by field from the pieces it arrived in. `Pieces` builds a rope of small owned
//! pieces and slices of another rope.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;
use gatepost_api::Rope;
use serde::Serialize;

/// The bytes are not protobuf. The text gives the reason and quotes no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkError(pub(super) &'static str);

/// Value of one field. Varints are decoded; bytes are only located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A varint.
    Number(u64),
    /// Range in the rope of a string, bytes or a message.
    Bytes(Range<usize>),
    /// A fixed-width number or a group, which no known field is.
    Other,
}

/// Error for a field whose wire type is not that of its number.
pub(super) const WRONG_WIRE_TYPE: WalkError = WalkError("a field has the wrong wire type");

/// Maximum depth of nested groups, as in prost.
const MAX_GROUPS: usize = 100;

/// Cursor over the range of a rope that one message occupies.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    rope: &'a Rope,
    /// Index of the piece that contains `at`, and the offset at which the piece begins.
    chunk: usize,
    chunk_start: usize,
    at: usize,
    end: usize,
}

impl<'a> Walk<'a> {
    /// Creates a walk over `range`, which must be in the rope.
    pub(super) fn over(rope: &'a Rope, range: Range<usize>) -> Self {
        let (chunk, chunk_start) = rope.piece_at(range.start);
        Self { rope, chunk, chunk_start, at: range.start, end: range.end }
    }

    /// Creates a walk over the message in `range`, the value of a field.
    pub(super) fn inside(&self, range: Range<usize>) -> Self {
        Self::over(self.rope, range)
    }

    /// Returns the value of a string field.
    pub(super) fn text(&self, range: Range<usize>) -> Result<ByteString, WalkError> {
        ByteString::try_from(self.rope.copy_of(range)).map_err(|_| WalkError("a text field is not UTF-8"))
    }

    /// Reads the number and the value of the next field. `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value)>, WalkError> {
        if self.at == self.end {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let Some(value) = self.value(wire_type)? else {
            self.skip_group(number)?;
            return Ok(Some((number, Value::Other)));
        };
        Ok(Some((number, value)))
    }

    fn tag(&mut self) -> Result<(u32, u64), WalkError> {
        let tag = u32::try_from(self.varint()?).map_err(|_| WalkError("a field's tag is too large"))?;
        if tag >> 3 == 0 {
            return Err(WalkError("a field has number 0"));
        }
        Ok((tag >> 3, u64::from(tag & 7)))
    }

    /// Reads the value after a tag; `None` if a group begins.
    fn value(&mut self, wire_type: u64) -> Result<Option<Value>, WalkError> {
        Ok(Some(match wire_type {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8).map(|()| Value::Other)?,
            2 => {
                let len =
                    usize::try_from(self.varint()?).map_err(|_| WalkError("a field is longer than its message"))?;
                let start = self.at;
                self.skip(len)?;
                Value::Bytes(start..start + len)
            }
            3 => return Ok(None),
            5 => self.skip(4).map(|()| Value::Other)?,
            _ => return Err(WalkError("a field has an unknown wire type")),
        }))
    }

    /// Skips a group, an old field kind that may still occur among unknown fields.
    fn skip_group(&mut self, number: u32) -> Result<(), WalkError> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let (number, wire_type) = self.tag()?;
            match wire_type {
                4 if number == innermost => {
                    open.pop();
                }
                4 => return Err(WalkError("a group ends that was not begun")),
                3 if open.len() >= MAX_GROUPS => return Err(WalkError("groups are nested too deep")),
                3 => open.push(number),
                other => {
                    self.value(other)?;
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) -> Result<(), WalkError> {
        if len > self.end - self.at {
            return Err(WalkError("a field is longer than its message"));
        }
        self.at += len;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, WalkError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit only.
            if shift == 63 && byte > 1 {
                return Err(WalkError("a number is too large"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WalkError("a number is too large"))
    }

    fn byte(&mut self) -> Result<u8, WalkError> {
        if self.at == self.end {
            return Err(WalkError("the message ends inside a field"));
        }
        let chunks = self.rope.chunks();
        while let Some(chunk) = chunks.get(self.chunk) {
            if let Some(&byte) = chunk.get(self.at - self.chunk_start) {
                self.at += 1;
                return Ok(byte);
            }
            self.chunk_start += chunk.len();
            self.chunk += 1;
        }
        Err(WalkError("the message ends inside a field"))
    }
}

/// Builder of a rope.
#[derive(Default)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    /// Bytes written since the last shared slice.
    small: Vec<u8>,
    /// Number of bytes in `done`.
    len: usize,
}

impl Pieces {
    /// Writes a copy of `bytes`.
    pub(super) fn own(&mut self, bytes: impl AsRef<[u8]>) {
        self.small.extend_from_slice(bytes.as_ref());
    }

    /// Writes a range of another rope without copying it.
    pub(super) fn share(&mut self, rope: &Rope, range: Range<usize>) {
        if !self.small.is_empty() {
            self.len += self.small.len();
            self.done.push(std::mem::take(&mut self.small).into());
        }
        for part in rope.shared(range) {
            self.len += part.len();
            self.done.push(part);
        }
    }

    /// Returns the number of bytes written.
    pub(super) fn len(&self) -> usize {
        self.len + self.small.len()
    }

    /// Writes a string or a list of strings as JSON.
    pub(super) fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        let written = serde_json::to_writer(&mut self.small, value);
        debug_assert!(written.is_ok(), "strings are always written to memory");
    }

    /// Writes the key and the length of a protobuf field of `len` bytes.
    pub(super) fn field(&mut self, number: u32, len: usize) {
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut self.small);
        prost::encoding::encode_varint(len as u64, &mut self.small);
    }

    /// Returns everything written.
    pub(super) fn rope(mut self) -> Rope {
        if !self.small.is_empty() {
            self.done.push(self.small.into());
        }
        Rope::new(self.done)
    }
}

/// Returns the length of a protobuf field of `len` bytes, including its key, for field numbers up to 15.
pub(super) fn field_len(len: usize) -> usize {
    prost::encoding::key_len(1) + prost::encoding::encoded_len_varint(len as u64) + len
}
