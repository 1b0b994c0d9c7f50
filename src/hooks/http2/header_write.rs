//! Writing our header blocks. RFC 7541.
//!
//! A lane sends the same few fields with every call. Each goes into the peer's dynamic table once, and from then on is
//! one byte, or for the timeout, whose value changes, its name is. Only foreign metadata is spelled out. What was put in,
//! in which order, is all the state.

use std::{io::Write, time::Duration};

use smallvec::SmallVec;

use super::super::{
    call::{Call, Method, NAMESPACE_LABELS, Request},
    gzip,
    post::{Media, USER_AGENT, write_path},
};
use crate::model::Hops;

/// A field that is put into the peer's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Authority,
    /// `application/grpc`
    Grpc,
    ContentType(Media),
    Accept(Media),
    AcceptEncoding,
    Te,
    UserAgent,
    /// The first Gatepost's: a further one spells its number out.
    Hops,
    Path(Method),
    /// With the value of the first call: of later use is only the name.
    Timeout,
}

/// Together our fields take at most this much of the peer's table (an entry is its text and 32 bytes; hosts are at
/// most 253 bytes long). Below it we do not use the table at all.
const TABLE_NEEDED: u32 = 1536;

/// The table's size before anybody has said another, and the largest we make use of. RFC 9113 §6.5.2.
const TABLE_SIZE: u32 = 4096;

/// Writes the header block of each call on one connection.
#[derive(Debug)]
pub(super) struct HeaderWriter {
    https: bool,
    authority: Box<str>,
    /// Fields in the peer's table, oldest first.
    table: SmallVec<[Field; 16]>,
    /// The peer's table is large enough for our fields.
    indexed: bool,
    /// The size that was agreed on last; 0 where we do not use the table.
    size: u32,
    /// The smallest size the peer has wanted since the last block, and the newest.
    resized: Option<(u32, u32)>,
    /// Scratch space.
    path: Vec<u8>,
}

