//! Calls to one apiserver.

use std::time::Duration;

use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
    request::Builder,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Config, client::Body};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::{KubeAccess, KubeError, plugin};

/// Maximum size of one item, in bytes. An apiserver stores no object of that size.
pub(super) const MAX_OBJECT_BYTES: usize = 8 << 20;

/// Size, in bytes, from which on an object is parsed on a blocking thread, so that the runtime can accept reviews.
pub(super) const BLOCKING_PARSE_THRESHOLD: usize = 256 << 10;

/// Timeout of one response.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Media type of whole objects.
pub(super) const WHOLE: &str = "application/json";
/// Maximum size of a response with one object or document, in bytes. An apiserver stores no object of that size.
const MAX_RESPONSE_BYTES: usize = 8 << 20;
/// Maximum length of an apiserver's message in an error, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// Client of one apiserver.
#[derive(Clone)]
pub struct KubeClient {
    inner: kube::Client,
    server: String,
}

impl std::fmt::Debug for KubeClient {
    /// Never shows credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

impl KubeClient {
    /// Reads address and credentials, and runs the exec plugin if there is one. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KubeError::Access`].
    pub async fn open(access: &KubeAccess) -> Result<Self, KubeError> {
        Self::of(access.config().await?)
    }

    /// Creates a client from settings that were already read.
    pub(super) fn of(mut config: Config) -> Result<Self, KubeError> {
        plugin::supervise(&mut config);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let inner = kube::Client::try_from(config).map_err(|error| KubeError::call(&server, &error))?;
        Ok(Self { inner, server })
    }

    /// Returns the apiserver's address, as in the kubeconfig.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the JSON at `path`.
    ///
    /// # Errors
    /// [`KubeError`]; [`KubeError::Refused`] for a status other than 2xx.
    pub async fn get(&self, path: &str) -> Result<Value, KubeError> {
        self.in_time(async { self.parsed(path, self.send_for(path, WHOLE, None).await?).await }).await
    }

    /// Returns the JSON at `path` in the media type `accept` and its `ETag`; `None` if the `ETag` is still `tag`.
    ///
    /// # Errors
    /// See [`KubeClient::get`].
    pub(super) async fn get_if_changed(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&str>,
    ) -> Result<Option<(Value, Option<String>)>, KubeError> {
        self.in_time(async {
            let answer = self.send_for(path, accept, tag).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            Ok(Some((self.parsed(path, answer).await?, tag)))
        })
        .await
    }

    /// Returns the object `name` of the collection at `path`; `None` if it does not exist.
    ///
    /// # Errors
    /// See [`KubeClient::get`].
    pub async fn find(&self, path: &str, name: &str) -> Result<Option<Value>, KubeError> {
        match self.get(&object_path(path, name)).await {
            Ok(object) => Ok(Some(object)),
            Err(KubeError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the object at `path`, or updates the fields that we applied before (server-side apply). Takes over
    /// fields that conflict with other field managers.
    ///
    /// # Errors
    /// [`KubeError::WriteRefused`] if the apiserver rejects the object; otherwise the error of the call.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<(), KubeError> {
        self.apply_as("gatepost", path, object).await
    }

    /// Applies the object as this field manager. Each field manager owns only the fields it has applied.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn apply_as(&self, manager: &str, path: &str, object: &Value) -> Result<(), KubeError> {
        let manager = percent_encoded(manager);
        let query = format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict");
        let body = serde_json::to_vec(object).map_err(|error| self.invalid_response(path, error.to_string()))?;
        // JSON is YAML, too. Apiservers before 1.32 know only this media type.
        self.write(Method::PATCH, &query, Some("application/apply-patch+yaml"), body).await
    }

    /// Applies the conditions of webhooks as this field manager, and returns the updated object. The apiserver gives up
    /// after 2 s, so that the caller knows when a write without a response has either happened or never will.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn apply_conditions(&self, manager: &str, path: &str, object: &Value) -> Result<Value, KubeError> {
        let query = format!("{path}?fieldManager={manager}&force=true&timeout=2s");
        let body = object.to_string().into_bytes();
        self.in_time(async {
            let sent = self.send_write(Method::PATCH, &query, Some("application/apply-patch+yaml"), body).await?;
            self.parsed(path, sent).await
        })
        .await
    }

    /// Deletes the object at `path`. Returns false if it does not exist.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn delete(&self, path: &str) -> Result<bool, KubeError> {
        unless_refused(self.write(Method::DELETE, path, None, Vec::new()).await, &[404])
    }

