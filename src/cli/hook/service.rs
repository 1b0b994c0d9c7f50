//! The trial hook's answers.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tonic::{Request, Response, Status, async_trait};

use super::deny_if::DenyIf;
use crate::wire::pb::gatepost::v1::admission_server::Admission;
use crate::wire::pb::k8s::io::{
    api::admission::v1::{AdmissionResponse, AdmissionReview},
    apimachinery::pkg::apis::meta::v1 as meta,
};

/// Behaviour of the hook.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaviour {
    pub(super) deny_if: Vec<DenyIf>,
    pub(super) delay: Duration,
    pub(super) fail_rate: f64,
    pub(super) warnings: Vec<String>,
}

/// Serves `gatepost.v1.Admission` with a [`Behaviour`].
#[derive(Debug)]
pub(super) struct Service {
    behaviour: Behaviour,
    asked: AtomicU64,
}

impl Service {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        Self { behaviour, asked: AtomicU64::new(0) }
    }

    /// Evenly spread: the n-th call fails when the share of n steps over a whole number.
    fn fails(&self, n: u64) -> bool {
        let due = |n: u64| (n as f64 * self.behaviour.fail_rate + 1e-9).floor();
        due(n + 1) > due(n)
    }

    async fn answer(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let n = self.asked.fetch_add(1, Ordering::Relaxed);
        let review = request.into_inner().request;
        let review = review.ok_or_else(|| Status::invalid_argument("the review has no request"))?;
        if !self.behaviour.delay.is_zero() {
            tokio::time::sleep(self.behaviour.delay).await;
        }
        let place = || {
            let resource = review.resource.as_ref().and_then(|resource| resource.resource.as_deref()).unwrap_or("?");
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {resource} {}/{}", text(&review.operation), text(&review.namespace), text(&review.name))
        };
        if self.fails(n) {
            log_line(&format!("{}: failing (--fail-rate)", place()));
            return Err(Status::unavailable("this hook fails by --fail-rate"));
        }
        let met = self.behaviour.deny_if.iter().find(|condition| condition.met_by(&review));
        log_line(&format!("{}: {}", place(), if met.is_some() { "no" } else { "yes" }));
        let status = met.map(|condition| meta::Status {
            status: Some("Failure".into()),
            message: Some(format!("this hook denies reviews with {condition}")),
            reason: Some("Forbidden".into()),
            code: Some(403),
            ..meta::Status::default()
        });
        let response = AdmissionResponse {
            uid: review.uid,
            allowed: Some(met.is_none()),
            status,
            warnings: self.behaviour.warnings.clone(),
            ..AdmissionResponse::default()
        };
        Ok(Response::new(AdmissionReview { request: None, response: Some(response) }))
    }
}

fn log_line(what: &str) {
    // Where stderr is closed nobody wants to know.
    let _ = writeln!(std::io::stderr(), "{what}");
}

#[async_trait]
impl Admission for Service {
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.answer(request).await
    }

    async fn mutate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.answer(request).await
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.answer(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_evenly_spread() {
        for (rate, want) in [(0.0, 0), (0.1, 10), (0.25, 25), (1.0, 100)] {
            let service = Service::new(Behaviour { fail_rate: rate, ..Behaviour::default() });
            assert_eq!((0..100).filter(|n| service.fails(*n)).count(), want, "{rate}");
        }
    }
}
