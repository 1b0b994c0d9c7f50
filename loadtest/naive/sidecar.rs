//! The service: ask every hook with its own copy, wait for all, deny when any denies.

use futures_util::future::join_all;
use tonic::{Request, Response, Status, transport::Channel};

use super::pb::{
    gatepost::v1::{admission_client::AdmissionClient, admission_server::Admission},
    k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview},
};

/// One client per hook; a clone of it is a handle on the same connection.
#[derive(Debug)]
pub(super) struct Sidecar {
    pub(super) hooks: Vec<AdmissionClient<Channel>>,
}

#[tonic::async_trait]
impl Admission for Sidecar {
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let review = request.into_inner();
        let calls = self.hooks.iter().map(|hook| {
            let (mut hook, message) = (hook.clone(), review.clone());
            async move { hook.validate(message).await }
        });
        let answers = join_all(calls).await;
        let uid = review.request.as_ref().and_then(|request| request.uid.clone());
        combine(uid, answers).map(Response::new)
    }

    async fn mutate(&self, _: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        Err(Status::unimplemented("the naive reference only reviews"))
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }
}

/// The first denial in the hooks' order, or allowed. A call that failed fails the review.
fn combine(
    uid: Option<String>,
    answers: Vec<Result<Response<AdmissionReview>, Status>>,
) -> Result<AdmissionReview, Status> {
    for answer in answers {
        let answer = answer?.into_inner().response.ok_or_else(|| Status::internal("a hook sent no response"))?;
        if answer.uid != uid {
            return Err(Status::internal("a hook answered another review"));
        }
        if answer.allowed != Some(true) {
            return Ok(AdmissionReview { request: None, response: Some(answer) });
        }
    }
    let response = AdmissionResponse { uid, allowed: Some(true), ..Default::default() };
    Ok(AdmissionReview { request: None, response: Some(response) })
}
