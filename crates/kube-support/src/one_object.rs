//! One object: reads and watches of a single object, in whatever form somebody else asks for it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::de::DeserializeOwned;

use super::{
    KubeClient, KubeError, Watch,
    client::{PATIENCE, percent_encoded},
};
use gatepost_wire::object_head::{ObjectHead, Wanted};

/// Form in which an apiserver leaves out all but metadata.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// An apiserver's answer, unread.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// Status.
    pub status: StatusCode,
    /// Type of its content.
    pub content_type: Option<HeaderValue>,
    /// Content.
    pub body: Bytes,
}

impl KubeClient {
    /// The answer to a GET of the object of that name among those at `path`, in the form that `accept` asks for, whatever
    /// its status.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn read_as(&self, path: &str, name: &str, accept: &str) -> Result<RawAnswer, KubeError> {
        let at = format!("{path}/{}", percent_encoded(name));
        let reading = async {
            let answer = self.send_for(&at, accept, None).await?;
            let (status, content_type) = (answer.status(), answer.headers().get(CONTENT_TYPE).cloned());
            Ok(RawAnswer { status, content_type, body: self.whole(&at, answer).await? })
        };
        tokio::time::timeout(PATIENCE, reading).await.map_err(|_| self.late())?
    }

    /// Head of the object of that name among those at `path`; `None` if there is none.
    ///
    /// # Errors
    /// As [`KubeClient::get`].
    pub async fn find_head(&self, path: &str, name: &str, wanted: Wanted<'_>) -> Result<Option<ObjectHead>, KubeError> {
        let at = format!("{path}/{}", percent_encoded(name));
        let reading = async {
            let answer = self.send_for(&at, METADATA, None).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            if !answer.status().is_success() {
                return Err(self.refused(&at, answer).await);
            }
            let text = self.whole(&at, answer).await?;
            match ObjectHead::of_json(&text, wanted) {
                Some(head) => Ok(Some(head)),
                None => Err(self.nonsense(&at, "it is no object with a uid".to_owned())),
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.map_err(|_| self.late())?
    }

    /// Metadata of the object of that name among those at `path`, read only for what `T` has: what is nested deep elsewhere
    /// does not matter. `None` if there is none.
    ///
    /// # Errors
    /// As [`KubeClient::get`].
    pub async fn find_metadata_as<T>(&self, path: &str, name: &str) -> Result<Option<T>, KubeError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let at = format!("{path}/{}", percent_encoded(name));
        let reading = async {
            let answer = self.send_for(&at, METADATA, None).await?;
            match answer.status() {
                StatusCode::NOT_FOUND => Ok(None),
                _ => self.parsed(&at, answer).await.map(Some),
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.map_err(|_| self.late())?
    }

    /// Changes of the metadata of the object of that name among those at `path`, from `revision` on.
    ///
    /// # Errors
    /// As [`KubeClient::watch`].
    pub async fn watch_object(
        &self,
        path: &str,
        name: &str,
        revision: &str,
        lasting: Duration,
    ) -> Result<Watch, KubeError> {
        let field = percent_encoded(&format!("metadata.name={name}"));
        let (revision, seconds) = (percent_encoded(revision), lasting.as_secs().max(1));
        let at = format!("{path}?watch=1&fieldSelector={field}&resourceVersion={revision}&timeoutSeconds={seconds}");
        self.open_watch(&at, METADATA).await
    }
}
