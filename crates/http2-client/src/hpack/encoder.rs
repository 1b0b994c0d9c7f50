//! Encodes our header blocks. RFC 7541.
//!
//! A client sends the same few fields with every request. Each field is inserted into the peer's dynamic table once,
//! and takes one byte from then on; of a field with a varying value, only the name does. The state consists of the
//! inserted fields in their order.

use std::{fmt, io::Write};

use smallvec::SmallVec;

use super::coding::{STATIC_LEN, write_integer};

/// Initial size of the peer's table, and the maximum size that we use. RFC 9113 §6.5.2.
const TABLE_SIZE: u32 = 4096;

/// Writer of the header blocks of one connection. `F` identifies fields in the peer's table: each value identifies one
/// name and value, or one name, as long as the connection lasts.
#[derive(Debug)]
pub struct Encoder<F> {
    /// Fields in the peer's table, oldest first.
    table: SmallVec<[F; 16]>,
    /// Size of all our fields in the table. A smaller table is not used at all.
    needed: u32,
    /// True if the peer's table is large enough for our fields.
    indexed: bool,
    /// Size announced last; 0 if we do not use the table.
    size: u32,
    /// Smallest and newest size from the peer's settings since the last block.
    resized: Option<(u32, u32)>,
    /// True if the current block changes the peer's table.
    relied_on: bool,
}

/// Name of a field to write.
#[derive(Clone, Copy, Debug)]
pub enum FieldName {
    /// Index in the static table.
    Static(usize),
    /// Literal name.
    Text(&'static [u8]),
}

impl<F: Copy + PartialEq> Encoder<F> {
    /// Creates an encoder for a new connection. The initial table size, 4,096, applies until the peer changes it.
    /// All fields inserted into the table must take at most `needed` bytes. An entry takes its text and 32 bytes.
    pub fn new(needed: u32) -> Self {
        let table = SmallVec::new();
        Self { table, needed, indexed: true, size: TABLE_SIZE, resized: None, relied_on: false }
    }

    /// Receives the peer's SETTINGS_HEADER_TABLE_SIZE.
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
            // RFC 7541 §4.2: the smallest size since the last block is sent, too, because it has emptied the table.
            if smallest < size {
                write_integer(0x20, 5, smallest as usize, out);
            }
            if smallest < size || size != self.size {
                write_integer(0x20, 5, size as usize, out);
            }
            self.size = size;
        }
    }

    /// Returns true if later blocks rely on the current block, so that it must be sent.
    pub fn is_relied_on(&self) -> bool {
        self.relied_on
    }

    /// Writes a field with a fixed value. Calls `text` for its name and value if the field is not in the table.
    pub fn field<'v>(&mut self, field: F, text: impl FnOnce() -> (FieldName, &'v [u8]), out: &mut Vec<u8>) {
        if let Some(index) = self.index(field) {
            return write_integer(0x80, 7, index, out);
        }
        let (name, value) = text();
        self.write_name(name, out);
        write_string(value, out);
        self.put(field);
    }

    /// Writes a field with a varying value of less than 127 bytes. Inserts its name into the table.
    pub fn varying(&mut self, field: F, name: FieldName, value: fmt::Arguments<'_>, out: &mut Vec<u8>) {
        match self.index(field) {
            // Literal without indexing, the name by its index.
            Some(index) => write_integer(0, 4, index, out),
            None => {
                self.write_name(name, out);
                self.put(field);
            }
        }
        write_short_string(value, out);
    }

    /// Returns the index of a field in the peer's table, if present. The newest entry follows the static ones.
    fn index(&self, field: F) -> Option<usize> {
        let place = self.table.iter().position(|known| *known == field)?;
        Some(STATIC_LEN + self.table.len() - place)
    }

    /// Writes a name: with indexing if the table is used, otherwise without.
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

/// Writes a field whose name and value are in the static table.
pub fn entry(index: usize, out: &mut Vec<u8>) {
    write_integer(0x80, 7, index, out);
}

/// Writes a field without indexing.
pub fn literal(name: FieldName, value: &[u8], out: &mut Vec<u8>) {
    write_name(name, 0, 4, out);
    write_string(value, out);
}

/// Writes a field that no peer may ever put into a table. RFC 7541 §6.2.3.
pub fn secret(name: FieldName, value: &[u8], out: &mut Vec<u8>) {
    write_name(name, 0x10, 4, out);
    write_string(value, out);
}

/// Writes a field without indexing, with a value of less than 127 bytes.
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

/// Writes a string of less than 127 bytes without Huffman coding, formatted in place.
fn write_short_string(value: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    #[allow(clippy::expect_used)]
    out.write_fmt(value).expect("writing to a Vec cannot fail");
    out[at] = (out.len() - at - 1) as u8;
}

/// Writes a string without Huffman coding. RFC 7541 §5.2.
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
