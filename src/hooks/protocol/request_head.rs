//! Request heads: encoder state that the heads of all requests over one HTTP/2 connection share.

use std::time::Duration;

use super::super::{
    call::Method,
    gzip,
    http2::CallExchange,
    post::{Media, USER_AGENT},
};
use crate::{
    hpack::{Encoder, FieldName, entry, short_literal},
    http2::RequestHead,
    model::Hops,
};

/// A field that is put into the peer's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Field {
    Authority,
    Path(Method),
    /// `application/grpc`
    Grpc,
    ContentType(Media),
    Accept(Media),
    AcceptEncoding,
    Te,
    UserAgent,
    /// The first Gatepost's: a further one spells its number out.
    Hops,
    /// With the value of the first call: of later use is only the name.
    Timeout,
}

/// Together our fields take at most this much of the peer's table (an entry is its text and 32 bytes; hosts are at
/// most 253 bytes long).
const TABLE_NEEDED: u32 = 1536;

/// Entries of HPACK's static table, by their index.
pub(in super::super) mod entries {
    pub(in super::super::super) const AUTHORITY: usize = 1;
    pub(in super::super::super) const POST: usize = 3;
    pub(in super::super::super) const PATH: usize = 4;
    pub(in super::super::super) const HTTP: usize = 6;
    pub(in super::super::super) const HTTPS: usize = 7;
    pub(in super::super::super) const ACCEPT_ENCODING: usize = 16;
    pub(in super::super::super) const ACCEPT: usize = 19;
    pub(in super::super::super) const CONTENT_LENGTH: usize = 28;
    pub(in super::super::super) const CONTENT_TYPE: usize = 31;
    pub(in super::super::super) const USER_AGENT: usize = 58;
}

/// Writes the header block of each request on one connection.
#[derive(Debug)]
pub(in super::super) struct RequestHeads {
    https: bool,
    authority: Box<str>,
    encoder: Encoder<Field>,
    /// Scratch space.
    pub(super) path: Vec<u8>,
}

impl RequestHeads {
    /// For a connection to that authority (`host:port`).
    pub(in super::super) fn new(https: bool, authority: &str) -> Self {
        Self { https, authority: authority.into(), encoder: Encoder::new(TABLE_NEEDED), path: Vec::new() }
    }

    /// Fields that every block begins with.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        self.encoder.begin(out);
        entry(entries::POST, out);
        entry(if self.https { entries::HTTPS } else { entries::HTTP }, out);
    }

    pub(super) fn field(&mut self, field: Field, out: &mut Vec<u8>) {
        use FieldName::{Static, Text};
        let authority = self.authority.as_bytes();
        let text = || match field {
            Field::Authority => (Static(entries::AUTHORITY), authority),
            Field::Path(method) => (Static(entries::PATH), method.path().as_bytes()),
            Field::Grpc => (Static(entries::CONTENT_TYPE), &b"application/grpc"[..]),
            Field::ContentType(media) => (Static(entries::CONTENT_TYPE), media.content_type().as_bytes()),
            Field::Accept(media) => (Static(entries::ACCEPT), media.accept().as_bytes()),
            Field::AcceptEncoding => (Static(entries::ACCEPT_ENCODING), gzip::ENCODING.as_bytes()),
            Field::UserAgent => (Static(entries::USER_AGENT), USER_AGENT.as_bytes()),
            Field::Te => (Text(b"te"), &b"trailers"[..]),
            Field::Hops => (Text(Hops::HEADER.as_bytes()), &b"1"[..]),
            Field::Timeout => (Text(b"grpc-timeout"), &b""[..]),
        };
        self.encoder.field(field, text, out);
    }

    /// Nearly always the first Gatepost's, which is one byte from the second call on.
    pub(super) fn hops(&mut self, hops: Hops, out: &mut Vec<u8>) {
        if hops == Hops::FIRST {
            return self.field(Field::Hops, out);
        }
        short_literal(FieldName::Text(Hops::HEADER.as_bytes()), format_args!("{}", hops.get()), out);
    }

    /// The time left, as gRPC has it.
    pub(super) fn grpc_timeout(&mut self, left: Duration, out: &mut Vec<u8>) {
        // Eight digits are what gRPC allows; in microseconds that is 99 seconds, more than any hook's timeout.
        let micros = left.as_micros().min(99_999_999);
        self.encoder.varying(Field::Timeout, FieldName::Text(b"grpc-timeout"), format_args!("{micros}u"), out);
    }
}

impl RequestHead<CallExchange> for RequestHeads {
    fn table_size(&mut self, size: u32) {
        self.encoder.table_size(size);
    }

