//! Replies over plain HTTP: a review with its verdict, or a refusal as a `metav1.Status`.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::head::Format;
use crate::front::{outgoing::Outgoing, refusal::Refusal};

/// A review that was answered.
pub(crate) fn verdict(format: Format, review: Outgoing) -> Response<Outgoing> {
    reply(StatusCode::OK, format.media_type(), review)
}

/// A refusal, and what to do about it where HTTP has a header for that.
pub(crate) fn refusal(refusal: &Refusal) -> Response<Outgoing> {
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
    let mut response = reply(status, "application/json", Bytes::from(format!("{body}\n")).into());
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn reply(status: StatusCode, kind: &'static str, body: Outgoing) -> Response<Outgoing> {
    let length = body.len();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// As `k8s.io/apimachinery/pkg/apis/meta/v1` StatusReason has it.
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
