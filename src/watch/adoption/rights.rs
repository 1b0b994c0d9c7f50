//! Rights: permission to call the authorizer for conditions of webhooks, and the identity of its cluster.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::kube::{KubeAccess, KubeClient, KubeError, ReloadingClient};

/// Time for which an answer is cached.
const HOLDS: Duration = Duration::from_secs(15);
/// Timeout of one answer: the leader's lease has to be renewed meanwhile.
const WITHIN: Duration = Duration::from_secs(1);
const SELF_REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The object whose uid stands for a cluster, as `source::kubernetes` reads it.
const CLUSTER: &str = "/api/v1/namespaces/kube-system?resourceVersion=0";

/// The cluster whose authorizer is asked, and what we may do there.
#[derive(Debug)]
pub(super) struct Rights {
    connection: ReloadingClient,
    /// Cached answer and its time: access reviews may be made, or the reason why not.
    reviews: Option<(Instant, Result<(), String>)>,
    /// Its uid.
    cluster: Option<String>,
}

impl Rights {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub(super) async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        Ok(Self { connection: ReloadingClient::new(access).await?, reviews: None, cluster: None })
    }

    /// Reason why no access reviews can be made; asked again every [`HOLDS`]. Where that fails, the former answer
    /// stays.
    pub(super) async fn no_reviews(&mut self) -> Option<String> {
        if self.reviews.as_ref().is_none_or(|(at, _)| at.elapsed() >= HOLDS) {
            let before = self.reviews.take().map(|(_, known)| known);
            let answer = match timeout(WITHIN, self.ask()).await {
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
            self.reviews = Some((Instant::now(), known));
        }
        self.reviews.as_ref().and_then(|(_, known)| known.clone().err())
    }

    /// Uid of the authorizer's cluster where it differs from this one; `None` also where it cannot be read.
    pub(super) async fn other_cluster(&mut self, uid: &str) -> Option<&str> {
        if self.cluster.is_none() {
            let asking = async {
                let client = self.connection.client().await?;
                client.get(CLUSTER).await
            };
            let object = timeout(WITHIN, asking).await.ok().and_then(Result::ok)?;
            self.cluster = object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        }
        self.cluster.as_deref().filter(|other| *other != uid)
    }

    async fn ask(&mut self) -> Result<Value, KubeError> {
        let attributes = json!({"group": "authorization.k8s.io", "resource": "subjectaccessreviews", "verb": "create"});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes}});
        let client: KubeClient = self.connection.client().await?;
        client.create(SELF_REVIEW, &review).await
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
    fn only_a_yes_is_one() {
        assert_eq!(verdict(&json!({"status": {"allowed": true}})), Ok(()));
        for answer in [json!({"status": {"allowed": false}}), json!({"status": {}}), json!({})] {
            assert!(verdict(&answer).is_err());
        }
    }
}
