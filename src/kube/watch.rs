//! Watch: changes as the apiserver sends them, one JSON line each.

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::KubeError;

/// The longest line taken: one object and some words around it.
const LONGEST: usize = 8 << 20;

/// One change of a watched list.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchedChange<T = Value> {
    /// An object is new, or has changed.
    Changed(T),
    /// An object is gone.
    Gone(T),
    /// Nothing has changed up to this revision.
    Bookmark(String),
    /// The revision we began at is forgotten: list anew.
    Expired,
}

/// Changes from one revision on, until the apiserver ends the answer, as it does after the time it was asked for.
#[derive(Debug)]
pub struct Watch {
    body: Body,
    read: BytesMut,
    server: String,
    path: String,
}

impl Watch {
    pub(super) fn new(body: Body, server: String, path: String) -> Self {
        Self { body, read: BytesMut::new(), server, path }
    }

    /// The next change; `None` when the apiserver has ended the answer.
    ///
    /// # Errors
    /// Nonsense, or a connection that broke.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<WatchedChange<T>>, KubeError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end);
                self.read.advance(1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return event(&line).map(Some).map_err(|cause| self.nonsense(cause));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(self.nonsense(error.to_string())),
                None => return Ok(None),
            }
            if self.read.len() > LONGEST {
                return Err(self.nonsense(format!("a line is longer than {LONGEST} bytes")));
            }
        }
    }

    fn nonsense(&self, cause: String) -> KubeError {
        KubeError::Nonsense { server: self.server.clone(), path: self.path.clone(), cause }
    }
}

/// Source: `metav1.WatchEvent`.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

fn event<T: DeserializeOwned>(line: &[u8]) -> Result<WatchedChange<T>, String> {
    fn read<T: DeserializeOwned>(object: Option<&RawValue>) -> Result<T, String> {
        let text = object.map_or("null", RawValue::get);
        serde_json::from_str(text).map_err(|error| format!("no object (column {})", error.column()))
    }
    let no_json = |error: serde_json::Error| format!("no JSON (column {})", error.column());
    let Line { kind, object } = serde_json::from_slice(line).map_err(no_json)?;
    match &*kind {
        "ADDED" | "MODIFIED" => read(object).map(WatchedChange::Changed),
        "DELETED" => read(object).map(WatchedChange::Gone),
        "BOOKMARK" => match read::<Value>(object)?.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(revision) => Ok(WatchedChange::Bookmark(revision.to_owned())),
            None => Err("a bookmark has no revision".to_owned()),
        },
        "ERROR" if read::<Value>(object)?.get("code").and_then(Value::as_u64) == Some(410) => {
            Ok(WatchedChange::Expired)
        }
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
