//! Heads of answers over HTTP/2: the status, and the header fields that we act on.

use std::{str::FromStr, time::Duration};

use crate::hooks::header_values::{is_gzip, is_readable_media_type, retry_after};
use gatepost_http2_client::{
    FieldError, HeaderFields,
    hpack::{HeaderName, HeaderText, KnownText, known},
};

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
    /// `content-type` is `application/grpc`, whatever follows behind `+` or `;`; `None` when absent.
    pub(in crate::hooks) grpc: Option<bool>,
    /// `grpc-status`; UNKNOWN if it is no number.
    pub(in crate::hooks) grpc_status: Option<u32>,
    /// `grpc-message`, still percent-encoded.
    pub(in crate::hooks) grpc_message: Option<Vec<u8>>,
    /// `content-length`; [`INVALID_LENGTH`] if it is no number, or comes twice with different numbers.
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

/// A field that we act on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownField {
    ContentType,
    GrpcStatus,
    GrpcMessage,
    ContentLength,
    ContentEncoding,
    RetryAfter,
}

/// Names of the fields, recognised without decoding, as every answer carries some. The most frequent comes first.
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
    /// Entries of the static table are known by their index (RFC 7541 Appendix A).
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
    /// Other fields are not decoded.
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
            // The gRPC specification: a status that is no number is UNKNOWN.
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

/// Number that consists of digits only.
fn digits<T: FromStr>(value: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit))?;
    text.parse().ok()
}

/// True for `application/grpc`, alone or followed by a message format or parameters.
fn is_grpc(value: &[u8]) -> bool {
    value.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests;