    fn write(&mut self, exchange: &CallExchange, left: Duration, out: &mut Vec<u8>) -> bool {
        let call = exchange.call();
        call.request.protocol().write_head(call.hops, call.body.len(), left, self, out);
        self.encoder.is_relied_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hooks::{GrpcRequest, HookRequest, HttpRequest, Method},
        model::HttpForm,
    };

    /// The block of a gRPC call with so much time left.
    fn block(heads: &mut RequestHeads, micros: u64, hops: Hops) -> Vec<u8> {
        let request = HookRequest::Grpc(GrpcRequest { method: Method::Validate, namespace_labels: None });
        let mut out = Vec::new();
        request.protocol().write_head(hops, 0, Duration::from_micros(micros), heads, &mut out);
        out
    }

    fn says(block: &[u8], text: &[u8]) -> bool {
        block.windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn what_was_said_once_is_a_byte_from_then_on() {
        let mut heads = RequestHeads::new(false, "hook:1");
        let first = block(&mut heads, 250_000, Hops::FIRST);
        let second = block(&mut heads, 249_000, Hops::FIRST);
        for written in [&b"grpc-timeout"[..], b"hook:1", b"/gatepost.v1.Admission/Validate", b"application/grpc"] {
            assert!(says(&first, written), "{written:?}");
        }
        // POST, http, path, authority, te, content-type, user-agent, hops, and grpc-timeout by its name's index.
        assert_eq!(
            second,
            [&[0x83, 0x86, 0xc4, 0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0x0f, 0x3e - 0x0f, 7][..], b"249000u"].concat()
        );
    }

    #[test]
    fn a_further_gatepost_spells_its_number_out() {
        let mut heads = RequestHeads::new(false, "hook:1");
        block(&mut heads, 1, Hops::FIRST);
        let second = block(&mut heads, 1, Hops::FIRST.passed_on());
        let written = b"\0\x0dgatepost-hops\x012";
        assert!(says(&second, written), "{second:?}");
        let first = block(&mut heads, 1, Hops::FIRST);
        assert_eq!(first.len() + written.len() - 1, second.len(), "a byte the first time");
    }

    #[test]
    fn a_peer_without_a_table_is_sent_everything_each_time() {
        let mut heads = RequestHeads::new(true, "hook:1");
        block(&mut heads, 1, Hops::FIRST);
        heads.table_size(TABLE_NEEDED - 1);
        let after = block(&mut heads, 1, Hops::FIRST);
        assert_eq!(after[..3], [0x20, 0x83, 0x87], "first the table is given up");
        assert_eq!(block(&mut heads, 1, Hops::FIRST), after[1..], "and never used again");
        assert!(says(&after, b"trailers"));
    }

    #[test]
    fn all_our_fields_fit_the_table_we_say_we_need() {
        let longest = |texts: &[&str]| texts.iter().map(|text| text.len()).max().unwrap_or_default();
        let methods = [Method::Review, Method::Mutate, Method::Validate, Method::Health];
        let paths: usize = methods.iter().map(|method| method.path().len() + ":path".len() + 32).sum();
        let host = 253 + ":65535".len() + ":authority".len() + 32;
        // Five more of a gRPC hook; those of a POST, which has no paths in the table, are fewer.
        let others = 5 * (32 + longest(&["content-type", "grpc-timeout", "user-agent", Hops::HEADER]) + 20);
        assert!(paths + host + others <= TABLE_NEEDED as usize, "{}", paths + host + others);
    }

    #[test]
    fn a_post_says_what_it_carries_and_how_long_it_may_take() {
        let mut heads = RequestHeads::new(true, "hook:1");
        let post = |heads: &mut RequestHeads| {
            let form = HttpForm::Legacy;
            let request = HookRequest::Http(HttpRequest { path: "/v".into(), form, timeout: Duration::from_secs(9) });
            let mut out = Vec::new();
            request.protocol().write_head(Hops::FIRST, 70_000, Duration::ZERO, heads, &mut out);
            out
        };
        let first = post(&mut heads);
        for written in
            [&b"/v?timeout=9s"[..], b"hook:1", b"application/json", b"application/json, */*", b"gzip", b"70000"]
        {
            assert!(says(&first, written), "{written:?}");
        }
        let tail = [&[0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe, 0x0f, 13, 5][..], b"70000"].concat();
        assert_eq!(post(&mut heads), [&[0x83, 0x87, 0x04, 13][..], b"/v?timeout=9s", &tail].concat());
    }
}
