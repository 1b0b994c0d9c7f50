//! Reading a peer's header blocks. RFC 7541.
//!
//! We tell the peer that our dynamic table holds nothing (SETTINGS_HEADER_TABLE_SIZE 0), so a block only ever refers
//! to the static table, and reading one needs no state. Of the fields, only those we act on are kept.

use std::{str::FromStr, time::Duration};

use super::{
    super::{gzip, media_type, retry_after},
    huffman,
};

/// What a header block said that matters to a unary gRPC call, or to a POST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    /// `:status`; 0 when absent, as in trailers.
    pub(super) status: u16,
    /// `content-type` is `application/grpc`, whatever follows behind `+` or `;`; `None` when absent.
    pub(super) grpc: Option<bool>,
    /// `grpc-status`; what is no number is UNKNOWN.
    pub(super) grpc_status: Option<u32>,
    /// `grpc-message`, still percent-encoded.
    pub(super) grpc_message: Option<Vec<u8>>,
    /// `content-length`; one that is no number, or comes twice with different numbers, is a length that nothing has.
    pub(super) content_length: Option<u64>,
    /// The first `retry-after`, where it can be read; and whether there was one.
    pub(super) retry_after: Option<Duration>,
    pub(super) has_retry_after: bool,
    /// The first `content-type` can be read; `None` when absent.
    pub(super) readable_type: Option<bool>,
    /// The first `content-encoding` is gzip; `None` when absent.
    pub(super) gzip: Option<bool>,
    /// The first thing that must not be in an answer, if there is any. RFC 9113 §8.2 and §8.3.
    pub(super) malformed: Option<&'static str>,
}

/// Why a header block cannot be read: the connection is beyond use (COMPRESSION_ERROR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadHeaders(pub(super) &'static str);

/// What no body is as long as.
const NO_LENGTH: u64 = u64::MAX;
/// The longest value that is worth keeping, in bytes.
const KEPT: usize = 1024;

/// Reads header blocks one after the other, reusing its scratch space.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    value: Vec<u8>,
}

/// The names we act on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Status,
    ContentType,
    GrpcStatus,
    GrpcMessage,
    ContentLength,
    ContentEncoding,
    RetryAfter,
    /// One that is read by its text alone.
    Other,
    /// A pseudo-header that no answer has.
    Pseudo,
}

/// A header string as it came.
#[derive(Clone, Copy)]
struct Text<'a> {
    huffman: bool,
    bytes: &'a [u8],
}

/// The coding of a text that we know.
macro_rules! coded {
    ($text:expr) => {{
        const CODED: [u8; huffman::coded_len($text)] = huffman::encode($text);
        &CODED
    }};
}

impl Text<'_> {
    /// A text has one coding only, so texts we know are recognised without decoding; every answer carries some.
    fn is(self, plain: &[u8], coded: &[u8]) -> bool {
        self.bytes == if self.huffman { coded } else { plain }
    }

    fn name(self) -> Name {
        if self.is(b"grpc-status", coded!(b"grpc-status")) {
            Name::GrpcStatus
        } else if self.is(b"grpc-message", coded!(b"grpc-message")) {
            Name::GrpcMessage
        } else if self.is(b"content-type", coded!(b"content-type")) {
            Name::ContentType
        } else if self.is(b":status", coded!(b":status")) {
            Name::Status
        } else if self.is(b"content-length", coded!(b"content-length")) {
            Name::ContentLength
        } else if self.is(b"content-encoding", coded!(b"content-encoding")) {
            Name::ContentEncoding
        } else if self.is(b"retry-after", coded!(b"retry-after")) {
            Name::RetryAfter
        } else {
            Name::Other
        }
    }

    /// The text itself, in `out`.
    fn read(self, out: &mut Vec<u8>) -> Result<(), BadHeaders> {
        out.clear();
        if self.huffman {
            huffman::decode(self.bytes, out).ok_or(BadHeaders("a header string is not validly coded"))
        } else {
            out.extend_from_slice(self.bytes);
            Ok(())
        }
    }
}

impl Name {
    /// The name of a static table entry. RFC 7541 Appendix A.
    fn of_static(index: usize) -> Result<Self, BadHeaders> {
        match index {
            1..=7 => Ok(Self::Pseudo),
            8..=14 => Ok(Self::Status),
            26 => Ok(Self::ContentEncoding),
            28 => Ok(Self::ContentLength),
            31 => Ok(Self::ContentType),
            53 => Ok(Self::RetryAfter),
            15..=61 => Ok(Self::Other),
            _ => Err(BadHeaders("a header refers to an entry that is not in the table")),
        }
    }
}

