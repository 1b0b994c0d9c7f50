//! Pieces: a rope in the making, small owned pieces around slices of another.

use std::ops::Range;

use bytes::Bytes;

use gatepost_api::Rope;

/// Pieces written so far.
#[derive(Default)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    /// Written since the last shared slice.
    small: Vec<u8>,
    /// Bytes in `done`.
    len: usize,
}

impl Pieces {
    /// Writes bytes of our own.
    pub(super) fn own(&mut self, bytes: impl AsRef<[u8]>) {
        self.small.extend_from_slice(bytes.as_ref());
    }

    /// Writes part of another rope, without copying it.
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

    /// Number of bytes written.
    pub(super) fn len(&self) -> usize {
        self.len + self.small.len()
    }

    /// Writes a JSON string, quotes included.
    pub(super) fn string(&mut self, text: &str) {
        let written = serde_json::to_writer(&mut self.small, text);
        debug_assert!(written.is_ok(), "a string is always written to memory");
    }

    /// Writes the key of a protobuf field of bytes that are `len` long.
    pub(super) fn field(&mut self, number: u32, len: usize) {
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut self.small);
        prost::encoding::encode_varint(len as u64, &mut self.small);
    }

    /// All that was written.
    pub(super) fn rope(mut self) -> Rope {
        if !self.small.is_empty() {
            self.done.push(self.small.into());
        }
        Rope::new(self.done)
    }
}

/// Length of a protobuf field of bytes that are `len` long, key included; field numbers up to 15.
pub(super) fn field_len(len: usize) -> usize {
    prost::encoding::key_len(1) + prost::encoding::encoded_len_varint(len as u64) + len
}
