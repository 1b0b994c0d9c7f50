//! Refusals: responses of the proxy in place of the apiserver's, as a Status.

use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::Value;

use super::{body::Body, cluster::ReviewError, hold::HeldObject, pool::SendError, resources::ResourcePath};
use crate::metrics::{ProxyOutcome, ProxyRefused};
use gatepost_api::initialization::{HiddenAs, HiddenObject, hidden};
use gatepost_api::{StatusCause, StatusInfo, StatusMetadata};
use gatepost_base::throttle::Throttle;
use gatepost_wire::outbound::json_status;

/// Seconds after which a client may retry.
const RETRY_AFTER_SECONDS: i32 = 1;

/// Response of the proxy in place of the apiserver's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProxyRefusal {
    code: StatusCode,
    status: Value,
    /// Whether clients may retry by themselves, as nothing was done.
    repeatable: bool,
    /// Outcome as which the request is counted.
    outcome: ProxyOutcome,
    /// Failure of the connection to the apiserver.
    cause: Option<Box<str>>,
}

impl ProxyRefusal {
    fn of(outcome: ProxyOutcome, info: &StatusInfo) -> Self {
        let code = u16::try_from(info.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
        Self::with(outcome, code, json_status(info))
    }

    /// Returns the response for an object that is not initialized.
    pub(super) fn hidden(how: HiddenAs, object: HiddenObject<'_>) -> Self {
        Self::of(ProxyOutcome::Hidden, &hidden(how, object))
    }

    /// Returns the outcome as which the request is counted.
    pub(super) fn outcome(&self) -> ProxyOutcome {
        self.outcome
    }

    /// Turns a lost apiserver into a bad request, for a client whose body ended prematurely: that is the cause.
    pub(super) fn broken_off(self) -> Self {
        match self.outcome {
            ProxyOutcome::Refused(ProxyRefused::Lost) if self.cause.is_some() => {
                let message = "the request's content ends before its end; a part of it was passed to the apiserver";
                let refusal = Self::failure(ProxyRefused::BadRequest, 400, "BadRequest", message.to_owned());
                Self { outcome: ProxyOutcome::Abandoned, ..refusal }
            }
            _ => self,
        }
    }

    /// Logs a failed connection to the apiserver.
    pub(super) fn log(&self) {
        static LINES: Throttle = Throttle::new();
        if let Some(cause) = &self.cause
            && let Some(suppressed) = LINES.pass()
        {
            tracing::warn!(error = %cause, suppressed, "a request could not be passed to the apiserver");
        }
    }

    /// Counts this refusal as the response to a held CREATE.
    pub(super) fn after_hold(self) -> Self {
        Self { outcome: ProxyOutcome::Held, ..self }
    }

    /// Returns an initializer's result unchanged. Its code becomes the HTTP status if it is an error code.
    pub(super) fn verbatim(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        let code = code.filter(|code| code.is_client_error() || code.is_server_error());
        Self::with(ProxyOutcome::Held, code, status)
    }

    fn with(outcome: ProxyOutcome, code: Option<StatusCode>, mut status: Value) -> Self {
        if let Value::Object(status) = &mut status {
            status.insert("kind".into(), "Status".into());
            status.insert("apiVersion".into(), "v1".into());
        }
        Self {
            code: code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            status,
            repeatable: false,
            outcome,
            cause: None,
        }
    }

    fn failure(counted: ProxyRefused, code: i32, reason: &str, message: String) -> Self {
        Self::of(ProxyOutcome::Refused(counted), &StatusInfo::failure(code, reason, message))
    }

    /// Refuses a client that cannot be authenticated, or not be named to the apiserver.
    pub(super) fn unauthorized(why: &str) -> Self {
        Self::failure(ProxyRefused::Unauthorized, 401, "Unauthorized", why.to_owned())
    }

    /// Refuses a request that an apiserver may interpret differently.
    pub(super) fn bad_request(why: &str) -> Self {
        let message = format!("the read proxy does not pass this request: {why}");
        Self::failure(ProxyRefused::BadRequest, 400, "BadRequest", message)
    }

    /// Refuses a method.
    pub(super) fn bad_method(why: &str) -> Self {
        let message = format!("the read proxy does not pass this request: {why}");
        Self::failure(ProxyRefused::Method, 405, "MethodNotAllowed", message)
    }

    /// Refuses a target that is too long with the added label selector.
    pub(super) fn too_long() -> Self {
        let message = "the URL is too long: the read proxy adds a label selector to it".to_owned();
        Self::failure(ProxyRefused::TooLong, 414, "BadRequest", message)
    }

    /// Refuses a tunnel, which is not a request of an API.
    pub(super) fn no_tunnel() -> Self {
        let message = "the read proxy is no way to other servers".to_owned();
        Self::failure(ProxyRefused::Method, 405, "MethodNotAllowed", message)
    }

    /// Refuses a request because a request of the proxy itself did not reach the apiserver.
    pub(super) fn unavailable() -> Self {
        let message = "the read proxy cannot reach the apiserver".to_owned();
        Self::failure(ProxyRefused::Unanswered, 503, "ServiceUnavailable", message)
    }

    /// Refuses a request that cannot be sent to the apiserver.
    fn unreachable() -> Self {
        Self { outcome: ProxyOutcome::Refused(ProxyRefused::Unreachable), ..Self::unavailable() }
    }

    /// Refuses a request for which it is unknown what it may see; nothing was done.
    pub(super) fn unanswered(why: ReviewError) -> Self {
        match why {
            ReviewError::Failed => {
                let message = "the read proxy cannot ask the apiserver who sends this, or what it may see; try again";
                let refusal = Self::failure(ProxyRefused::Unanswered, 503, "ServiceUnavailable", message.to_owned());
                Self { repeatable: true, ..refusal }
            }
            ReviewError::Busy => Self::too_many(ProxyRefused::Questions, "too many questions about users under way"),
            ReviewError::TooLarge => {
                let message =
                    "the token, or the user whom the request names, is too large for the read proxy to ask about";
                Self::failure(ProxyRefused::LargeUser, 431, "BadRequest", message.to_owned())
            }
        }
    }

    /// Reports the loss of the apiserver after a request was sent: its effect is unknown.
    pub(super) fn lost() -> Self {
        let message = "the read proxy has lost the apiserver before its answer; it may have done what was asked";
        Self::failure(ProxyRefused::Lost, 502, "InternalError", message.to_owned())
    }

    /// Refuses a request over a limit; nothing was done.
    pub(super) fn too_many(counted: ProxyRefused, what: &str) -> Self {
        let info = StatusInfo {
            code: 429,
            status: "Failure".into(),
            reason: "TooManyRequests".into(),
            message: format!("the read proxy has {what}; nothing was done, try again"),
            retry_after_seconds: RETRY_AFTER_SECONDS,
            ..StatusInfo::default()
        };
        Self { repeatable: true, ..Self::of(ProxyOutcome::Refused(counted), &info) }
    }

    /// Reports that the object in the path no longer exists.
    pub(super) fn not_found(path: &ResourcePath) -> Self {
        let object = HiddenObject {
            group: &path.group,
            resource: &path.resource,
            name: path.name.as_deref().unwrap_or_default(),
            uid: "",
            resource_version: "",
        };
        Self { outcome: ProxyOutcome::Refused(ProxyRefused::Replaced), ..Self::hidden(HiddenAs::NotFound, object) }
    }

    /// Reports that the object was replaced while it was read; nothing was done.
    pub(super) fn replaced() -> Self {
        let message = "another object has taken the name of this one while the read proxy looked at it; try again";
        let refusal = Self::failure(ProxyRefused::Replaced, 503, "ServiceUnavailable", message.to_owned());
        Self { repeatable: true, ..refusal }
    }

    /// Reports that the apiserver's response shows no object, so that its initialization is unknown.
    pub(super) fn unknown_object() -> Self {
        let message = "the read proxy cannot find the object in the apiserver's answer; a write may have been done";
        Self::failure(ProxyRefused::UnknownObject, 500, "InternalError", message.to_owned())
    }

    /// Reports that the apiserver's response is larger than any object.
    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("the read proxy looks at objects of up to {limit} bytes, and this one is larger");
        Self::failure(ProxyRefused::LargeObject, 500, "InternalError", message)
    }

