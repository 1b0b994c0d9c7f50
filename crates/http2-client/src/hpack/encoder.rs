//! Encoder: our header blocks. RFC 7541.
//!
//! A client sends the same few fields with every request. Each goes into the peer's dynamic table once, and from then
//! on is one byte, or for a value that changes, its name is. The inserted fields, in their order, are all the state.

use std::{fmt, io::Write};

use smallvec::SmallVec;

use super::coding::{STATIC_LEN, write_integer};

/// The table's size before anybody has said another, and the largest we make use of. RFC 9113 §6.5.2.
const TABLE_SIZE: u32 = 4096;

/// Writes the header blocks of one connection. `F` identifies fields in the peer's table: one
/// value means one name and value, or one name, for as long as the connection lasts.
#[derive(Debug)]
pub struct Encoder<F> {
    /// Fields in the peer's table, oldest first.
    table: SmallVec<[F; 16]>,
    /// Size of all fields together in the table; below it we do not use the table at all.
    needed: u32,
    /// The peer's table is large enough for our fields.
    indexed: bool,
    /// The size that was agreed on last; 0 where we do not use the table.
    size: u32,
    /// The smallest size the peer has wanted since the last block, and the newest.
    resized: Option<(u32, u32)>,
    /// The block under way changes the peer's table.
    relied_on: bool,
}

/// Name of a field, as we write it.
#[derive(Clone, Copy, Debug)]
pub enum FieldName {
    /// Index in the static table.
    Static(usize),
    /// Spelled out.
    Text(&'static [u8]),
}

impl<F: Copy + PartialEq> Encoder<F> {
    /// For a connection that begins: RFC 7541's first table size, 4,096, holds until the peer says otherwise. Together
    /// the fields that are put into the table take at most `needed` of it (an entry is its text and 32 bytes).
    pub fn new(needed: u32) -> Self {
        let table = SmallVec::new();
        Self { table, needed, indexed: true, size: TABLE_SIZE, resized: None, relied_on: false }
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn table_size(&mut self, size: u32) {
        let size = if size < self.needed { 0 } else { size.min(TABLE_SIZE) };
        self.indexed = size > 0;
        if !self.indexed {
            self.table.clear();
        }
        let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
        self.resized = Some((smallest, size));
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        self.relied_on = false;
        if let Some((smallest, size)) = self.resized.take() {
            self.relied_on = true;
            // RFC 7541 §4.2: the smallest size in between is sent as well, since it is what has emptied the table.
            if smallest < size {
                write_integer(0x20, 5, smallest as usize, out);
            }
            if smallest < size || size != self.size {
                write_integer(0x20, 5, size as usize, out);
            }
            self.size = size;
        }
    }

    /// Do later blocks rely on what was written since the beginning of the block? Then the peer must be sent it.
    pub fn is_relied_on(&self) -> bool {
        self.relied_on
    }

    /// A field that always has the same value; `text` is asked for its name and value where it is not in the table yet.
    pub fn field<'v>(&mut self, field: F, text: impl FnOnce() -> (FieldName, &'v [u8]), out: &mut Vec<u8>) {
        if let Some(index) = self.index(field) {
            return write_integer(0x80, 7, index, out);
        }
        let (name, value) = text();
        self.write_name(name, out);
        write_string(value, out);
        self.put(field);
    }

    /// A field of changing value, written where it goes (less than 127 bytes): its name is put into the table.
    pub fn varying(&mut self, field: F, name: FieldName, value: fmt::Arguments<'_>, out: &mut Vec<u8>) {
        match self.index(field) {
            // Without indexing, the name by its index.
            Some(index) => write_integer(0, 4, index, out),
            None => {
                self.write_name(name, out);
                self.put(field);
            }
        }
        write_short_string(value, out);
    }

    /// Index of a field in the peer's table, where it is there. The newest entry follows the static ones.
    fn index(&self, field: F) -> Option<usize> {
        let place = self.table.iter().position(|known| *known == field)?;
        Some(STATIC_LEN + self.table.len() - place)
    }

    /// A name: with indexing if there is a table, or without.
    fn write_name(&self, name: FieldName, out: &mut Vec<u8>) {
        let (flags, bits) = if self.indexed { (0x40, 6) } else { (0x00, 4) };
        write_name(name, flags, bits, out);
    }

    fn put(&mut self, field: F) {
        if self.indexed {
            self.table.push(field);
            self.relied_on = true;
        }
    }
}

