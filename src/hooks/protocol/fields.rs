//! Response fields: header fields of a hook's answers that we act on.

use std::{str::FromStr, time::Duration};

use super::super::{gzip, media_type, retry_after};
use crate::{
    hpack::{HeaderName, HeaderText, KnownText, known},
    http2::{FieldError, HeaderFields},
};

/// Fields of a header block that matter to a unary gRPC call, or to a POST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ResponseFields {
    /// `content-type` is `application/grpc`, whatever follows behind `+` or `;`; `None` when absent.
    pub(in super::super) grpc: Option<bool>,
    /// `grpc-status`; what is no number is UNKNOWN.
    pub(in super::super) grpc_status: Option<u32>,
    /// `grpc-message`, still percent-encoded.
    pub(in super::super) grpc_message: Option<Vec<u8>>,
    /// `content-length`; one that is no number, or comes twice with different numbers, is a length that nothing has.
    pub(in super::super) content_length: Option<u64>,
    /// The first `retry-after`, where it can be read; and whether there was one.
    pub(in super::super) retry_after: Option<Duration>,
    pub(in super::super) has_retry_after: bool,
    /// The first `content-type` can be read; `None` when absent.
    pub(in super::super) readable_type: Option<bool>,
    /// The first `content-encoding` is gzip; `None` when absent.
    pub(in super::super) gzip: Option<bool>,
}

/// Stand-in for an unknown length: no body is as long.
pub(in super::super) const NO_LENGTH: u64 = u64::MAX;
/// The longest value that is worth keeping, in bytes.
const KEPT: usize = 1024;

/// The names we act on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meant {
    ContentType,
    GrpcStatus,
    GrpcMessage,
    ContentLength,
    ContentEncoding,
    RetryAfter,
}

/// Every answer carries some of these, so they are recognised without decoding. The most frequent first.
const NAMES: [(KnownText, Meant); 6] = [
    (known!(b"grpc-status"), Meant::GrpcStatus),
    (known!(b"grpc-message"), Meant::GrpcMessage),
    (known!(b"content-type"), Meant::ContentType),
    (known!(b"content-length"), Meant::ContentLength),
    (known!(b"content-encoding"), Meant::ContentEncoding),
    (known!(b"retry-after"), Meant::RetryAfter),
];
const GRPC: KnownText = known!(b"application/grpc");

impl Meant {
    /// Static entries by their index: RFC 7541 Appendix A.
    fn of(name: HeaderName<'_>) -> Option<Self> {
        match name {
            HeaderName::Static(26) => Some(Self::ContentEncoding),
            HeaderName::Static(28) => Some(Self::ContentLength),
            HeaderName::Static(31) => Some(Self::ContentType),
            HeaderName::Static(53) => Some(Self::RetryAfter),
            HeaderName::Static(_) => None,
            HeaderName::Text(text) => NAMES.iter().find(|(known, _)| text.is(*known)).map(|(_, meant)| *meant),
        }
    }
}

impl HeaderFields for ResponseFields {
    /// Fields that nobody acts on are passed by undecoded.
    fn field(
        &mut self,
        name: HeaderName<'_>,
        value: HeaderText<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, FieldError> {
        let Some(meant) = Meant::of(name) else { return Ok(false) };
        if meant == Meant::ContentType && value.is(GRPC) {
            self.grpc = Some(self.grpc.unwrap_or(true));
            self.readable_type.get_or_insert(true);
            return Ok(true);
        }
        value.read(scratch)?;
        if scratch.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return Err(FieldError::Malformed("a header's value holds a line break or NUL"));
        }
        self.note(meant, scratch).map(|()| true)
    }
}

impl ResponseFields {
    fn note(&mut self, meant: Meant, value: &[u8]) -> Result<(), FieldError> {
        match meant {
            Meant::ContentType => {
                self.grpc = Some(is_grpc(value) && self.grpc.unwrap_or(true));
                self.readable_type.get_or_insert_with(|| media_type::is_readable(value));
            }
            // A status that is no number is UNKNOWN, as the gRPC specification has it.
            Meant::GrpcStatus if self.grpc_status.is_some() => {
                return Err(FieldError::Malformed("it has two grpc-status"));
            }
            Meant::GrpcStatus => {
                let plain = value == b"0" || !value.starts_with(b"0");
                self.grpc_status = Some(digits(value).filter(|_| plain).unwrap_or(2));
            }
            Meant::GrpcMessage => self.grpc_message = Some(value[..value.len().min(KEPT)].to_vec()),
            Meant::ContentLength => {
                let announced = digits(value).unwrap_or(NO_LENGTH);
                let same = self.content_length.is_none_or(|before| before == announced);
                self.content_length = Some(if same { announced } else { NO_LENGTH });
            }
            Meant::ContentEncoding => _ = self.gzip.get_or_insert_with(|| gzip::is_ours(value)),
            // As Go's client reads it; a second one changes nothing.
            Meant::RetryAfter if self.has_retry_after => {}
            Meant::RetryAfter => {
                self.has_retry_after = true;
                self.retry_after = retry_after::read(value);
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests;
