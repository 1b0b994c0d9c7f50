//! Metadata: objects by their metadata alone, and what is done to one of them only while it is the same.

use std::time::Duration;

use http::{Method, header::DATE};
use serde_json::{Value, json};

use super::{
    KubeClient, KubeError, List, Watch,
    client::{PAGE, PATIENCE, labels, percent_encoded},
    pages::Pages,
};

/// Form in which an apiserver leaves out of a list all but metadata.
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The same of the objects of a watch.
const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Part of a list of metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataPage {
    /// The revision of the store that it is from.
    pub revision: String,
    /// Objects, their metadata alone.
    pub items: Vec<Value>,
    /// Token of the next page; none after the last.
    pub next: Option<String>,
    /// Time by the apiserver's clock, in seconds since 1970, where it says so.
    pub now: Option<i64>,
}

impl KubeClient {
    /// One page of the metadata of everything below `path` that the label selector selects, read from the store itself: the
    /// first, or that of a token.
    ///
    /// # Errors
    /// As [`KubeClient::list`]; it is [`KubeError::Refused`] with code 410 where the token has expired.
    pub async fn metadata_page(
        &self,
        path: &str,
        selector: &str,
        token: Option<&str>,
    ) -> Result<MetadataPage, KubeError> {
        let token = token.map(|token| format!("&continue={}", percent_encoded(token))).unwrap_or_default();
        let at = format!("{path}?limit={PAGE}{}{token}", labels(selector));
        let asking = async {
            let answer = self.send_for(&at, LIST, None).await?;
            let now = answer.headers().get(DATE).and_then(|date| seconds(date.to_str().ok()?));
            Ok::<_, KubeError>((self.parsed(path, answer).await?, now))
        };
        let (page, now) = tokio::time::timeout(PATIENCE, asking).await.map_err(|_| self.late())??;
        let mut pages = Pages::default();
        let next = pages.add(page).map_err(|cause| self.nonsense(path, cause))?;
        let List { revision, items } = pages.into_list();
        Ok(MetadataPage { revision, items, next, now })
    }

    /// Changes of the metadata of what the label selector selects. An object that it selects no longer is gone.
    ///
    /// # Errors
    /// As [`KubeClient::watch`].
    pub async fn watch_metadata(
        &self,
        path: &str,
        selector: &str,
        revision: &str,
        lasting: Duration,
    ) -> Result<Watch, KubeError> {
        let (revision, seconds, selector) = (percent_encoded(revision), lasting.as_secs(), labels(selector));
        let query = "watch=1&allowWatchBookmarks=true";
        let at = format!("{path}?{query}&timeoutSeconds={seconds}&resourceVersion={revision}{selector}");
        let opening = async {
            let answer = self.send_for(&at, OBJECT, None).await?;
            match answer.status().is_success() {
                true => Ok(Watch::new(answer.into_body(), self.server().to_owned(), path.to_owned())),
                false => Err(self.refused(path, answer).await),
            }
        };
        tokio::time::timeout(PATIENCE, opening).await.map_err(|_| self.late())?
    }

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
fn seconds(date: &str) -> Option<i64> {
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