    /// Reports that the object is initialized but cannot be read.
    pub(super) fn unread(path: &ResourcePath, held: &HeldObject) -> Self {
        let name = held.name();
        let message =
            format!("{} {name:?} was created and initialized, and the read proxy cannot read it", path.resource);
        Self::failure(ProxyRefused::Unread, 500, "InternalError", message)
    }

    /// Makes the refusal final: the object is already stored, so the request must not be repeated.
    pub(super) fn once_stored(self) -> Self {
        match self.repeatable {
            false => self,
            true => {
                let message = "the object was created, and the read proxy has no memory left to wait for it";
                Self::failure(ProxyRefused::Unread, 500, "InternalError", message.to_owned())
            }
        }
    }

    /// Reports that the object was deleted before it was initialized, without a reason.
    pub(super) fn deleted(path: &ResourcePath, held: &HeldObject) -> Self {
        let name = held.name();
        let message = format!("{} {name:?} was deleted before it was initialized", path.resource);
        Self::failure(ProxyRefused::Unread, 500, "InternalError", message)
    }

    /// Reports that the object exists, but its initializers have not finished in time.
    pub(super) fn timed_out(path: &ResourcePath, held: &HeldObject) -> Self {
        let (name, uid, version) = (held.name(), held.uid(), held.resource_version());
        let waits = match held.waits_for() {
            Some(initializer) => format!("initializer {initializer:?} has not finished"),
            None => "its initializers have not finished".to_owned(),
        };
        let cause = StatusCause {
            reason: "InitializationPending".into(),
            message: format!("{waits}; watch the object with uid {uid:?} from resourceVersion {version:?}"),
            field: held.waits_for().unwrap_or_default().to_owned(),
        };
        let info = StatusInfo {
            code: 504,
            status: "Failure".into(),
            reason: "Timeout".into(),
            message: format!(
                "{} {name:?} was created and is not initialized yet: {waits}; it becomes visible when they have",
                path.resource
            ),
            details_name: name.to_owned(),
            details_group: path.group.clone(),
            details_kind: path.resource.clone(),
            details_uid: uid.to_owned(),
            causes: vec![cause],
            retry_after_seconds: RETRY_AFTER_SECONDS,
            metadata: Some(Box::new(StatusMetadata {
                resource_version: version.to_owned(),
                ..StatusMetadata::default()
            })),
            ..StatusInfo::default()
        };
        Self::of(ProxyOutcome::Held, &info)
    }

