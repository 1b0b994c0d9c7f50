//! Answers: a verdict or a refusal, as gRPC or plain HTTP.
//!
//! Only [`encode`] awaits. All frames of an answer are queued together, so that the connection writes them together.

use std::fmt::Write;

use bytes::Bytes;
use h2::{SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::json;
use tonic::Code;

use super::{head::Format, outgoing::Outgoing, refusal::Refusal};
use gatepost_api::{Encoding, Review, Verdict};
use gatepost_base::offload;
use gatepost_wire::outbound;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS_OK: HeaderValue = HeaderValue::from_static("0");

/// Encodes a verdict as its review was encoded. A large verdict is encoded on another thread: patches can have
/// megabytes.
pub(super) async fn encode(review: Review, verdict: Verdict) -> Bytes {
    let annotations = verdict.audit_annotations.iter().map(|(key, value)| key.len() + value.len());
    let size = verdict.patch.as_ref().map_or(0, Bytes::len) + annotations.sum::<usize>();
    offload::run(size, move || match review.encoding {
        Encoding::Json(version) => outbound::json(version, &review.uid, &verdict),
        Encoding::Envelope(version) => outbound::envelope(version, &review.uid, &verdict),
        Encoding::Grpc => outbound::encode(&review.uid, &verdict),
    })
    .await
}

/// Starts the response of a gRPC call; messages and trailers follow. An error means that the caller is gone.
pub(super) fn begin_grpc(respond: &mut SendResponse<Outgoing>) -> Result<SendStream<Outgoing>, h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    respond.send_response(response, false)
}

/// Answers a gRPC call with one framed message: HEADERS, DATA, trailers with status 0.
pub(super) fn send_message(respond: &mut SendResponse<Outgoing>, message: Outgoing) -> Result<(), h2::Error> {
    let mut stream = begin_grpc(respond)?;
    // Capacity is not reserved first: a verdict is small, and h2 queues it until the window has room.
    stream.send_data(message, false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, STATUS_OK);
    stream.send_trailers(trailers)
}

/// Returns trailers that end a gRPC stream.
pub(super) fn trailers(code: Code, message: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (GRPC_STATUS, HeaderValue::from(code as i32)),
        (GRPC_MESSAGE, HeaderValue::from_static(message)),
    ])
}

/// Refuses a gRPC call with one HEADERS frame that ends the stream, and other calls in plain HTTP. If the request is
/// incomplete, h2 then resets its stream with NO_ERROR, so that the caller sends no more of it.
pub(super) fn refuse(respond: &mut SendResponse<Outgoing>, refusal: &Refusal) -> Result<(), h2::Error> {
    if refusal.is_plain_http() {
        return send(respond, http_refusal(refusal));
    }
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(refusal.code() as i32));
    headers.insert(GRPC_MESSAGE, percent_encoded(&refusal.to_string()));
    match refusal {
        Refusal::Compressed => {
            headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Refusal::Overloaded { .. } | Refusal::Share { .. } | Refusal::TooManyInitializationCalls => {
            headers.insert(RETRY_PUSHBACK, HeaderValue::from_static("100"));
        }
        _ => {}
    }
    respond.send_response(response, true).map(drop)
}

/// Sends an answer in plain HTTP over HTTP/2.
pub(super) fn send(respond: &mut SendResponse<Outgoing>, answer: Response<Outgoing>) -> Result<(), h2::Error> {
    let (parts, body) = answer.into_parts();
    respond.send_response(Response::from_parts(parts, ()), false)?.send_data(body, true)
}

/// Returns the answer with a verdict, in plain HTTP.
pub(super) fn http_verdict(format: Format, review: Outgoing) -> Response<Outgoing> {
    http(StatusCode::OK, format.media_type(), review)
}

/// Returns a refusal in plain HTTP: a `metav1.Status`, and the HTTP header that names the remedy, if there is one.
pub(super) fn http_refusal(refusal: &Refusal) -> Response<Outgoing> {
    let status = refusal.http();
    let mut body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.to_string(),
        "reason": reason(status),
        "code": status.as_u16(),
    });
    let header = match refusal {
        Refusal::Method => Some((header::ALLOW, "POST")),
        Refusal::ContentEncoding => Some((header::ACCEPT_ENCODING, "identity")),
        Refusal::Overloaded { .. } | Refusal::Share { .. } => {
            body["details"] = json!({ "retryAfterSeconds": 1 });
            Some((header::RETRY_AFTER, "1"))
        }
        _ => None,
    };
    let mut response = http(status, "application/json", Bytes::from(format!("{body}\n")).into());
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn http(status: StatusCode, media_type: &'static str, body: Outgoing) -> Response<Outgoing> {
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// Returns the `StatusReason` of `k8s.io/apimachinery/pkg/apis/meta/v1` for `status`.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "",
    }
}

/// Encodes a `grpc-message`: everything but printable ASCII, and `%` itself, as `%XX`.
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
    fn grpc_message_is_percent_encoded() {
        assert_eq!(percent_encoded("50% of\n\u{fc}"), "50%25 of%0A%C3%BC");
    }
}
