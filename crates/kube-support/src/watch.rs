//! Watches: changes sent by an apiserver, one JSON line each.

use std::borrow::Cow;

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use crate::{
    KubeClient, KubeError,
    client::{MAX_OBJECT_BYTES, fault, without_query},
};

/// Maximum length of a line, in bytes: one object and the text around it.
const MAX_LINE_BYTES: usize = MAX_OBJECT_BYTES + 1024;

/// One change of a watched list. The caller chooses the type of objects, such as a [`RawValue`] of any depth.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchedChange<T = Value> {
    /// An object was created or has changed.
    Changed(T),
    /// An object was deleted.
    Gone(T),
    /// All changes up to this revision were sent.
    Bookmark(String),
    /// The start revision has expired: list again.
    Expired,
}

/// Changes from one revision on, until the apiserver ends the response after the requested duration.
#[derive(Debug)]
pub struct Watch {
    body: Body,
    read: BytesMut,
    /// Number of bytes in `read` that were searched for the end of a line.
    searched: usize,
    server: String,
    path: String,
}

/// Source: `metav1.WatchEvent`.
#[derive(Deserialize)]
struct EventText<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Fields of a bookmark or an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Notice {
    metadata: NoticeMetadata,
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NoticeMetadata {
    resource_version: String,
}

impl Watch {
    pub(super) fn new(body: Body, server: String, path: String) -> Self {
        Self { body, read: BytesMut::new(), searched: 0, server, path }
    }

    /// Returns the next change; `None` after the apiserver has ended the response. Cancel safe: no data is lost.
    ///
    /// # Errors
    /// [`KubeError`] if a line is invalid or too long, or the connection breaks.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<WatchedChange<T>>, KubeError> {
        loop {
            if let Some(end) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(self.searched + end);
                self.read.advance(1);
                self.searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return event(&line).map(Some).map_err(|cause| self.invalid_response(cause));
            }
            self.searched = self.read.len();
            if self.read.len() > MAX_LINE_BYTES {
                let (server, path) = (self.server.clone(), self.path.clone());
                return Err(KubeError::TooLarge { server, path, most: MAX_LINE_BYTES });
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(KubeError::broken(&self.server, &self.path, &error.to_string())),
                None => return Ok(None),
            }
        }
    }

    fn invalid_response(&self, cause: String) -> KubeError {
        KubeError::InvalidResponse { server: self.server.clone(), path: self.path.clone(), cause }
    }
}

impl KubeClient {
    /// Opens the watch at `at`, with objects in the media type `accept`.
    pub(super) async fn open_watch(&self, at: &str, accept: &str) -> Result<Watch, KubeError> {
        self.in_time(async {
            let answer = self.send_for(at, accept, None).await?;
            let answer = self.accepted(at, answer).await?;
            Ok(Watch::new(answer.into_body(), self.server().to_owned(), without_query(at)))
        })
        .await
    }
}

fn event<T: DeserializeOwned>(line: &[u8]) -> Result<WatchedChange<T>, String> {
    let EventText { kind, object } = serde_json::from_slice(line).map_err(|error| fault(&error))?;
    let text = object.map_or("null", RawValue::get);
    let object = || serde_json::from_str(text).map_err(|error| fault(&error));
    let notice = || serde_json::from_str::<Notice>(text).unwrap_or_default();
    match &*kind {
        "ADDED" | "MODIFIED" => object().map(WatchedChange::Changed),
        "DELETED" => object().map(WatchedChange::Gone),
        "BOOKMARK" => match notice().metadata.resource_version {
            revision if revision.is_empty() => Err("a bookmark has no revision".to_owned()),
            revision => Ok(WatchedChange::Bookmark(revision)),
        },
        "ERROR" if notice().code == 410 => Ok(WatchedChange::Expired),
        "ERROR" => Err("it ends with an error".to_owned()),
        _ => Err("a change is of no known type".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn events(text: &'static str) -> Vec<Result<WatchedChange, String>> {
        let mut watch = Watch::new(Body::from(text.as_bytes().to_vec()), "s".into(), "/p".into());
        let mut events = Vec::new();
        while let Some(event) = watch.next::<Value>().await.transpose() {
            let broken = event.is_err();
            events.push(event.map_err(|error| error.to_string()));
            if broken {
                break;
            }
        }
        events
    }

    #[tokio::test]
    async fn each_line_is_a_change() {
        let outcome = events(concat!(
            "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n",
            "{\"type\":\"DELETED\",\"object\":{\"a\":2}}\n",
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n",
            "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n",
        ));
        let wanted = [
            WatchedChange::Changed(serde_json::json!({"a": 1})),
            WatchedChange::Gone(serde_json::json!({"a": 2})),
            WatchedChange::Bookmark("7".into()),
            WatchedChange::Expired,
        ];
        assert_eq!(outcome.await, wanted.map(Ok));
    }

    #[tokio::test]
    async fn nonsense_ends_the_watch_without_repeating_it() {
        for text in ["{\"type\":\"NEWS\"}\n", "secret\n", "{\"type\":\"BOOKMARK\",\"object\":{}}\n"] {
            let outcome = events(text).await;
            assert!(matches!(&outcome[..], [Err(error)] if !error.contains("secret")), "{outcome:?}");
        }
        assert_eq!(events("{\"type\":\"ADDED\"").await, [], "a line that is cut off is no change");
    }
}
