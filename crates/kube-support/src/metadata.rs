//! Metadata: times in objects and answers, and what is done to an object only while it is the same.

use http::Method;
use serde_json::{Value, json};

use super::{KubeClient, KubeError};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl KubeClient {
    /// Deletes the object at `path` while it has that uid, and what it owns after it; false where it is another one, or
    /// gone.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn delete_uid(&self, path: &str, uid: &str) -> Result<bool, KubeError> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": uid},
        });
        match self.write(Method::DELETE, path, Some("application/json"), options.to_string().into_bytes()).await {
            Ok(()) => Ok(true),
            Err(KubeError::Unwritten { code: 404 | 409, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Name of the user whom the apiserver takes us for.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn whoami(&self) -> Result<String, KubeError> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.create(WHO, &review).await?;
        let name = answer.pointer("/status/userInfo/username").and_then(Value::as_str);
        name.map(str::to_owned).ok_or_else(|| self.nonsense(WHO, "it names no user".to_owned()))
    }
}

/// The time that an HTTP date says, in seconds since 1970.
// source: RFC 9110, IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn seconds(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = date.split_ascii_whitespace().skip(1);
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    created(&format!("{year}-{month:02}-{day:0>2}T{time}Z"))
}

/// The time that a `creationTimestamp` says, in seconds since 1970.
pub fn created(timestamp: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(timestamp).ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
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
}
