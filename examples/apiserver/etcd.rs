//! Etcd: the four calls that an apiserver's storage needs, over etcd's JSON gateway.

use std::error::Error;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// One etcd.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    /// HOST:PORT
    address: String,
}

/// One key, as it is or was.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Bytes,
    /// Revision of its last change.
    pub(crate) revision: i64,
}

/// One change of a key.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) revision: i64,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

impl Etcd {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.trim_start_matches("http://").to_owned() }
    }

    async fn call(&self, path: &str, body: &Value) -> Result<Incoming, Failure> {
        let io = TokioIo::new(TcpStream::connect(&self.address).await?);
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        let request = Request::post(path)
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let response = send.send_request(request).await?;
        if !response.status().is_success() {
            return Err(format!("etcd answers {} to {path}", response.status()).into());
        }
        Ok(response.into_body())
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let body = self.call(path, body).await?.collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }

    /// All keys with a prefix, and the revision at which they are so. Linearizable.
    pub(crate) async fn list(&self, prefix: &str) -> Result<(Vec<Entry>, i64), Failure> {
        let range = json!({"key": encoded(prefix), "range_end": encoded(&behind(prefix))});
        let answer = self.ask("/v3/kv/range", &range).await?;
        let entries = answer["kvs"].as_array().into_iter().flatten().map(entry).collect::<Result<_, _>>()?;
        Ok((entries, number(&answer["header"]["revision"])))
    }

    /// One key, where it is there. Linearizable.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Entry>, Failure> {
        let answer = self.ask("/v3/kv/range", &json!({"key": encoded(key)})).await?;
        answer["kvs"].get(0).map(entry).transpose()
    }

    /// Writes a key whose last change is that of `revision` (0: it is not there), or deletes it; the revision then, where it
    /// was so.
    pub(crate) async fn swap(&self, key: &str, revision: i64, value: Option<&[u8]>) -> Result<Option<i64>, Failure> {
        let (key, text) = (encoded(key), revision.to_string());
        let compare = json!([{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": text}]);
        let change = match value {
            Some(value) => json!([{"request_put": {"key": key, "value": STANDARD.encode(value)}}]),
            None => json!([{"request_delete_range": {"key": key}}]),
        };
        let answer = self.ask("/v3/kv/txn", &json!({"compare": compare, "success": change})).await?;
        Ok((answer["succeeded"] == true).then(|| number(&answer["header"]["revision"])))
    }

    /// Changes of keys with a prefix, from a revision on.
    pub(crate) async fn watch(&self, prefix: &str, from: i64) -> Result<Changes, Failure> {
        let create = json!({"create_request": {
            "key": encoded(prefix), "range_end": encoded(&behind(prefix)), "start_revision": from.to_string(), "prev_kv": true,
        }});
        Ok(Changes { body: self.call("/v3/watch", &create).await?, buffer: BytesMut::new() })
    }
}

/// Changes as they come: a line of JSON each time.
pub(crate) struct Changes {
    body: Incoming,
    buffer: BytesMut,
}

impl Changes {
    /// The next ones; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Changed>>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                let answer: Value = serde_json::from_slice(&line)?;
                let result = &answer["result"];
                if result["canceled"] == true || !answer["error"].is_null() {
                    return Ok(None);
                }
                return result["events"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(changed)
                    .collect::<Result<_, _>>()
                    .map(Some);
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => self.buffer.extend(frame.into_data().ok()),
                None => return Ok(None),
            }
        }
    }
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The first key behind all with that prefix, which ends with a slash.
fn behind(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

/// The gateway writes 64 bits as a text.
fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn entry(kv: &Value) -> Result<Entry, Failure> {
    let bytes = |key: &str| STANDARD.decode(kv[key].as_str().unwrap_or_default());
    let revision = number(&kv["mod_revision"]);
    Ok(Entry { key: String::from_utf8(bytes("key")?)?, value: bytes("value")?.into(), revision })
}

fn changed(event: &Value) -> Result<Changed, Failure> {
    let kv = entry(&event["kv"])?;
    let before = event.get("prev_kv").filter(|kv| kv.is_object()).map(entry).transpose()?;
    let gone = event["type"] == "DELETE";
    Ok(Changed { revision: kv.revision, before, after: (!gone).then_some(kv) })
}
