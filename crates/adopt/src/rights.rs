//! The cluster whose authorizer match conditions ask: its identity, and whether Gatepost may ask it.

use std::time::Duration;

use gatepost_kube_support::{KubeAccess, KubeError, ReloadingClient};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

/// Time for which an answer is cached.
const CACHE_DURATION: Duration = Duration::from_secs(15);
/// Timeout of one request: the leader's lease has to be renewed meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const SELF_REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Object whose uid identifies a cluster, as for the source.
const CLUSTER: &str = "/api/v1/namespaces/kube-system?resourceVersion=0";

/// The authorizer's cluster.
#[derive(Debug)]
pub(crate) struct Authorizer {
    connection: ReloadingClient,
    /// Cached answer and its time: access reviews may be created, or the reason why not.
    may_review: Option<(Instant, Result<(), String>)>,
    /// uid of the cluster.
    cluster: Option<String>,
}

impl Authorizer {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub(crate) async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        Ok(Self { connection: ReloadingClient::new(access).await?, may_review: None, cluster: None })
    }

    /// Reason why no access reviews can be created, asked again every [`CACHE_DURATION`]. If that fails, the former answer
    /// stays.
    pub(crate) async fn no_reviews(&mut self) -> Option<String> {
        if self.may_review.as_ref().is_none_or(|(at, _)| at.elapsed() >= CACHE_DURATION) {
            let before = self.may_review.take().map(|(_, known)| known);
            let answer = match timeout(REQUEST_TIMEOUT, self.review()).await {
                Ok(Ok(answer)) => Ok(verdict(&answer)),
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
            self.may_review = Some((Instant::now(), known));
        }
        self.may_review.as_ref().and_then(|(_, known)| known.clone().err())
    }

    /// uid of the authorizer's cluster if it differs from this one; `None` also if it cannot be read.
    pub(crate) async fn other_cluster(&mut self, uid: &str) -> Option<&str> {
        if self.cluster.is_none() {
            let reading = async { self.connection.client().await?.get(CLUSTER).await };
            let object = timeout(REQUEST_TIMEOUT, reading).await.ok().and_then(Result::ok)?;
            self.cluster = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        }
        self.cluster.as_deref().filter(|other| *other != uid)
    }

    async fn review(&mut self) -> Result<Value, KubeError> {
        let attributes = json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "verb": "create"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        self.connection.client().await?.create(SELF_REVIEW, &review).await
    }
}

fn verdict(answer: &Value) -> Result<(), String> {
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
        assert_eq!(verdict(&json!({"status": {"allowed": true}})), Ok(()));
        for answer in [json!({"status": {"allowed": false}}), json!({"status": {}}), json!({})] {
            assert!(verdict(&answer).is_err());
        }
    }
}
