//! Backend: a hook as `dispatch.json` describes it, listening on a port of its own.

use std::collections::BTreeMap;

use gatepost_api::{Endpoint, ReviewVersion, Transport, hook::Address};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::verify_response::encode_patch;
use crate::support::http_hook::{HttpHook, HttpScript};

/// Behaviour of a hook.
#[derive(Clone)]
pub(crate) enum Backend {
    /// Answers with this HTTP status and text.
    Status(u16, String),
    /// Answers with a review that has this response, or none.
    Review(Option<Map<String, Value>>),
    /// Writes these bytes and hangs up.
    Raw(String),
}

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut written = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let mut take = |key: &str| written.remove(key);
        let backend = if let Some(status) = take("http_status") {
            let text: String = serde_json::from_value(take("text").unwrap_or_default()).map_err(Error::custom)?;
            Self::Status(serde_json::from_value(status).map_err(Error::custom)?, text)
        } else if let Some(bytes) = take("raw_bytes_then_close") {
            Self::Raw(serde_json::from_value(bytes).map_err(Error::custom)?)
        } else if let Some(mut response) = take("response") {
            encode_patch(&mut response).map_err(Error::custom)?;
            Self::Review(serde_json::from_value(response).map_err(Error::custom)?)
        } else {
            return Err(Error::custom("a backend that does nothing known"));
        };
        match written.into_keys().next() {
            None => Ok(backend),
            Some(key) => Err(Error::custom(format!("unknown field `{key}` of a backend"))),
        }
    }
}

/// A running backend. It ends with its handle.
pub(crate) enum Played {
    Http(HttpHook),
    Raw(Endpoint, JoinHandle<()>),
    /// There is no address at which it could be called.
    Nowhere,
}

impl Played {
    /// Plays it to who asks in the first of these versions that is known.
    pub(crate) async fn start(backend: &Backend, versions: &[String]) -> Result<Self, String> {
        let version = ReviewVersion::choose(versions);
        let script = match backend {
            Backend::Raw(bytes) => return Ok(Self::raw(bytes.clone()).await),
            Backend::Status(status, text) => HttpScript::Reply(*status, Vec::new(), text.clone().into()),
            // In v1 the answer names its type and the request's uid, which the script fills in.
            Backend::Review(Some(response)) if version == Some(ReviewVersion::V1) => {
                HttpScript::Respond(Value::Object(response.clone()))
            }
            Backend::Review(None) if version == Some(ReviewVersion::V1) => {
                said(&json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": null}))
            }
            // In v1beta1 the vectors' answers are what they are written as.
            Backend::Review(response) => said(&json!({"response": response})),
        };
        Ok(Self::Http(HttpHook::plain(script).await))
    }

    async fn raw(bytes: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let address = Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
        let server = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let bytes = bytes.clone();
                tokio::spawn(async move {
                    // It answers once it was asked anything.
                    if socket.read(&mut [0; 1024]).await.is_ok() {
                        let _ = socket.write_all(bytes.as_bytes()).await;
                        let _ = socket.shutdown().await;
                    }
                });
            }
        });
        Self::Raw(Endpoint { address, tls: None, transport: Transport::Http, authorization: None }, server)
    }

    /// Endpoint of the hook.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self {
            Self::Http(hook) => hook.endpoint(),
            Self::Raw(endpoint, _) => endpoint.clone(),
            // No file has this name.
            Self::Nowhere => Endpoint {
                address: Address::Unix("/dev/null/nowhere".into()),
                tls: None,
                transport: Transport::Http,
                authorization: None,
            },
        }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        if let Self::Raw(_, server) = self {
            server.abort();
        }
    }
}

fn said(review: &Value) -> HttpScript {
    HttpScript::Reply(200, vec![("content-type", "application/json".into())], review.to_string().into())
}
