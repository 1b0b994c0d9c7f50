//! Client: questions to one apiserver.

use std::time::Duration;

use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Config, client::Body};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{KubeAccess, KubeError, plugin};

/// Largest item that is kept. An apiserver stores no object of that size.
pub(super) const MAX_OBJECT: usize = 8 << 20;

/// Objects larger than this are read on a thread of their own: whoever asks may have callers to accept, too.
pub(super) const BIG: usize = 256 << 10;

/// Timeout of one answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Accepted form of whole objects.
pub(super) const WHOLE: &str = "application/json";
/// The largest answer taken that is one object or document; an apiserver stores none of that size.
const LARGEST: usize = 8 << 20;
/// Longest part of an apiserver's message that is shown.
const LONGEST_MESSAGE: usize = 300;

/// Questions to one apiserver.
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
    /// Reads address and credentials, and asks an exec plugin for them where there is one. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KubeError::Access`].
    pub async fn open(access: &KubeAccess) -> Result<Self, KubeError> {
        Self::of(access.config().await?)
    }

    /// The same, of settings that were read already.
    pub(super) fn of(mut config: Config) -> Result<Self, KubeError> {
        plugin::keep(&mut config);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let inner = kube::Client::try_from(config).map_err(|error| KubeError::call(&server, &error))?;
        Ok(Self { inner, server })
    }

    /// The apiserver's address, as the kubeconfig has it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The JSON at `path`.
    ///
    /// # Errors
    /// [`KubeError`]; it is [`KubeError::Refused`] for a status other than 2xx.
    pub async fn get(&self, path: &str) -> Result<Value, KubeError> {
        tokio::time::timeout(ANSWER_TIMEOUT, self.answer(path)).await.map_err(|_| self.late())?
    }

    /// The JSON at `path` in the form that `accept` asks for, and its tag; `None` where it still has that tag.
    ///
    /// # Errors
    /// As [`KubeClient::get`].
    pub(super) async fn get_if_changed(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&str>,
    ) -> Result<Option<(Value, Option<String>)>, KubeError> {
        let asking = async {
            let answer = self.send_for(path, accept, tag).await?;
            if answer.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            Ok(Some((self.parsed(path, answer).await?, tag)))
        };
        tokio::time::timeout(ANSWER_TIMEOUT, asking).await.map_err(|_| self.late())?
    }

    /// The object of that name among those at `path`; `None` where the apiserver says that there is none.
    ///
    /// # Errors
    /// As [`KubeClient::get`].
    pub async fn find(&self, path: &str, name: &str) -> Result<Option<Value>, KubeError> {
        match self.get(&format!("{path}/{}", percent_encoded(name))).await {
            Ok(object) => Ok(Some(object)),
            Err(KubeError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the object at `path`, or makes it what is said here in as far as we have said something of it before
    /// (server-side apply; conflicting claims of others are taken over).
    ///
    /// # Errors
    /// [`KubeError::Unwritten`] where the apiserver refuses it, or why it could not be asked.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<(), KubeError> {
        self.apply_as("gatepost", path, object).await
    }

    /// The same in the name of that field manager: each keeps its own share of an object, and only that.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn apply_as(&self, manager: &str, path: &str, object: &Value) -> Result<(), KubeError> {
        let manager = percent_encoded(manager);
        let query = format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict");
        let body = serde_json::to_vec(object).map_err(|error| self.nonsense(path, error.to_string()))?;
        // JSON is YAML, too; apiservers before 1.32 know no other name for it.
        self.write(Method::PATCH, &query, Some("application/apply-patch+yaml"), body).await
    }

    /// Applies webhooks' conditions in the name of this field manager, and returns the object as it is then. The apiserver
    /// gives up after two seconds: whoever has written it must know by when it is done, or will not be.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn apply_conditions(&self, manager: &str, path: &str, object: &Value) -> Result<Value, KubeError> {
        let query = format!("{path}?fieldManager={manager}&force=true&timeout=2s");
        let body = object.to_string().into_bytes();
        let applying = async {
            let sent = self.send_write(Method::PATCH, &query, Some("application/apply-patch+yaml"), body).await?;
            self.parsed(path, sent).await
        };
        tokio::time::timeout(ANSWER_TIMEOUT, applying).await.map_err(|_| self.late())?
    }

    /// Deletes the object at `path`; false where there was none.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn delete(&self, path: &str) -> Result<bool, KubeError> {
        match self.write(Method::DELETE, path, None, Vec::new()).await {
            Ok(()) => Ok(true),
            Err(KubeError::Unwritten { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes the object at `path` by a patch of that content type, such as `application/merge-patch+json`. The field
    /// manager is part of the path.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn patch(&self, path: &str, content_type: &str, patch: &Value) -> Result<(), KubeError> {
        self.write(Method::PATCH, path, Some(content_type), patch.to_string().into_bytes()).await
    }

    /// Object as the apiserver has created it at `path`.
    ///
    /// # Errors
    /// As [`KubeClient::apply`].
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, KubeError> {
        let request = Request::post(path).header(ACCEPT, "application/json").header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(object.to_string().into_bytes()));
        let request = request.map_err(|error| self.nonsense(path, error.to_string()))?;
        let creating = async {
            let sent = self.inner.send(request).await.map_err(|error| KubeError::call(&self.server, &error))?;
            self.parsed(path, sent).await.map_err(|error| error.unwritten("POST"))
        };
        tokio::time::timeout(ANSWER_TIMEOUT, creating).await.map_err(|_| self.late())?
    }

    pub(super) async fn write(
        &self,
        method: Method,
        path: &str,
        form: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(), KubeError> {
        let writing = self.send_write(method, path, form, body);
        tokio::time::timeout(ANSWER_TIMEOUT, writing).await.map_err(|_| self.late())?.map(drop)
    }

    /// The answer to a write that was accepted.
    async fn send_write(
        &self,
        method: Method,
        path: &str,
        form: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Response<Body>, KubeError> {
        let mut request = Request::builder().method(method.clone()).uri(path).header("accept", "application/json");
        if let Some(form) = form {
            request = request.header("content-type", form);
        }
        let request = request.body(Body::from(body)).map_err(|error| self.nonsense(path, error.to_string()))?;
        let sent = self.inner.send(request).await.map_err(|error| KubeError::call(&self.server, &error))?;
        match sent.status().is_success() {
            true => Ok(sent),
            false => Err(self.refused(path, sent).await.unwritten(method.as_str())),
        }
    }

    async fn answer(&self, path: &str) -> Result<Value, KubeError> {
        let answer = self.send(path).await?;
        self.parsed(path, answer).await
    }

    /// The JSON of an answer that says yes.
    pub(super) async fn parsed<T>(&self, path: &str, answer: Response<Body>) -> Result<T, KubeError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        if !answer.status().is_success() {
            return Err(self.refused(path, answer).await);
        }
        let body = self.whole(path, answer).await?;
        read_json(body.into()).await.1.map_err(|fault| self.nonsense(path, fault))
    }

    /// The beginning of an answer, whatever its status.
    async fn send(&self, path: &str) -> Result<Response<Body>, KubeError> {
        self.send_for(path, WHOLE, None).await
    }

    /// The same in another form, where it does not have that tag any longer.
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
        let request = request.body(Body::empty());
        let request = request.map_err(|error| self.nonsense(path, error.to_string()))?;
        self.inner.send(request).await.map_err(|error| KubeError::call(&self.server, &error))
    }

    /// The content of an answer. Not `request_text`: it would read without end, and log what it cannot parse.
    pub(super) async fn whole(&self, path: &str, answer: Response<Body>) -> Result<Bytes, KubeError> {
        match Limited::new(answer.into_body(), LARGEST).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(KubeError::TooLarge { server: self.server.clone(), path: without_query(path), most: LARGEST })
            }
            Err(error) => Err(KubeError::broken(&self.server, &without_query(path), &error.to_string())),
        }
    }

    /// Error for an answer with a status other than 2xx.
    pub(super) async fn refused(&self, path: &str, answer: Response<Body>) -> KubeError {
        let code = answer.status();
        let said = self.whole(path, answer).await.unwrap_or_default();
        let status: Value = serde_json::from_slice(&said).unwrap_or_default();
        let message = status.get("message").and_then(Value::as_str);
        let message = message.or(code.canonical_reason()).unwrap_or("no reason given");
        let message = message.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect();
        KubeError::Refused { server: self.server.clone(), code: code.as_u16(), path: without_query(path), message }
    }

    pub(super) fn late(&self) -> KubeError {
        KubeError::Late { server: self.server.clone(), patience: ANSWER_TIMEOUT }
    }

    pub(super) fn nonsense(&self, path: &str, cause: String) -> KubeError {
        KubeError::Nonsense { server: self.server.clone(), path: without_query(path), cause }
    }
}