impl HeaderReader {
    /// Reads one whole block. Fields that nobody acts on are passed by undecoded.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<Headers, BadHeaders> {
        let mut headers = Headers::default();
        // Pseudo-headers come first.
        let mut regular = false;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let name = Name::of_static(index)?;
                headers.begin(name, &mut regular);
                if name == Name::Status {
                    headers.status(Some([200, 204, 206, 304, 400, 404, 500][index - 8]));
                }
            } else if first & 0xe0 == 0x20 {
                if integer(&mut block, 5)? != 0 {
                    return Err(BadHeaders("the dynamic table grows beyond what was allowed"));
                }
            } else {
                // With indexing (which, in a table of size 0, adds nothing), without, or never.
                let bits = if first & 0x40 != 0 { 6 } else { 4 };
                let name = match integer(&mut block, bits)? {
                    0 => self.name(text(&mut block)?, &mut headers)?,
                    index => Name::of_static(index)?,
                };
                headers.begin(name, &mut regular);
                let value = text(&mut block)?;
                if name == Name::ContentType && value.is(b"application/grpc", coded!(b"application/grpc")) {
                    headers.grpc = Some(headers.grpc.unwrap_or(true));
                    headers.readable_type.get_or_insert(true);
                } else if !matches!(name, Name::Other | Name::Pseudo) {
                    value.read(&mut self.value)?;
                    headers.note(name, &self.value);
                }
            }
        }
        Ok(headers)
    }

    /// A name that is spelled out. One that we do not act on has to be one all the same.
    fn name(&mut self, text: Text<'_>, headers: &mut Headers) -> Result<Name, BadHeaders> {
        let name = text.name();
        if name != Name::Other {
            return Ok(name);
        }
        text.read(&mut self.value)?;
        let (pseudo, rest) = match self.value.split_first() {
            Some((b':', rest)) => (true, rest),
            _ => (false, &self.value[..]),
        };
        let sound = |byte: &u8| (0x21..0x7f).contains(byte) && *byte != b':' && !byte.is_ascii_uppercase();
        if rest.is_empty() || !rest.iter().all(sound) {
            headers.broken("a header's name holds what no name may (they are written small)");
        }
        Ok(if pseudo { Name::Pseudo } else { Name::Other })
    }
}

impl Headers {
    /// Others are to follow.
    pub(super) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    fn note(&mut self, name: Name, value: &[u8]) {
        if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            self.broken("a header's value holds a line break or NUL");
        }
        match name {
            Name::Status => self.status(digits(value).filter(|_| value.len() == 3)),
            Name::ContentType => {
                self.grpc = Some(is_grpc(value) && self.grpc.unwrap_or(true));
                self.readable_type.get_or_insert_with(|| media_type::is_readable(value));
            }
            // A status that is no number is UNKNOWN, as the gRPC specification has it.
            Name::GrpcStatus if self.grpc_status.is_some() => self.broken("it has two grpc-status"),
            Name::GrpcStatus => {
                let plain = value == b"0" || !value.starts_with(b"0");
                self.grpc_status = Some(digits(value).filter(|_| plain).unwrap_or(2));
            }
            Name::GrpcMessage => self.grpc_message = Some(value[..value.len().min(KEPT)].to_vec()),
            Name::ContentLength => {
                let told = digits(value).unwrap_or(NO_LENGTH);
                let same = self.content_length.is_none_or(|before| before == told);
                self.content_length = Some(if same { told } else { NO_LENGTH });
            }
            Name::ContentEncoding => _ = self.gzip.get_or_insert_with(|| gzip::is_ours(value)),
            // As Go's client reads it; a second one changes nothing.
            Name::RetryAfter if self.has_retry_after => {}
            Name::RetryAfter => {
                self.has_retry_after = true;
                self.retry_after = retry_after::read(value);
            }
            Name::Other | Name::Pseudo => {}
        }
    }

    fn status(&mut self, status: Option<u16>) {
        match status.filter(|status| *status >= 100) {
            _ if self.status != 0 => self.broken("it has two statuses"),
            Some(status) => self.status = status,
            None => self.broken("its status is no number"),
        }
    }

    /// A header of that name begins.
    fn begin(&mut self, name: Name, regular: &mut bool) {
        match name {
            Name::Pseudo => self.broken("it has a pseudo-header that belongs to requests"),
            Name::Status if *regular => self.broken("its status stands behind other headers"),
            Name::Status => {}
            _ => *regular = true,
        }
    }

    fn broken(&mut self, what: &'static str) {
        self.malformed.get_or_insert(what);
    }
}

/// A number of digits and nothing else.
fn digits<T: FromStr>(value: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit))?;
    text.parse().ok()
}

/// Is it `application/grpc`, alone or with a message format or parameters behind it?
fn is_grpc(value: &[u8]) -> bool {
    value.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A number with a prefix of so many bits. RFC 7541 §5.1.
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, BadHeaders> {
    const CUT: BadHeaders = BadHeaders("a header block ends inside a field");
    let (&first, rest) = block.split_first().ok_or(CUT)?;
    *block = rest;
    let mask = (1_usize << bits) - 1;
    let mut value = usize::from(first) & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = block.split_first().ok_or(CUT)?;
        *block = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(BadHeaders("a number in a header block is too large"))
}

/// A string, plain or Huffman-coded. RFC 7541 §5.2.
fn text<'a>(block: &mut &'a [u8]) -> Result<Text<'a>, BadHeaders> {
    let huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(len).ok_or(BadHeaders("a header block ends inside a string"))?;
    *block = rest;
    Ok(Text { huffman, bytes })
}

#[cfg(test)]
mod tests;
