//! Access to the authorizer that match conditions query: Gatepost's permission to query it, and the identity of its
//! cluster.

use std::time::Duration;

use gatepost_kube_support::{KubeAccess, KubeError, ReloadingClient};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

/// Time for which a result is cached.
const CACHE_DURATION: Duration = Duration::from_secs(15);
/// Timeout of one request. It is short because the leader must renew its lease meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const SELF_REVIEW_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Object whose uid identifies a cluster. The source reads the same object.
const CLUSTER_PATH: &str = "/api/v1/namespaces/kube-system?resourceVersion=0";

/// Gatepost's access to the authorizer that match conditions query.
#[derive(Debug)]
pub(crate) struct AuthorizerAccess {
    connection: ReloadingClient,
    /// Cached result and its time: `Ok` if access reviews may be created, or the reason why not.
    permission: Option<(Instant, Result<(), String>)>,
    /// uid of the authorizer's cluster, once read.
    cluster: Option<String>,
}

impl AuthorizerAccess {
    /// Creates the access without connecting.
    ///
    /// # Errors
    /// Fails if the address or the credentials cannot be read.
    pub(crate) async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        Ok(Self { connection: ReloadingClient::new(access).await?, permission: None, cluster: None })
    }

    /// Returns the reason why no access reviews can be created; `None` if they can. The result is cached for
    /// [`CACHE_DURATION`]. If a request fails, the former result is kept.
    pub(crate) async fn no_access_review_reason(&mut self) -> Option<String> {
        if self.permission.as_ref().is_none_or(|(at, _)| at.elapsed() >= CACHE_DURATION) {
            let before = self.permission.take().map(|(_, known)| known);
            let answer = match timeout(REQUEST_TIMEOUT, self.review_own_access()).await {
                Ok(Ok(answer)) => Ok(review_result(&answer)),
                Ok(Err(error)) => {
                    self.connection.failed(&error);
                    Err(error.to_string())
                }
                Err(_) => Err(format!("no answer from {}", self.connection.server())),
            };
            let known = match (answer, before) {
                (Ok(known), _) | (Err(_), Some(known)) => known,
                (Err(why), None) => return Some(why),
            };
            self.permission = Some((Instant::now(), known));
        }
        self.permission.as_ref().and_then(|(_, known)| known.clone().err())
    }

    /// Returns the uid of the authorizer's cluster if it differs from `uid`; `None` also if it cannot be read.
    pub(crate) async fn other_cluster(&mut self, uid: &str) -> Option<&str> {
        if self.cluster.is_none() {
            let reading = async { self.connection.client().await?.get(CLUSTER_PATH).await };
            let object = timeout(REQUEST_TIMEOUT, reading).await.ok().and_then(Result::ok)?;
            self.cluster = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        }
        self.cluster.as_deref().filter(|other| *other != uid)
    }

    async fn review_own_access(&mut self) -> Result<Value, KubeError> {
        let attributes = json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "verb": "create"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        self.connection.client().await?.create(SELF_REVIEW_PATH, &review).await
    }
}

fn review_result(answer: &Value) -> Result<(), String> {
    match answer.pointer("/status/allowed") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err("it may not create subjectaccessreviews".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_reviews_are_possible_only_if_allowed() {
        assert_eq!(review_result(&json!({"status": {"allowed": true}})), Ok(()));
        for answer in [json!({"status": {"allowed": false}}), json!({"status": {}}), json!({})] {
            assert!(review_result(&answer).is_err());
        }
    }
}
