//! Sidecar: what is asked of Gatepost. A replica among several that does not answer is passed over.
//!
//! A connection carries a bounded number of calls at once. Holds, which stay, have one of their own, and so has the stream
//! of the follower: however many CREATEs are held, the reviews that complete them get through.

use std::time::Duration;

use gatepost_wire::pb::{
    gatepost::v1::{
        HoldRequest, HoldResponse, QuotaPhaseRequest, QuotaPhaseResponse, ReadPolicyRequest, ReadPolicyResponse,
        admission_client::AdmissionClient, initialization_client::InitializationClient,
    },
    k8s::io::api::{
        admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
        authentication::v1::{ExtraValue, UserInfo},
    },
};
use serde_json::Value;
use tonic::{Code, Request, Status, transport::Channel};

use crate::{etcd::Failure, refusal::Refusal};

/// Timeout of a review: initializers act in it.
const REVIEW: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(5);
/// Pause before all of them are asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// An answer, which may be a no; around it the Status where nobody answers. Only a no says anything of an object.
pub(crate) type Answered<T> = Result<Result<T, Refusal>, Refusal>;

/// Connections to one replica.
#[derive(Clone, Debug)]
struct Sidecar {
    /// Calls that are answered at once, or as fast as their initializers act.
    calls: Channel,
    holds: Channel,
    follow: Channel,
}

/// All replicas of Gatepost.
#[derive(Clone, Debug)]
pub(crate) struct Sidecars(Vec<Sidecar>);

impl Sidecars {
    pub(crate) fn new(urls: &[String]) -> Result<Self, Failure> {
        let lazily =
            |url: &String| -> Result<Channel, Failure> { Ok(Channel::from_shared(url.clone())?.connect_lazy()) };
        let sidecar = |url| Ok(Sidecar { calls: lazily(url)?, holds: lazily(url)?, follow: lazily(url)? });
        Ok(Self(urls.iter().map(sidecar).collect::<Result<_, Failure>>()?))
    }

    /// A connection to each for the follower.
    pub(crate) fn followed(&self) -> impl Iterator<Item = Channel> {
        self.0.iter().map(|sidecar| sidecar.follow.clone())
    }

    /// A review. Without a verdict nothing is written.
    pub(crate) async fn review(&self, request: &AdmissionRequest, validate: bool) -> Answered<AdmissionResponse> {
        let mut last = None;
        for Sidecar { calls: channel, .. } in &self.0 {
            let review = AdmissionReview { request: Some(request.clone()), response: None };
            let mut request = Request::new(review);
            request.set_timeout(REVIEW);
            if let Ok(stored) = "stored".parse() {
                request.metadata_mut().insert("gatepost-unfinished", stored);
            }
            let mut client = AdmissionClient::new(channel.clone());
            let answer = if validate { client.validate(request).await } else { client.review(request).await };
            match answer.map(|answer| answer.into_inner().response) {
                Ok(Some(response)) if response.allowed() => return Ok(Ok(response)),
                Ok(Some(response)) => return Ok(Err(response.status.unwrap_or_default().into())),
                Ok(None) => last = Some("an answer without a response".to_owned()),
                Err(status) => last = Some(status.to_string()),
            }
        }
        let why = last.unwrap_or_else(|| "there is none".to_owned());
        Err(Refusal::new(500, "InternalError", format!("Internal error occurred: no verdict of Gatepost: {why}")))
    }

    /// Policy of a read; it hides unfinished objects where no replica answers.
    pub(crate) async fn read_policy(&self, request: ReadPolicyRequest) -> ReadPolicyResponse {
        for Sidecar { calls: channel, .. } in &self.0 {
            let mut asked = Request::new(request.clone());
            asked.set_timeout(SHORT);
            if let Ok(answer) = InitializationClient::new(channel.clone()).read_policy(asked).await {
                return answer.into_inner();
            }
        }
        ReadPolicyResponse::default()
    }

    /// Which quota a write charges.
    pub(crate) async fn quota_phase(&self, request: QuotaPhaseRequest) -> Result<QuotaPhaseResponse, Refusal> {
        let mut last = None;
        for Sidecar { calls: channel, .. } in &self.0 {
            let mut asked = Request::new(request);
            asked.set_timeout(SHORT);
            match InitializationClient::new(channel.clone()).quota_phase(asked).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => last = Some(status),
            }
        }
        let why = last.map(|status| status.to_string()).unwrap_or_default();
        Err(Refusal::new(500, "InternalError", format!("Internal error occurred: no quota of Gatepost: {why}")))
    }

    /// The end of an object's initialization, within that time; none where nobody says.
    pub(crate) async fn hold(&self, request: &HoldRequest, within: Duration) -> Option<HoldResponse> {
        let until = tokio::time::Instant::now() + within;
        loop {
            for Sidecar { holds: channel, .. } in &self.0 {
                let left = until.saturating_duration_since(tokio::time::Instant::now());
                if left.is_zero() {
                    return None;
                }
                let mut asked = Request::new(request.clone());
                asked.set_timeout(left);
                match InitializationClient::new(channel.clone()).hold(asked).await {
                    Ok(answer) => return Some(answer.into_inner()),
                    Err(status) if is_final(&status) => return None,
                    // It is about to end, or is not there: the next one, or the same once more.
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        }
    }
}

fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::Unimplemented)
}

/// A user as a review has it.
pub(crate) fn user_of(creator: &Value) -> UserInfo {
    let texts =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let extra = |(key, values): (&String, &Value)| (key.clone(), ExtraValue { items: texts(values) });
    UserInfo {
        username: creator["username"].as_str().map(str::to_owned),
        uid: creator["uid"].as_str().map(str::to_owned),
        groups: texts(&creator["groups"]),
        extra: creator["extra"].as_object().into_iter().flatten().map(extra).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_creator_is_the_same_user_as_of_the_create() {
        let user =
            user_of(&json!({"username": "ann", "uid": "1", "groups": ["a", "b"], "extra": {"scopes": ["x", "y"]}}));
        assert_eq!((user.username(), user.uid(), &*user.groups), ("ann", "1", &["a".to_owned(), "b".to_owned()][..]));
        assert_eq!(user.extra["scopes"].items, ["x", "y"]);
    }
}