    /// Patches the object at `path`; the content type names the kind of patch, such as `application/merge-patch+json`.
    /// The field manager is part of the path.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn patch(&self, path: &str, content_type: &str, patch: &Value) -> Result<(), KubeError> {
        self.write(Method::PATCH, path, Some(content_type), patch.to_string().into_bytes()).await
    }

    /// Creates an object at `path`, and returns it as stored.
    ///
    /// # Errors
    /// See [`KubeClient::apply`].
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, KubeError> {
        let body = object.to_string().into_bytes();
        self.in_time(async {
            let sent = self.send_write(Method::POST, path, Some("application/json"), body).await?;
            self.parsed(path, sent).await
        })
        .await
    }

    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        form: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(), KubeError> {
        self.in_time(self.send_write(method, path, form, body)).await.map(drop)
    }

    /// Sends a write, and returns its response if the status is 2xx.
    async fn send_write(
        &self,
        method: Method,
        path: &str,
        form: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Response<Body>, KubeError> {
        let mut request = Request::builder().method(method.clone()).uri(path).header(ACCEPT, WHOLE);
        if let Some(form) = form {
            request = request.header(CONTENT_TYPE, form);
        }
        let sent = self.send(path, request, Body::from(body)).await?;
        self.accepted(path, sent).await.map_err(|error| error.into_write_refusal(method.as_str()))
    }

    /// Parses the JSON of a response, if its status is 2xx.
    pub(super) async fn parsed<T>(&self, path: &str, answer: Response<Body>) -> Result<T, KubeError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let answer = self.accepted(path, answer).await?;
        let body = self.whole(path, answer).await?;
        read_json(body.into()).await.1.map_err(|fault| self.invalid_response(path, fault))
    }

    /// Sends a GET for this media type. With a tag, the status is 304 if the resource still has the tag.
    pub(super) async fn send_for(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&str>,
    ) -> Result<Response<Body>, KubeError> {
        let mut request = Request::get(path).header(ACCEPT, accept);
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        self.send(path, request, Body::empty()).await
    }

    async fn send(&self, path: &str, request: Builder, body: Body) -> Result<Response<Body>, KubeError> {
        let request = request.body(body).map_err(|error| self.invalid_response(path, error.to_string()))?;
        self.inner.send(request).await.map_err(|error| KubeError::call(&self.server, &error))
    }

    /// Returns the response if its status is 2xx.
    pub(super) async fn accepted(&self, path: &str, answer: Response<Body>) -> Result<Response<Body>, KubeError> {
        if answer.status().is_success() { Ok(answer) } else { Err(self.refused(path, answer).await) }
    }

    /// Awaits `call` for at most [`ANSWER_TIMEOUT`].
    pub(super) async fn in_time<T>(&self, call: impl Future<Output = Result<T, KubeError>>) -> Result<T, KubeError> {
        let late = || KubeError::TimedOut { server: self.server.clone(), patience: ANSWER_TIMEOUT };
        timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(|_| Err(late()))
    }

    /// Reads the body of a response. kube's `request_text` would read without limit, and log what it cannot parse.
    pub(super) async fn whole(&self, path: &str, answer: Response<Body>) -> Result<Bytes, KubeError> {
        match Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(KubeError::TooLarge {
                server: self.server.clone(),
                path: without_query(path),
                most: MAX_RESPONSE_BYTES,
            }),
            Err(error) => Err(KubeError::broken(&self.server, &without_query(path), &error.to_string())),
        }
    }

    /// Returns the error for a response with a status other than 2xx.
    async fn refused(&self, path: &str, answer: Response<Body>) -> KubeError {
        let code = answer.status();
        let said = self.whole(path, answer).await.unwrap_or_default();
        let status: Value = serde_json::from_slice(&said).unwrap_or_default();
        let message = status.get("message").and_then(Value::as_str);
        let message = message.or(code.canonical_reason()).unwrap_or("no reason given");
        let message = message.chars().take(MAX_MESSAGE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        KubeError::Refused { server: self.server.clone(), code: code.as_u16(), path: without_query(path), message }
    }

    pub(super) fn invalid_response(&self, path: &str, cause: String) -> KubeError {
        KubeError::InvalidResponse { server: self.server.clone(), path: without_query(path), cause }
    }
}

/// Returns the query parameter for a label selector; "" if the selector is empty.
pub(super) fn labels(selector: &str) -> String {
    match selector {
        "" => String::new(),
        selector => format!("&labelSelector={}", percent_encoded(selector)),
    }
}

/// Returns the path of the object `name` in the collection at `path`.
pub fn object_path(path: &str, name: &str) -> String {
    format!("{path}/{}", percent_encoded(name))
}

/// Returns true if a write succeeded, and false if the apiserver rejected it with one of these codes.
pub(super) fn unless_refused<T>(written: Result<T, KubeError>, codes: &[u16]) -> Result<bool, KubeError> {
    match written {
        Ok(_) => Ok(true),
        Err(KubeError::WriteRefused { code, .. }) if codes.contains(&code) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn without_query(path: &str) -> String {
    path.split('?').next().unwrap_or(path).to_owned()
}

/// Percent-encodes all characters that are not unreserved, for use in a query.
pub(super) fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Parses an object from a JSON text. Returns the text with the object or the reason of the failure.
///
/// # Errors
/// The position of the fault, without any part of the text.
pub(super) async fn read_json<T: DeserializeOwned + Send + 'static>(text: Vec<u8>) -> (Vec<u8>, Result<T, String>) {
    let reading = |text: Vec<u8>| {
        let read = match text.len() > MAX_OBJECT_BYTES {
            true => Err(format!("it is larger than {MAX_OBJECT_BYTES} bytes")),
            false => serde_json::from_slice(&text).map_err(|error| fault(&error)),
        };
        (text, read)
    };
    if text.len() <= BLOCKING_PARSE_THRESHOLD {
        return reading(text);
    }
    let read = tokio::task::spawn_blocking(move || reading(text)).await;
    read.unwrap_or_else(|panic| (Vec::new(), Err(panic.to_string())))
}

/// Returns the position of a fault in a JSON text, without any part of the text.
pub(super) fn fault(error: &serde_json::Error) -> String {
    format!("no JSON of its kind (line {}, column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_token_is_fit_for_a_query() {
        assert_eq!(super::percent_encoded("aZ0-._~+/=&é"), "aZ0-._~%2B%2F%3D%26%C3%A9");
        assert_eq!(super::object_path("/api/v1/x", "a:b%2f"), "/api/v1/x/a%3Ab%252f");
    }
}