/// A field of the static table, name and value.
pub fn entry(index: usize, out: &mut Vec<u8>) {
    write_integer(0x80, 7, index, out);
}

/// A field that is not to be indexed.
pub fn literal(name: FieldName, value: &[u8], out: &mut Vec<u8>) {
    write_name(name, 0, 4, out);
    write_string(value, out);
}

/// The same with a value of less than 127 bytes, written where it goes.
pub fn short_literal(name: FieldName, value: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    write_name(name, 0, 4, out);
    write_short_string(value, out);
}

fn write_name(name: FieldName, flags: u8, bits: u32, out: &mut Vec<u8>) {
    match name {
        FieldName::Static(index) => write_integer(flags, bits, index, out),
        FieldName::Text(name) => {
            out.push(flags);
            write_string(name, out);
        }
    }
}

/// A string of less than 127 bytes, plain, written where it goes.
fn write_short_string(value: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    #[allow(clippy::expect_used)]
    out.write_fmt(value).expect("writing to a Vec cannot fail");
    out[at] = (out.len() - at - 1) as u8;
}

/// A string, plain. RFC 7541 §5.2.
fn write_string(value: &[u8], out: &mut Vec<u8>) {
    write_integer(0, 7, value.len(), out);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of two fixed fields and one whose value varies.
    fn block(encoder: &mut Encoder<u8>, value: u32) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.field(1, || (FieldName::Static(58), b"us"), &mut out);
        encoder.field(2, || (FieldName::Text(b"te"), b"trailers"), &mut out);
        encoder.varying(3, FieldName::Text(b"grpc-timeout"), format_args!("{value}u"), &mut out);
        (out, encoder.is_relied_on())
    }

    #[test]
    fn a_repeated_field_is_one_byte() {
        let mut encoder = Encoder::new(1000);
        let first = b"\x7a\x02us\x40\x02te\x08trailers\x40\x0cgrpc-timeout\x027u";
        assert_eq!(block(&mut encoder, 7), (first.to_vec(), true));
        assert_eq!(block(&mut encoder, 81), (b"\xc0\xbf\x0f\x2f\x0381u".to_vec(), false));
    }

    #[test]
    fn fields_are_spelled_out_for_a_peer_without_a_table() {
        let mut encoder = Encoder::new(1000);
        block(&mut encoder, 1);
        encoder.table_size(999);
        let spelled_out = b"\x0f\x2b\x02us\x00\x02te\x08trailers\x00\x0cgrpc-timeout\x021u";
        let (after, relied_on) = block(&mut encoder, 1);
        assert_eq!((&after[..], relied_on), (&[b"\x20", &spelled_out[..]].concat()[..], true), "first it is given up");
        assert_eq!(block(&mut encoder, 1), (spelled_out.to_vec(), false), "and never used again");
    }

    #[test]
    fn a_table_that_changes_its_size_is_announced() {
        let mut encoder = Encoder::new(1536);
        encoder.table_size(4096);
        let (first, _) = block(&mut encoder, 1);
        assert_eq!(first[0], 0x7a, "the size it has anyway");
        let (known, _) = block(&mut encoder, 1);
        // 2,048 is 31 and 2,017; and 2,017 is 0x61 and 15 times 128.
        encoder.table_size(2048);
        let expected = [&[0x3f, 0xe1, 0x0f][..], &known].concat();
        assert_eq!(block(&mut encoder, 1), (expected, true), "our fields fit, and stay");
        assert_eq!(block(&mut encoder, 1), (known, false), "it is announced once");
        for size in [0, 1535, 1_000_000, 4096] {
            encoder.table_size(size);
        }
        let expected = [&[0x20, 0x3f, 0xe1, 0x1f][..], &first].concat();
        assert_eq!(
            block(&mut encoder, 1).0,
            expected,
            "the smallest in between, then the newest, and the table is empty"
        );
        encoder.table_size(1535);
        assert_eq!(block(&mut encoder, 1).0[..2], [0x20, 0x0f], "too small for our fields: given up");
    }

    #[test]
    fn long_strings_say_how_long_they_are() {
        let mut out = Vec::new();
        literal(FieldName::Static(4), &[b'x'; 300], &mut out);
        assert_eq!(out[..4], [0x04, 0x7f, 0xad, 0x01], "127 and 173");
        short_literal(FieldName::Static(28), format_args!("{}", 70_000), &mut out);
        assert_eq!(out[304..], *b"\x0f\x0d\x0570000");
    }
}
