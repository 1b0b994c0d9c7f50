//! Request heads: the heads of gRPC calls and POSTs, and the encoder that all requests over one HTTP/2 connection
//! share. Source: `docs/reference/webhook-semantics.md` §9.
//!
//! Heads of answers are here too: the status, and the header fields that matter.

use std::{io::Write, str::FromStr, time::Duration};

use gatepost_api::{ForwardedContext, Hops, HttpForm, hook::Authorization};
use gatepost_http2_client::{
    FieldError, HeaderFields,
    hpack::{Encoder, FieldName, HeaderName, HeaderText, KnownText, entry, known, literal, secret, short_literal},
};
use gatepost_wire::names;

use crate::hooks::header_values::{GZIP, is_gzip, is_readable_media_type, retry_after};

/// Method of a gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `gatepost.v1.Admission/Review`
    Review,
    /// `gatepost.v1.Admission/Mutate`
    Mutate,
    /// `gatepost.v1.Admission/Validate`
    Validate,
    /// `grpc.health.v1.Health/Check`
    Health,
}

impl Method {
    /// Returns the request path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Review => names::REVIEW,
            Self::Mutate => names::MUTATE,
            Self::Validate => names::VALIDATE,
            Self::Health => names::HEALTH_CHECK,
        }
    }
}

/// User agent.
pub(in crate::hooks) const USER_AGENT: &str = concat!("gatepost/", env!("CARGO_PKG_VERSION"));

/// Media types of reviews over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hooks) enum Media {
    Json,
    Protobuf,
}

impl Media {
    pub(in crate::hooks) const fn of(form: HttpForm) -> Self {
        match form {
            HttpForm::Json(_) | HttpForm::Legacy => Self::Json,
            HttpForm::Protobuf(_) => Self::Protobuf,
        }
    }

