//! Answers as HTTP/2 frames: a verdict, a refusal, or a reply in plain HTTP.
//!
//! Nothing here awaits. All frames of an answer are queued in one go, so that the connection writes them together.

use std::fmt::Write;

use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use super::{http::reply, outgoing::Outgoing, refusal::Refusal};

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// HEADERS, the framed message, trailers with status 0.
pub(super) fn verdict(respond: &mut SendResponse<Outgoing>, message: Outgoing) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(response, false)?;
    // Without reserving capacity first: a verdict is small, and h2 holds it until the window has room.
    stream.send_data(message, false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    stream.send_trailers(trailers)
}

/// One HEADERS frame that also ends the stream. When the request is not yet whole, h2 then resets its stream with
/// NO_ERROR, so that the rest of it is not sent.
pub(super) fn refuse(respond: &mut SendResponse<Outgoing>, refusal: &Refusal) -> Result<(), h2::Error> {
    if refusal.is_plain_http() {
        return send(respond, reply::refusal(refusal));
    }
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(refusal.code() as i32));
    headers.insert(GRPC_MESSAGE, percent_encoded(&refusal.to_string()));
    match refusal {
        Refusal::Compressed => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Refusal::Overloaded { .. } | Refusal::Share { .. } | Refusal::TooManyHolds => {
            headers.insert(RETRY_PUSHBACK, HeaderValue::from_static("100"));
        }
        _ => {}
    }
    respond.send_response(response, true).map(drop)
}

/// HEADERS and the body.
pub(super) fn send(respond: &mut SendResponse<Outgoing>, reply: Response<Outgoing>) -> Result<(), h2::Error> {
    let (parts, body) = reply.into_parts();
    respond.send_response(Response::from_parts(parts, ()), false)?.send_data(body, true)
}

/// A `grpc-message`: everything but printable ASCII, and `%` itself, as `%XX`.
fn percent_encoded(text: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte as char),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    HeaderValue::from_str(&encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("50% of\n\u{fc}"), "50%25 of%0A%C3%BC");
    }
}
