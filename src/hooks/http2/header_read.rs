//! Reading a peer's header blocks. RFC 7541.
//!
//! We tell the peer that our dynamic table holds nothing (SETTINGS_HEADER_TABLE_SIZE 0), so a block only ever refers
//! to the static table, and reading one needs no state. Of the fields, only those we act on are kept.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use super::{super::retry_after, huffman};

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
    /// `retry-after`, where it can be read.
    pub(super) retry_after: Option<Duration>,
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
            Name::ContentType => self.grpc = Some(is_grpc(value) && self.grpc.unwrap_or(true)),
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
            Name::RetryAfter => self.retry_after = retry_after::read(value, SystemTime::now()),
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

    /// A literal without indexing, spelled out.
    fn field(name: &str, value: &str) -> Vec<u8> {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    }

    fn of(fields: &[(&str, &str)]) -> Headers {
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        read(&block).expect("read")
    }

    #[test]
    fn what_contradicts_itself_or_the_protocol_is_malformed() {
        for fields in [
            &[(":status", "200"), (":status", "200")][..],
            &[(":status", "+200")],
            &[(":status", "20")],
            &[("date", "x"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), (":made-up", "x")],
            &[(":status", "200"), ("Grpc-Status", "0")],
            &[(":status", "200"), ("", "x")],
            &[(":status", "200"), ("a b", "x")],
            &[("grpc-status", "0"), ("grpc-status", "0")],
            &[("grpc-status", "0"), ("grpc-status", "7")],
            &[("grpc-message", "a\nb")],
        ] {
            assert!(of(fields).malformed.is_some(), "{fields:?}");
        }
        assert!(read(&[0x88, 0x88]).expect("read").malformed.is_some(), "two statuses of the table");
        assert!(read(&[0x88, 0x84]).expect("read").malformed.is_some(), "a path of the table");
        let huffman = [&[0x00, 0x80 | huffman::coded_len(b"X-Y") as u8][..], &huffman::encode::<3>(b"X-Y"), b"\x01z"];
        assert!(read(&huffman.concat()).expect("read").malformed.is_some(), "a large letter that is coded");
        let sound = of(&[(":status", "200"), ("x-y_z", "A b"), ("content-type", "application/grpc+proto")]);
        assert_eq!((sound.malformed, sound.grpc), (None, Some(true)));
    }

    #[test]
    fn numbers_are_digits() {
        let status = |text| of(&[("grpc-status", text)]).grpc_status;
        assert_eq!(["0", "7", "+0", "00", "", "x"].map(status), [0, 7, 2, 2, 2, 2].map(Some));
        assert_eq!(of(&[("content-length", "+5")]).content_length, Some(NO_LENGTH));
    }

    #[test]
    fn a_content_type_is_grpc_or_not() {
        let grpc = |types: &[&str]| {
            let fields: Vec<_> = types.iter().map(|value| ("content-type", *value)).collect();
            of(&fields).grpc
        };
        assert_eq!(grpc(&["application/grpc"]), Some(true));
        assert_eq!(grpc(&["application/grpc;x=y"]), Some(true));
        assert_eq!(grpc(&["application/grpc-web"]), Some(false));
        assert_eq!(grpc(&["text/html", "application/grpc"]), Some(false));
        assert_eq!(grpc(&["application/grpc", "text/html"]), Some(false));
        assert_eq!(grpc(&[]), None);
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