    pub(in crate::hooks) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    pub(in crate::hooks) const fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json, */*",
            Self::Protobuf => "application/vnd.kubernetes.protobuf, application/json",
        }
    }
}

/// Appends the path with the timeout in whole seconds: rounded up, and at least one.
pub(in crate::hooks) fn write_path(path: &str, timeout: Duration, out: &mut Vec<u8>) {
    let seconds = timeout.as_millis().div_ceil(1000).max(1);
    let sign = match path.split_once('?') {
        None => "?",
        Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
        Some(_) => "&",
    };
    #[allow(clippy::expect_used)]
    write!(out, "{path}{sign}timeout={seconds}s").expect("writing to a Vec cannot fail");
}

/// A field that is put into the hook's dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hooks) enum Field {
    Authority,
    Path(Method),
    /// `application/grpc`
    Grpc,
    ContentType(Media),
    Accept(Media),
    AcceptEncoding,
    Te,
    UserAgent,
    /// With the value of the first Gatepost; other values are literals.
    Hops,
    /// With the value of the first call; later calls reuse only the name.
    Timeout,
}

/// Size of all fields together in the hook's table, in bytes. An entry takes its text and 32 bytes; hosts have at most
/// 253 bytes.
const TABLE_NEEDED: u32 = 1536;

/// Entries of HPACK's static table, by their index.
pub(super) mod entries {
    pub(in crate::hooks) const AUTHORITY: usize = 1;
    pub(in crate::hooks) const POST: usize = 3;
    pub(in crate::hooks) const PATH: usize = 4;
    pub(in crate::hooks) const HTTP: usize = 6;
    pub(in crate::hooks) const HTTPS: usize = 7;
    pub(in crate::hooks) const ACCEPT_ENCODING: usize = 16;
    pub(in crate::hooks) const ACCEPT: usize = 19;
    pub(in crate::hooks) const AUTHORIZATION: usize = 23;
    pub(in crate::hooks) const CONTENT_LENGTH: usize = 28;
    pub(in crate::hooks) const CONTENT_TYPE: usize = 31;
    pub(in crate::hooks) const USER_AGENT: usize = 58;
}

/// Writes the header block of each request on one connection.
#[derive(Debug)]
pub(in crate::hooks) struct RequestHeads {
    https: bool,
    authority: Box<str>,
    authorization: Option<Authorization>,
    pub(in crate::hooks) encoder: Encoder<Field>,
    /// Scratch space.
    pub(super) path: Vec<u8>,
}

impl RequestHeads {
    /// Creates the writer for a connection to that authority (`host:port`), with these credentials in each request.
    pub(in crate::hooks) fn new(https: bool, authority: &str, authorization: Option<Authorization>) -> Self {
        Self {
            https,
            authority: authority.into(),
            authorization,
            encoder: Encoder::new(TABLE_NEEDED),
            path: Vec::new(),
        }
    }

    /// Appends the fields that every block begins with.
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
            Field::AcceptEncoding => (Static(entries::ACCEPT_ENCODING), GZIP.as_bytes()),
            Field::UserAgent => (Static(entries::USER_AGENT), USER_AGENT.as_bytes()),
            Field::Te => (Text(b"te"), &b"trailers"[..]),
            Field::Hops => (Text(Hops::HEADER.as_bytes()), &b"1"[..]),
            Field::Timeout => (Text(b"grpc-timeout"), &b""[..]),
        };
        self.encoder.field(field, text, out);
    }

    /// Appends our credentials, and what goes on from the caller: the number of Gateposts, and the trace if there is one.
    pub(super) fn forwarded(&mut self, forwarded: &ForwardedContext, out: &mut Vec<u8>) {
        if let Some(authorization) = &self.authorization {
            secret(FieldName::Static(entries::AUTHORIZATION), authorization.as_str().as_bytes(), out);
        }
        // Nearly always that of the first Gatepost, which is one byte from the second call on.
        if forwarded.hops == Hops::FIRST {
            self.field(Field::Hops, out);
        } else {
            let hops = forwarded.hops.get();
            short_literal(FieldName::Text(Hops::HEADER.as_bytes()), format_args!("{hops}"), out);
        }
        for (name, value) in forwarded.trace.iter().flat_map(|trace| trace.iter()) {
            literal(FieldName::Text(name.as_bytes()), value, out);
        }
    }

    /// Appends the time left, in the format of gRPC.
    pub(super) fn grpc_timeout(&mut self, left: Duration, out: &mut Vec<u8>) {
        // gRPC allows eight digits. In microseconds that is 99 seconds, more than any hook's timeout.
        let micros = left.as_micros().min(99_999_999);
        self.encoder.varying(Field::Timeout, FieldName::Text(b"grpc-timeout"), format_args!("{micros}u"), out);
    }
}

/// Head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::hooks) struct ResponseHead {
    /// The final status, 200 to 999.
    pub(in crate::hooks) status: u16,
    pub(in crate::hooks) fields: ResponseFields,
}

/// Fields of a header block that matter to a unary gRPC call or a POST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::hooks) struct ResponseFields {
    /// `content-type` is `application/grpc`, with any suffix after `+` or `;`; `None` when absent.
    pub(in crate::hooks) grpc: Option<bool>,
    /// `grpc-status`; UNKNOWN if it is not a number.
    pub(in crate::hooks) grpc_status: Option<u32>,
    /// `grpc-message`, still percent-encoded.
    pub(in crate::hooks) grpc_message: Option<Vec<u8>>,
    /// `content-length`; [`INVALID_LENGTH`] if it is not a number, or occurs twice with different numbers.
    pub(in crate::hooks) content_length: Option<u64>,
    /// The first `retry-after`, if it can be read; and whether there was one.
    pub(in crate::hooks) retry_after: Option<Duration>,
    pub(in crate::hooks) has_retry_after: bool,
    /// True if the first `content-type` can be parsed; `None` when absent.
    pub(in crate::hooks) readable_type: Option<bool>,
    /// True if the first `content-encoding` is gzip; `None` when absent.
    pub(in crate::hooks) gzip: Option<bool>,
}

/// Length that no body has.
pub(in crate::hooks) const INVALID_LENGTH: u64 = u64::MAX;
/// Maximum length of a kept `grpc-message`, in bytes.
const MAX_MESSAGE: usize = 1024;

/// A field of an answer that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownField {
    ContentType,
    GrpcStatus,
    GrpcMessage,
    ContentLength,
    ContentEncoding,
    RetryAfter,
}

/// Names of the fields, the most frequent first. They are recognised without decoding, as every answer carries some.
const NAMES: [(KnownText, KnownField); 6] = [
    (known!(b"grpc-status"), KnownField::GrpcStatus),
    (known!(b"grpc-message"), KnownField::GrpcMessage),
    (known!(b"content-type"), KnownField::ContentType),
    (known!(b"content-length"), KnownField::ContentLength),
    (known!(b"content-encoding"), KnownField::ContentEncoding),
    (known!(b"retry-after"), KnownField::RetryAfter),
];
const GRPC: KnownText = known!(b"application/grpc");

impl KnownField {
    /// Returns the field of this name. Entries of the static table are known by their index (RFC 7541 Appendix A).
    fn of(name: HeaderName<'_>) -> Option<Self> {
        match name {
            HeaderName::Static(26) => Some(Self::ContentEncoding),
            HeaderName::Static(28) => Some(Self::ContentLength),
            HeaderName::Static(31) => Some(Self::ContentType),
            HeaderName::Static(53) => Some(Self::RetryAfter),
            HeaderName::Static(_) => None,
            HeaderName::Text(text) => NAMES.iter().find(|(known, _)| text.is(*known)).map(|(_, known)| *known),
        }
    }
}

impl HeaderFields for ResponseFields {
    /// Reads a field that matters. Other fields are not decoded.
    fn field(
        &mut self,
        name: HeaderName<'_>,
        value: HeaderText<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, FieldError> {
        let Some(known) = KnownField::of(name) else { return Ok(false) };
        if known == KnownField::ContentType && value.is(GRPC) {
            self.grpc = Some(self.grpc.unwrap_or(true));
            self.readable_type.get_or_insert(true);
            return Ok(true);
        }
        value.read(scratch)?;
        if scratch.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return Err(FieldError::Malformed("a header's value holds a line break or NUL"));
        }
        self.note(known, scratch).map(|()| true)
    }
}

impl ResponseFields {
    fn note(&mut self, known: KnownField, value: &[u8]) -> Result<(), FieldError> {
        match known {
            KnownField::ContentType => {
                self.grpc = Some(is_grpc(value) && self.grpc.unwrap_or(true));
                self.readable_type.get_or_insert_with(|| is_readable_media_type(value));
            }
            // The gRPC specification: a status that is not a number is UNKNOWN.
            KnownField::GrpcStatus if self.grpc_status.is_some() => {
                return Err(FieldError::Malformed("it has two grpc-status"));
            }
            KnownField::GrpcStatus => {
                let plain = value == b"0" || !value.starts_with(b"0");
                self.grpc_status = Some(digits(value).filter(|_| plain).unwrap_or(2));
            }
            KnownField::GrpcMessage => self.grpc_message = Some(value[..value.len().min(MAX_MESSAGE)].to_vec()),
            KnownField::ContentLength => {
                let announced = digits(value).unwrap_or(INVALID_LENGTH);
                let same = self.content_length.is_none_or(|before| before == announced);
                self.content_length = Some(if same { announced } else { INVALID_LENGTH });
            }
            KnownField::ContentEncoding => _ = self.gzip.get_or_insert_with(|| is_gzip(value)),
            // Go's client reads the first one only.
            KnownField::RetryAfter if self.has_retry_after => {}
            KnownField::RetryAfter => {
                self.has_retry_after = true;
                self.retry_after = retry_after(value);
            }
        }
        Ok(())
    }
}

/// Parses a number that consists of digits only.
fn digits<T: FromStr>(value: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit))?;
    text.parse().ok()
}

/// Returns true for `application/grpc`, alone or followed by a message format or parameters.
fn is_grpc(value: &[u8]) -> bool {
    value.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{GrpcRequest, HookRequest, HttpRequest};

    /// The block of a gRPC call with so much time left.
    fn block(heads: &mut RequestHeads, micros: u64, hops: Hops) -> Vec<u8> {
        let request = HookRequest::Grpc(GrpcRequest { method: Method::Validate, namespace_labels: None });
        let mut out = Vec::new();
        request.write_head(&hops.into(), 0, Duration::from_micros(micros), heads, &mut out);
        out
    }

    fn says(block: &[u8], text: &[u8]) -> bool {
        block.windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn a_repeated_field_is_one_byte() {
        let mut heads = RequestHeads::new(false, "hook:1", None);
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
    fn further_hops_are_spelled_out() {
        let mut heads = RequestHeads::new(false, "hook:1", None);
        block(&mut heads, 1, Hops::FIRST);
        let second = block(&mut heads, 1, Hops::FIRST.passed_on());
        let written = b"\0\x0dgatepost-hops\x012";
        assert!(says(&second, written), "{second:?}");
        let first = block(&mut heads, 1, Hops::FIRST);
        assert_eq!(first.len() + written.len() - 1, second.len(), "a byte the first time");
    }

    #[test]
    fn fields_are_spelled_out_for_a_hook_without_a_table() {
        let mut heads = RequestHeads::new(true, "hook:1", None);
        block(&mut heads, 1, Hops::FIRST);
        heads.encoder.table_size(TABLE_NEEDED - 1);
        let after = block(&mut heads, 1, Hops::FIRST);
        assert_eq!(after[..3], [0x20, 0x83, 0x87], "first the table is given up");
        assert_eq!(block(&mut heads, 1, Hops::FIRST), after[1..], "and never used again");
        assert!(says(&after, b"trailers"));
    }

    #[test]
    fn all_fields_fit_the_announced_table_size() {
        let longest = |texts: &[&str]| texts.iter().map(|text| text.len()).max().unwrap_or_default();
        let methods = [Method::Review, Method::Mutate, Method::Validate, Method::Health];
        let paths: usize = methods.iter().map(|method| method.path().len() + ":path".len() + 32).sum();
        let host = 253 + ":65535".len() + ":authority".len() + 32;
        // Five more of a gRPC hook; those of a POST, which has no paths in the table, are fewer.
        let others = 5 * (32 + longest(&["content-type", "grpc-timeout", "user-agent", Hops::HEADER]) + 20);
        assert!(paths + host + others <= TABLE_NEEDED as usize, "{}", paths + host + others);
    }

    #[test]
    fn a_post_has_media_type_length_and_timeout() {
        let mut heads = RequestHeads::new(true, "hook:1", None);
        let post = |heads: &mut RequestHeads| {
            let form = HttpForm::Legacy;
            let request = HookRequest::Http(HttpRequest { path: "/v".into(), form, timeout: Duration::from_secs(9) });
            let mut out = Vec::new();
            request.write_head(&Hops::FIRST.into(), 70_000, Duration::ZERO, heads, &mut out);
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

    fn path(path: &str, millis: u64) -> String {
        let mut out = Vec::new();
        write_path(path, Duration::from_millis(millis), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_timeout_joins_the_query() {
        assert_eq!(path("/validate", 10_000), "/validate?timeout=10s");
        assert_eq!(path("/validate?a=b", 9_001), "/validate?a=b&timeout=10s");
        assert_eq!(path("/?", 1), "/?timeout=1s");
        assert_eq!(path("/?a&", 0), "/?a&timeout=1s", "a hook that is given no time at all might not even try");
    }
}

#[cfg(test)]
mod fields_tests;