    /// Returns the HTTP response.
    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::of(self.status.to_string()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Not after a timeout: client-go would repeat the CREATE, which conflicts with its own object.
        if self.repeatable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<ReviewError> for ProxyRefusal {
    fn from(why: ReviewError) -> Self {
        Self::unanswered(why)
    }
}

impl From<SendError> for ProxyRefusal {
    fn from(error: SendError) -> Self {
        let refusal = match error {
            SendError::Connect(_) => Self::unreachable(),
            SendError::Lost(_) => Self::lost(),
        };
        Self { cause: Some(error.to_string().into()), ..refusal }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(refusal: &ProxyRefusal) -> Value {
        let ProxyRefusal { code, status, .. } = refusal;
        json!([status["kind"], status["status"], status["reason"], code.as_u16()])
    }

    #[test]
    fn a_result_is_returned_as_it_was_written() {
        let result =
            json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no", "details": {"x": 1}});
        let refusal = ProxyRefusal::verbatim(result);
        assert_eq!(named(&refusal), json!(["Status", "Failure", "Forbidden", 403]));
        assert_eq!(refusal.status["details"], json!({"x": 1}));
        for odd in [json!({}), json!({"code": 200}), json!({"code": -1}), json!({"code": 99999}), json!(null)] {
            assert_eq!(ProxyRefusal::verbatim(odd).code, StatusCode::INTERNAL_SERVER_ERROR);
        }
    }

    #[test]
    fn only_what_was_not_done_is_sent_again_by_clients() {
        let retry = |refusal: ProxyRefusal| refusal.into_response().headers().contains_key(RETRY_AFTER);
        assert!(
            retry(ProxyRefusal::too_many(ProxyRefused::Holds, "many"))
                && !retry(ProxyRefusal::lost())
                && !retry(ProxyRefusal::unavailable())
        );
    }
}
