//! Reading a peer's header blocks. RFC 7541.
//!
//! We tell the peer that our dynamic table holds nothing (SETTINGS_HEADER_TABLE_SIZE 0), so a block only ever refers
//! to the static table, and reading one needs no state. Of the fields, only those we act on are kept.

use std::time::{Duration, SystemTime};

use super::{super::retry_after, huffman};

/// What a header block said that matters to a unary gRPC call, or to a POST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    /// `:status`; 0 when absent, as in trailers.
    pub(super) status: u16,
    /// `content-type` begins with `application/grpc`; `None` when absent.
    pub(super) grpc: Option<bool>,
    /// `grpc-status`, where it is a number.
    pub(super) grpc_status: Option<u32>,
    /// `grpc-message`, still percent-encoded.
    pub(super) grpc_message: Option<Vec<u8>>,
    /// `content-length`; one that is no number, or comes twice with different numbers, is a length that nothing has.
    pub(super) content_length: Option<u64>,
    /// `retry-after`, where it can be read.
    pub(super) retry_after: Option<Duration>,
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
    RetryAfter,
    Other,
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
            8..=14 => Ok(Self::Status),
            28 => Ok(Self::ContentLength),
            31 => Ok(Self::ContentType),
            53 => Ok(Self::RetryAfter),
            1..=61 => Ok(Self::Other),
            _ => Err(BadHeaders("a header refers to an entry that is not in the table")),
        }
    }
}

impl HeaderReader {
    /// Reads one whole block. Fields that nobody acts on are passed by undecoded.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<Headers, BadHeaders> {
        let mut headers = Headers::default();
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                if Name::of_static(index)? == Name::Status {
                    headers.status = [200, 204, 206, 304, 400, 404, 500][index - 8];
                }
            } else if first & 0xe0 == 0x20 {
                if integer(&mut block, 5)? != 0 {
                    return Err(BadHeaders("the dynamic table grows beyond what was allowed"));
                }
            } else {
                // With indexing (which, in a table of size 0, adds nothing), without, or never.
                let bits = if first & 0x40 != 0 { 6 } else { 4 };
                let name = match integer(&mut block, bits)? {
                    0 => text(&mut block)?.name(),
                    index => Name::of_static(index)?,
                };
                let value = text(&mut block)?;
                if name == Name::ContentType && value.is(b"application/grpc", coded!(b"application/grpc")) {
                    headers.grpc = Some(true);
                } else if name != Name::Other {
                    value.read(&mut self.value)?;
                    headers.note(name, &self.value);
                }
            }
        }
        Ok(headers)
    }
}

impl Headers {
    fn note(&mut self, name: Name, value: &[u8]) {
        let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
        match name {
            Name::Status => self.status = number().and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
            Name::ContentType => self.grpc = Some(value.starts_with(b"application/grpc")),
            // A status that is no number is UNKNOWN, as the gRPC specification has it.
            Name::GrpcStatus => self.grpc_status = Some(number().unwrap_or(2)),
            Name::GrpcMessage => self.grpc_message = Some(value[..value.len().min(KEPT)].to_vec()),
            Name::ContentLength => {
                let told = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(NO_LENGTH);
                let same = self.content_length.is_none_or(|before| before == told);
                self.content_length = Some(if same { told } else { NO_LENGTH });
            }
            Name::RetryAfter => self.retry_after = retry_after::read(value, SystemTime::now()),
            Name::Other => {}
        }
    }
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
mod tests {
    use super::*;

    fn read(block: &[u8]) -> Result<Headers, BadHeaders> {
        HeaderReader::default().read(block)
    }

    #[test]
    fn a_grpc_answer() {
        // Size update to 0, :status 200, content-type: application/grpc (Huffman), date: x (with indexing).
        let mut block = vec![0x20, 0x88, 0x0f, 0x10, 0x8b];
        block.extend([0x1d, 0x75, 0xd0, 0x62, 0x0d, 0x26, 0x3d, 0x4c, 0x4d, 0x65, 0x64]);
        block.extend([0x61, 0x01, b'x']);
        let headers = read(&block).expect("read");
        assert_eq!(headers, Headers { status: 200, grpc: Some(true), ..Default::default() });
    }

    #[test]
    fn trailers_plain_and_never_indexed() {
        let mut block = vec![0x00, 11];
        block.extend(b"grpc-status\x025");
        block[13] = 1;
        block.extend([0x10, 12]);
        block.extend(b"grpc-message\x03no!");
        let headers = read(&block).expect("read");
        assert_eq!(headers.grpc_status, Some(5));
        assert_eq!(headers.grpc_message.as_deref(), Some(&b"no!"[..]));
    }

    #[test]
    fn an_http_answer() {
        // :status by its static name, content-length by its static name, retry-after spelled out.
        let mut block = vec![0x08, 3];
        block.extend(b"503\x0f\x0d\x0212\x00\x0bretry-after\x017");
        let headers = read(&block).expect("read");
        assert_eq!((headers.status, headers.content_length), (503, Some(12)));
        assert_eq!(headers.retry_after, Some(Duration::from_secs(7)));
        block.extend(b"\x0f\x0d\x0213");
        assert_eq!(read(&block).expect("read").content_length, Some(NO_LENGTH), "two lengths are none");
    }

    #[test]
    fn damaged_blocks_are_refused() {
        assert!(read(&[0xff]).is_err(), "a number without its end");
        assert!(read(&[0xbe]).is_err(), "entry 62 would be in the dynamic table");
        assert!(read(&[0x3f, 0x01]).is_err(), "a table of 32 bytes");
        assert!(read(&[0x00, 0x05, b'a']).is_err(), "a string without its end");
        assert!(read(&[0x80]).is_err(), "entry 0");
    }
}
