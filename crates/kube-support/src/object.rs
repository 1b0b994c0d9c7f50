//! Reads and watches of one object, timestamps of objects, and the recognition of our own registrations.

use std::time::Duration;

use bytes::Bytes;
use gatepost_api::registration::is_our_webhook;
use gatepost_wire::object_head::{ObjectHead, Wanted};
use http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    KubeClient, KubeError, Watch,
    client::{object_path, percent_encoded, unless_refused},
};

pub use gatepost_api::registration::{MANAGED_BY, webhook_suffix};

/// Media type for which an apiserver sends only the metadata of an object.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// An apiserver's response, with its body unparsed.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// `Content-Type` header.
    pub content_type: Option<HeaderValue>,
    /// Body.
    pub body: Bytes,
}

impl KubeClient {
    /// Reads the object `name` of the collection at `path` in the media type `accept`. Returns the response whatever
    /// its status.
    ///
    /// # Errors
    /// [`KubeError`] if there is no response.
    pub async fn read_as(&self, path: &str, name: &str, accept: &str) -> Result<RawAnswer, KubeError> {
        let at = object_path(path, name);
        self.in_time(async {
            let answer = self.send_for(&at, accept, None).await?;
            let (status, content_type) = (answer.status(), answer.headers().get(CONTENT_TYPE).cloned());
            Ok(RawAnswer { status, content_type, body: self.whole(&at, answer).await? })
        })
        .await
    }

    /// Returns the head of the object `name` of the collection at `path`; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`KubeClient::get`].
    pub async fn find_head(&self, path: &str, name: &str, wanted: Wanted<'_>) -> Result<Option<ObjectHead>, KubeError> {
        let at = object_path(path, name);
        self.in_time(async {
            let answer = self.send_for(&at, METADATA, None).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let answer = self.accepted(&at, answer).await?;
            let head = ObjectHead::of_json(&self.whole(&at, answer).await?, wanted);
            head.map(Some).ok_or_else(|| self.invalid_response(&at, "it is no object with a uid".to_owned()))
        })
        .await
    }

    /// Returns the metadata of the object `name` of the collection at `path`; `None` if it does not exist. Fields that
    /// `T` does not have are skipped, however deeply nested.
    ///
    /// # Errors
    /// See [`KubeClient::get`].
    pub async fn find_metadata_as<T>(&self, path: &str, name: &str) -> Result<Option<T>, KubeError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let at = object_path(path, name);
        self.in_time(async {
            let answer = self.send_for(&at, METADATA, None).await?;
            match answer.status() {
                StatusCode::NOT_FOUND => Ok(None),
                _ => self.parsed(&at, answer).await.map(Some),
            }
        })
        .await
    }

    /// Watches the metadata of the collection at `path`, or of its object `name`, from `revision` on.
    ///
    /// # Errors
    /// See [`KubeClient::get`].
    pub async fn watch_metadata(
        &self,
        path: &str,
        name: Option<&str>,
        revision: &str,
        lasting: Duration,
    ) -> Result<Watch, KubeError> {
        let field = name.map(|name| format!("&fieldSelector={}", percent_encoded(&format!("metadata.name={name}"))));
        let (revision, seconds) = (percent_encoded(revision), lasting.as_secs().max(1));
        let field = field.unwrap_or_default();
        let at = format!("{path}?watch=1{field}&resourceVersion={revision}&timeoutSeconds={seconds}");
        self.open_watch(&at, METADATA).await
    }
}

const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl KubeClient {
    /// Deletes the object at `path` if it has this uid; the objects it owns are deleted afterwards. Returns false if it
    /// is gone or has another uid.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn delete_uid(&self, path: &str, uid: &str) -> Result<bool, KubeError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": uid},
        });
        let options = options.to_string().into_bytes();
        unless_refused(self.write(Method::DELETE, path, Some("application/json"), options).await, &[404, 409])
    }

    /// Returns the user name under which the apiserver knows us.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn whoami(&self) -> Result<String, KubeError> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.create(SELF_REVIEWS, &review).await?;
        let name = answer.pointer("/status/userInfo/username").and_then(Value::as_str);
        name.map(str::to_owned).ok_or_else(|| self.invalid_response(SELF_REVIEWS, "it names no user".to_owned()))
    }
}

/// Parses an HTTP date into seconds since 1970.
// source: RFC 9110, IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn seconds(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = date.split_ascii_whitespace().skip(1);
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    created(&format!("{year}-{month:02}-{day:0>2}T{time}Z"))
}

/// Parses a `creationTimestamp` into seconds since 1970.
pub fn created(timestamp: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(timestamp).ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Returns true if this webhook configuration is our own registration. A sidecar that called it would call itself.
///
/// Matches the label or, as a package manager may have replaced the label, the names of all webhooks.
pub fn is_our_own(object: &Value) -> bool {
    let labelled = object["metadata"]["labels"][MANAGED_BY.0] == MANAGED_BY.1;
    let ours = |hook: &Value| hook["name"].as_str().is_some_and(is_our_webhook);
    let webhooks = object["webhooks"].as_array();
    labelled || webhooks.is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(ours))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_clocks_of_an_apiserver_are_read_alike() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(created("1994-11-06T08:49:37Z"), Some(784_111_777));
        for wrong in ["", "Sun, 06 Nov", "Sun, 06 Now 1994 08:49:37 GMT", "Sun, 41 Nov 1994 08:49:37 GMT"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(created("yesterday"), None);
    }

    #[test]
    fn a_registration_of_ours_is_known_by_its_label_or_its_webhooks() {
        let object = |label: &str, hooks: &[&str]| {
            let hooks: Vec<_> = hooks.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "x", "labels": {MANAGED_BY.0: label}}, "webhooks": hooks})
        };
        let (ours, second, other) = ("gatepost.validate.gatepost.dev", "g-2.validate.gatepost.dev", "a.example.com");
        assert!(is_our_own(&object("gatepost", &[other])));
        assert!(is_our_own(&object("Helm", &[ours, second])));
        assert!(is_our_own(&object("Helm", &["gatepost.mutate.gatepost.dev"])));
        assert!(!is_our_own(&object("Helm", &[ours, other])), "a hook of somebody else's must be asked");
        assert!(!is_our_own(&object("Helm", &[])));
        assert!(!is_our_own(&json!({})));
    }
}