impl HeaderWriter {
    /// For a connection to that authority (`host:port`). RFC 7541's first table size, 4,096, holds until the peer says
    /// otherwise.
    pub(super) fn new(https: bool, authority: &str) -> Self {
        Self {
            https,
            authority: authority.into(),
            table: SmallVec::new(),
            indexed: true,
            size: TABLE_SIZE,
            resized: None,
            path: Vec::new(),
        }
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE.
    pub(super) fn table_size(&mut self, size: u32) {
        let size = if size < TABLE_NEEDED { 0 } else { size.min(TABLE_SIZE) };
        self.indexed = size > 0;
        if !self.indexed {
            self.table.clear();
        }
        let smallest = self.resized.map_or(size, |(smallest, _)| smallest.min(size));
        self.resized = Some((smallest, size));
    }

    /// Appends the block of one call. True where later blocks rely on it: then the peer must be sent it.
    pub(super) fn write(&mut self, call: &Call, timeout: Duration, out: &mut Vec<u8>) -> bool {
        let (known, resized) = (self.table.len(), self.resized.is_some());
        match &call.request {
            Request::Grpc { method, namespace_labels } => {
                self.grpc(*method, timeout, namespace_labels.as_deref(), call.hops, out);
            }
            Request::Http { path, form, timeout } => {
                self.http(path, Media::of(*form), *timeout, call.hops, call.body.len(), out);
            }
        }
        resized || self.table.len() > known
    }

    /// `metadata` is the value of `gatepost-namespace-labels-bin`, passed on as it came.
    fn grpc(&mut self, method: Method, timeout: Duration, metadata: Option<&[u8]>, hops: Hops, out: &mut Vec<u8>) {
        self.begin(out);
        self.field(Field::Path(method), out);
        self.field(Field::Authority, out);
        self.field(Field::Te, out);
        self.field(Field::Grpc, out);
        self.field(Field::UserAgent, out);
        self.hops(hops, out);
        self.timeout(timeout, out);
        if let Some(value) = metadata {
            literal_name(NAMESPACE_LABELS.as_bytes(), out);
            text(value, out);
        }
    }

    /// Path and length differ from call to call, and are spelled out.
    fn http(&mut self, path: &str, media: Media, timeout: Duration, hops: Hops, len: usize, out: &mut Vec<u8>) {
        self.begin(out);
        out.push(0x04);
        self.path.clear();
        write_path(path, timeout, &mut self.path);
        text(&self.path, out);
        self.field(Field::Authority, out);
        self.field(Field::ContentType(media), out);
        self.field(Field::Accept(media), out);
        self.field(Field::AcceptEncoding, out);
        self.field(Field::UserAgent, out);
        self.hops(hops, out);
        // "content-length" is entry 28, and the prefix has four bits.
        out.extend([0x0f, 28 - 0x0f]);
        short_text(format_args!("{len}"), out);
    }

    /// What every block begins with.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, size)) = self.resized.take() {
            // RFC 7541 §4.2: the smallest size in between is told as well, since it is what has emptied the table.
            if smallest < size {
                size_update(smallest, out);
            }
            if smallest < size || size != self.size {
                size_update(size, out);
            }
            self.size = size;
        }
        // The static table's ":method: POST" and ":scheme".
        out.push(0x83);
        out.push(if self.https { 0x87 } else { 0x86 });
    }

    /// Index of a field in the peer's table, where it is there; the newest entry is 62.
    fn index(&self, field: Field) -> Option<u8> {
        let place = self.table.iter().position(|known| *known == field)?;
        Some((62 + self.table.len() - 1 - place) as u8)
    }

    /// Nearly always the first Gatepost's, which is one byte from the second call on.
    fn hops(&mut self, hops: Hops, out: &mut Vec<u8>) {
        if hops == Hops::FIRST {
            return self.field(Field::Hops, out);
        }
        literal_name(Hops::HEADER.as_bytes(), out);
        short_text(format_args!("{}", hops.get()), out);
    }

    fn timeout(&mut self, timeout: Duration, out: &mut Vec<u8>) {
        match self.index(Field::Timeout) {
            // Without indexing, the name by its index: the prefix has four bits.
            Some(index) => out.extend([0x0f, index - 0x0f]),
            None if self.indexed => {
                out.push(0x40);
                text(b"grpc-timeout", out);
                self.table.push(Field::Timeout);
            }
            None => literal_name(b"grpc-timeout", out),
        }
        // Eight digits are what gRPC allows; in microseconds that is 99 seconds, more than any hook's timeout.
        let micros = timeout.as_micros().min(99_999_999);
        short_text(format_args!("{micros}u"), out);
    }

    fn field(&mut self, field: Field, out: &mut Vec<u8>) {
        if let Some(index) = self.index(field) {
            out.push(0x80 | index);
            return;
        }
        let (name, value): (Result<u8, &[u8]>, &str) = match field {
            Field::Authority => (Ok(1), &self.authority),
            Field::Path(method) => (Ok(4), method.path()),
            Field::Grpc => (Ok(31), "application/grpc"),
            Field::ContentType(media) => (Ok(31), media.content_type()),
            Field::Accept(media) => (Ok(19), media.accept()),
            Field::AcceptEncoding => (Ok(16), gzip::ENCODING),
            Field::UserAgent => (Ok(58), USER_AGENT),
            Field::Te => (Err(b"te"), "trailers"),
            Field::Hops => (Err(Hops::HEADER.as_bytes()), "1"),
            // Written by `timeout`.
            Field::Timeout => return,
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

/// "The table has this size from here on": a number with a prefix of five bits. RFC 7541 §6.3.
fn size_update(size: u32, out: &mut Vec<u8>) {
    if size < 31 {
        return out.push(0x20 | size as u8);
    }
    out.push(0x3f);
    long_number(size as usize - 31, out);
}

/// What does not fit the prefix of a number. RFC 7541 §5.1.
fn long_number(mut rest: usize, out: &mut Vec<u8>) {
    while rest >= 128 {
        out.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// A name spelled out, not to be indexed.
fn literal_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    text(name, out);
}

/// A string of less than 127 bytes, plain, written where it goes.
fn short_text(value: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    #[allow(clippy::expect_used)]
    out.write_fmt(value).expect("writing to a Vec cannot fail");
    out[at] = (out.len() - at - 1) as u8;
}

/// A string, plain. RFC 7541 §5.2.
fn text(value: &[u8], out: &mut Vec<u8>) {
    if value.len() < 127 {
        out.push(value.len() as u8);
    } else {
        out.push(127);
        long_number(value.len() - 127, out);
    }
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(writer: &mut HeaderWriter, micros: u64) -> Vec<u8> {
        let mut out = Vec::new();
        writer.grpc(Method::Validate, Duration::from_micros(micros), None, Hops::FIRST, &mut out);
        out
    }

    #[test]
    fn what_was_said_once_is_a_byte_from_then_on() {
        let mut writer = HeaderWriter::new(false, "hook:1");
        let first = block(&mut writer, 250_000);
        let second = block(&mut writer, 249_000);
        assert!(first.windows(12).any(|window| window == b"grpc-timeout"));
        // POST, http, path, authority, te, content-type, user-agent, hops, and grpc-timeout by its name's index.
        assert_eq!(
            second,
            [&[0x83, 0x86, 0xc4, 0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0x0f, 0x3e - 0x0f, 7][..], b"249000u"].concat()
        );
    }

    #[test]
    fn a_further_gatepost_spells_its_number_out() {
        let mut writer = HeaderWriter::new(false, "hook:1");
        block(&mut writer, 1);
        let mut second = Vec::new();
        writer.grpc(Method::Validate, Duration::from_micros(1), None, Hops::FIRST.passed_on(), &mut second);
        let told = b"\0\x0dgatepost-hops\x012";
        assert!(second.windows(told.len()).any(|window| window == told), "{second:?}");
        assert_eq!(block(&mut writer, 1).len() + told.len() - 1, second.len(), "a byte the first time");
    }

    #[test]
    fn a_peer_without_a_table_is_told_everything_each_time() {
        let mut writer = HeaderWriter::new(true, "hook:1");
        block(&mut writer, 1);
        writer.table_size(0);
        let after = block(&mut writer, 1);
        assert_eq!(after[..3], [0x20, 0x83, 0x87], "first the table is given up");
        assert_eq!(block(&mut writer, 1), after[1..], "and never used again");
        assert!(after.windows(8).any(|window| window == b"trailers"));
    }

    #[test]
    fn a_table_that_changes_its_size_is_told_of_it() {
        let mut writer = HeaderWriter::new(false, "hook:1");
        writer.table_size(4096);
        let first = block(&mut writer, 1);
        assert_eq!(first[0], 0x83, "the size it has anyway");
        let known = block(&mut writer, 1);
        // 2,048 is 31 and 2,017; and 2,017 is 0x61 and 15 times 128.
        writer.table_size(2048);
        assert_eq!(block(&mut writer, 1), [&[0x3f, 0xe1, 0x0f][..], &known].concat(), "our fields fit, and stay");
        assert_eq!(block(&mut writer, 1), known, "it is told once");
        for size in [0, 1535, 1_000_000, 4096] {
            writer.table_size(size);
        }
        let told = [&[0x20, 0x3f, 0xe1, 0x1f][..], &first].concat();
        assert_eq!(block(&mut writer, 1), told, "the smallest in between, then the newest, and the table is empty");
        writer.table_size(1535);
        assert_eq!(block(&mut writer, 1)[..2], [0x20, 0x83], "too small for our fields: given up");
    }

    #[test]
    fn only_blocks_that_change_the_table_are_relied_on() {
        let mut writer = HeaderWriter::new(false, "hook:1");
        let call = || {
            let request = Request::Grpc { method: Method::Validate, namespace_labels: None };
            let inbox = std::sync::Arc::default();
            let body = crate::model::Rope::new([]);
            let deadline = std::time::Instant::now();
            Call { request, body, deadline, inbox, tag: 0, again: false, resends: 0, hops: Hops::FIRST }
        };
        let mut relied_on = Vec::new();
        for size in [None, None, Some(2048), None, Some(0), None, Some(4096), None] {
            if let Some(size) = size {
                writer.table_size(size);
            }
            relied_on.push(writer.write(&call(), Duration::from_secs(1), &mut Vec::new()));
        }
        assert_eq!(relied_on, [true, false, true, false, true, false, true, false]);
    }

    #[test]
    fn a_post_says_what_it_carries_and_how_long_it_may_take() {
        let mut writer = HeaderWriter::new(true, "hook:1");
        let post = |writer: &mut HeaderWriter| {
            let mut out = Vec::new();
            writer.http("/v", Media::Json, Duration::from_secs(9), Hops::FIRST, 70_000, &mut out);
            out
        };
        let first = post(&mut writer);
        for told in [&b"/v?timeout=9s"[..], b"hook:1", b"application/json", b"application/json, */*", b"gzip", b"70000"]
        {
            assert!(first.windows(told.len()).any(|window| window == told), "{told:?}");
        }
        let tail = [&[0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe, 0x0f, 13, 5][..], b"70000"].concat();
        assert_eq!(post(&mut writer), [&[0x83, 0x87, 0x04, 13][..], b"/v?timeout=9s", &tail].concat());
    }
}
