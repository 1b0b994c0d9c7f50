//! Sidecar: what is asked of Gatepost. Whoever of several does not answer is passed over.

use std::time::Duration;

use gatepost::wire::pb::{
    gatepost::v1::{
        HoldRequest, HoldResponse, QuotaPhaseRequest, QuotaPhaseResponse, ReadPolicyRequest, ReadPolicyResponse,
        admission_client::AdmissionClient, initialization_client::InitializationClient,
    },
    k8s::io::api::{
        admission::v1::{AdmissionRequest, AdmissionResponse, AdmissionReview},
        authentication::v1::UserInfo,
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

/// All replicas of Gatepost.
#[derive(Clone, Debug)]
pub(crate) struct Sidecars(Vec<Channel>);

impl Sidecars {
    pub(crate) fn new(urls: &[String]) -> Result<Self, Failure> {
        let lazily =
            |url: &String| -> Result<Channel, Failure> { Ok(Channel::from_shared(url.clone())?.connect_lazy()) };
        Ok(Self(urls.iter().map(lazily).collect::<Result<_, Failure>>()?))
    }

    pub(crate) fn channels(&self) -> &[Channel] {
        &self.0
    }

    /// A review. Without a verdict nothing is written.
    pub(crate) async fn review(
        &self,
        request: &AdmissionRequest,
        validate: bool,
    ) -> Result<AdmissionResponse, Refusal> {
        let mut last = None;
        for channel in &self.0 {
            let review = AdmissionReview { request: Some(request.clone()), response: None };
            let mut request = Request::new(review);
            request.set_timeout(REVIEW);
            if let Ok(stored) = "stored".parse() {
                request.metadata_mut().insert("gatepost-unfinished", stored);
            }
            let mut client = AdmissionClient::new(channel.clone());
            let answer = if validate { client.validate(request).await } else { client.review(request).await };
            match answer.map(|answer| answer.into_inner().response) {
                Ok(Some(response)) if response.allowed() => return Ok(response),
                Ok(Some(response)) => return Err(response.status.unwrap_or_default().into()),
                Ok(None) => last = Some("an answer without a response".to_owned()),
                Err(status) => last = Some(status.to_string()),
            }
        }
        let why = last.unwrap_or_else(|| "there is none".to_owned());
        Err(Refusal::new(500, "InternalError", format!("Internal error occurred: no verdict of Gatepost: {why}")))
    }

    /// Policy of a read; it hides unfinished objects where no replica answers.
    pub(crate) async fn read_policy(&self, request: ReadPolicyRequest) -> ReadPolicyResponse {
        for channel in &self.0 {
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
        for channel in &self.0 {
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
            for channel in &self.0 {
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
    UserInfo {
        username: creator["username"].as_str().map(str::to_owned),
        uid: creator["uid"].as_str().map(str::to_owned),
        groups: texts(&creator["groups"]),
        ..UserInfo::default()
    }
}