/// Label selector as the end of a query; nothing where it is empty.
pub(super) fn labels(selector: &str) -> String {
    match selector {
        "" => String::new(),
        selector => format!("&labelSelector={}", percent_encoded(selector)),
    }
}

/// Path of the object of that name among those at `path`.
pub fn object_path(path: &str, name: &str) -> String {
    format!("{path}/{}", percent_encoded(name))
}

fn without_query(path: &str) -> String {
    path.split('?').next().unwrap_or(path).to_owned()
}

/// Fit for a query: whatever is not unreserved is written as `%XX`.
pub(super) fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The object in a JSON text, or why it cannot be read.
///
/// # Errors
/// The place of the fault, and nothing of the text.
pub(super) async fn read_json<T: DeserializeOwned + Send + 'static>(text: Vec<u8>) -> (Vec<u8>, Result<T, String>) {
    let reading = |text: Vec<u8>| {
        let read = match text.len() > MAX_OBJECT {
            true => Err(format!("it is larger than {MAX_OBJECT} bytes")),
            false => serde_json::from_slice(&text).map_err(|error| fault(&error)),
        };
        (text, read)
    };
    if text.len() <= BIG {
        return reading(text);
    }
    let read = tokio::task::spawn_blocking(move || reading(text)).await;
    read.unwrap_or_else(|panic| (Vec::new(), Err(panic.to_string())))
}

/// Fault of a JSON text, without anything of the text.
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
