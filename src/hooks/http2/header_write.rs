//! Writing our header blocks. RFC 7541.
//!
//! A lane sends the same few fields with every call. Each goes into the peer's dynamic table once, and from then on is
//! one byte; only the timeout and foreign metadata are spelled out. What was put in, in which order, is all the state.

use std::{io::Write, time::Duration};

use smallvec::SmallVec;

use super::super::call::Method;

/// A field that is put into the peer's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Authority,
    ContentType,
    Te,
    UserAgent,
    Path(Method),
}

/// Together our fields take at most this much of the peer's table (an entry is its text and 32 bytes; hosts are at
/// most 253 bytes long). Below it we do not use the table at all.
const TABLE_NEEDED: u32 = 1024;

/// Writes the header block of each call on one connection.
#[derive(Debug)]
pub(super) struct HeaderWriter {
    https: bool,
    authority: Box<str>,
    /// Fields in the peer's table, oldest first.
    table: SmallVec<[Field; 10]>,
    /// The peer's table is large enough for our fields.
    indexed: bool,
    /// The next block must begin with "table size 0".
    shrink: bool,
}

const USER_AGENT: &str = concat!("gatepost/", env!("CARGO_PKG_VERSION"));

impl HeaderWriter {
    /// For a connection to that authority (`host:port`). RFC 7541's first table size, 4,096, holds until the peer says
    /// otherwise.
    pub(super) fn new(https: bool, authority: &str) -> Self {
        Self { https, authority: authority.into(), table: SmallVec::new(), indexed: true, shrink: false }
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE.
    pub(super) fn table_size(&mut self, size: u32) {
        if self.indexed && size < TABLE_NEEDED {
            self.indexed = false;
            self.shrink = true;
            self.table.clear();
        }
    }

    /// Appends the block of one call. `metadata` is the value of `gatepost-namespace-labels-bin`, passed on as it came.
    pub(super) fn write(&mut self, method: Method, timeout: Duration, metadata: Option<&[u8]>, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.shrink) {
            out.push(0x20);
        }
        // The static table's ":method: POST" and ":scheme".
        out.push(0x83);
        out.push(if self.https { 0x87 } else { 0x86 });
        self.field(Field::Path(method), out);
        self.field(Field::Authority, out);
        self.field(Field::Te, out);
        self.field(Field::ContentType, out);
        self.field(Field::UserAgent, out);
        literal_name(b"grpc-timeout", out);
        let at = out.len();
        out.push(0);
        // Eight digits are what gRPC allows; in microseconds that is 99 seconds, more than any hook's timeout.
        let micros = timeout.as_micros().min(99_999_999);
        #[allow(clippy::expect_used)]
        write!(out, "{micros}u").expect("writing to a Vec cannot fail");
        out[at] = (out.len() - at - 1) as u8;
        if let Some(value) = metadata {
            literal_name(super::super::call::NAMESPACE_LABELS.as_bytes(), out);
            text(value, out);
        }
    }

    fn field(&mut self, field: Field, out: &mut Vec<u8>) {
        if let Some(place) = self.table.iter().position(|known| *known == field) {
            // The newest entry is 62.
            out.push(0x80 | (62 + self.table.len() - 1 - place) as u8);
            return;
        }
        let (name, value): (Result<u8, &[u8]>, &str) = match field {
            Field::Authority => (Ok(1), &self.authority),
            Field::Path(method) => (Ok(4), method.path()),
            Field::ContentType => (Ok(31), "application/grpc"),
            Field::UserAgent => (Ok(58), USER_AGENT),
            Field::Te => (Err(b"te"), "trailers"),
        };
        // With indexing, or without: the prefix has six bits, or four.
        let (flag, room) = if self.indexed { (0x40, 0x3f) } else { (0x00, 0x0f) };
        match name {
            Ok(index) if index < room => out.push(flag | index),
            Ok(index) => out.extend([flag | room, index - room]),
            Err(name) => {
                out.push(flag);
                text(name, out);
            }
        }
        text(value.as_bytes(), out);
        if self.indexed {
            self.table.push(field);
        }
    }
}

/// A name spelled out, not to be indexed.
fn literal_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    text(name, out);
}

/// A string, plain. RFC 7541 §5.2.
fn text(value: &[u8], out: &mut Vec<u8>) {
    if value.len() < 127 {
        out.push(value.len() as u8);
    } else {
        out.push(127);
        let mut rest = value.len() - 127;
        while rest >= 128 {
            out.push((rest % 128) as u8 | 0x80);
            rest /= 128;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(value);
}
