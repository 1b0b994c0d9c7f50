//! HTTP/2 frames, written by hand. RFC 9113, RFC 7541.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const HEADER_TABLE_SIZE: u16 = 1;
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Header fields, each a literal without indexing and without Huffman coding.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match text.len().checked_sub(127) {
                None => block.push(text.len() as u8),
                Some(rest) => {
                    block.push(127);
                    super::reviews::varint(rest as u64, &mut block);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The head of a gRPC call.
pub fn call_head(path: &str, timeout: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "gatepost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", timeout),
    ];
    fields(&[&usual[..], more].concat())
}

/// A frame as it was received.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The number at that place of its payload.
    pub fn number(&self, at: usize) -> i64 {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        i64::from(u32::from_be_bytes(bytes.unwrap_or_default()))
    }

    /// The window that SETTINGS give to each stream at first, where they name one.
    pub fn first_window(&self) -> Option<i64> {
        let mut places = (0..self.payload.len()).step_by(6);
        let place = places.find(|at| self.payload[*at..].starts_with(&INITIAL_WINDOW_SIZE.to_be_bytes()))?;
        (self.kind == SETTINGS).then(|| self.number(place + 2))
    }

    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}
