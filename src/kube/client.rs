//! Client: questions to one apiserver.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde_json::Value;

use super::{Access, KubeError, List, pages::Pages};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects asked for at a time.
const PAGE: usize = 500;
/// The largest answer taken; far more than any page of configuration.
const LARGEST: usize = 64 << 20;
/// The most of an apiserver's message that is told.
const LONGEST_MESSAGE: usize = 300;

/// Questions to one apiserver.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    server: String,
}

impl std::fmt::Debug for Client {
    /// Never shows credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads address and credentials, and asks an exec plugin for them where there is one. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KubeError::Access`].
    pub async fn open(access: &Access) -> Result<Self, KubeError> {
        let config = access.config().await?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let inner = kube::Client::try_from(config).map_err(|error| KubeError::call(&server, &error))?;
        Ok(Self { inner, server })
    }

    /// The apiserver's address, as the kubeconfig has it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Everything below `path`, at one revision, read from the store itself: no resourceVersion is sent, so that no
    /// cache may answer with the past.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn list(&self, path: &str) -> Result<List, KubeError> {
        match self.pages(path, PAGE).await {
            // The token outlived the revision (compaction). One answer without pages cannot.
            Err(KubeError::Refused { code: 410, .. }) => self.pages(path, 0).await,
            other => other,
        }
    }

    async fn pages(&self, path: &str, limit: usize) -> Result<List, KubeError> {
        let mut pages = Pages::default();
        let mut at = format!("{path}?limit={limit}");
        loop {
            let page = pages.add(self.get(&at).await?).map_err(|cause| self.nonsense(path, cause))?;
            match page {
                Some(token) => at = format!("{path}?limit={limit}&continue={}", percent_encoded(&token)),
                None => return Ok(pages.into_list()),
            }
        }
    }

    /// The JSON at `path`.
    ///
    /// # Errors
    /// Why there is none; a status other than 2xx is [`KubeError::Refused`].
    pub async fn get(&self, path: &str) -> Result<Value, KubeError> {
        let late = |_| KubeError::Late { server: self.server.clone(), patience: PATIENCE };
        tokio::time::timeout(PATIENCE, self.answer(path)).await.map_err(late)?
    }

    async fn answer(&self, path: &str) -> Result<Value, KubeError> {
        let request = Request::get(path).header("accept", "application/json").body(Body::empty());
        let request = request.map_err(|error| self.nonsense(path, error.to_string()))?;
        let answer = self.inner.send(request).await.map_err(|error| KubeError::call(&self.server, &error))?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        // Not `request_text`: it would read without end, and log what it cannot parse.
        let body = body.map_err(|error| self.nonsense(path, error.to_string()))?.to_bytes();
        let json = serde_json::from_slice(&body);
        if !code.is_success() {
            let status = json.as_ref().ok().and_then(|status: &Value| status.get("message")?.as_str());
            let message = status.or(code.canonical_reason()).unwrap_or("no reason given");
            let message = message.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect();
            let path = without_query(path);
            return Err(KubeError::Refused { server: self.server.clone(), code: code.as_u16(), path, message });
        }
        json.map_err(|error| self.nonsense(path, format!("no JSON (line {}, column {})", error.line(), error.column())))
    }

    fn nonsense(&self, path: &str, cause: String) -> KubeError {
        KubeError::Nonsense { server: self.server.clone(), path: without_query(path), cause }
    }
}

fn without_query(path: &str) -> String {
    path.split('?').next().unwrap_or(path).to_owned()
}

/// Fit for a query: whatever is not unreserved is written as `%XX`.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_token_is_fit_for_a_query() {
        assert_eq!(super::percent_encoded("aZ0-._~+/=&é"), "aZ0-._~%2B%2F%3D%26%C3%A9");
    }
}
