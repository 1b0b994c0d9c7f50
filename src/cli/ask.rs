//! Asking a sidecar, or a hook, as an apiserver would: for commands that are callers themselves.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use crate::{
    hooks::{Channel, Method},
    model::{CallFailure, Endpoint, Step, Unreachable},
    tls,
    wire::{answer, outbound::framed, pb::k8s::io::api::admission::v1::AdmissionReview},
};

/// A connection to one endpoint, kept for many questions.
#[derive(Clone, Debug)]
pub struct ReviewClient(Arc<Channel>);

impl ReviewClient {
    /// Begins to connect, on the current runtime.
    ///
    /// # Errors
    /// `Connect` when the endpoint's certificates are unusable.
    pub fn open(endpoint: &Endpoint) -> Result<Self, CallFailure> {
        let config = |wanted| tls::client_config(wanted, endpoint.transport, &tls::SystemRoots::default());
        let tls = endpoint.tls.as_ref().map(config).transpose();
        let tls =
            tls.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Tls, format!("{error}; {}", error.fix()))))?;
        Ok(Self(Channel::open(endpoint.clone(), tls, &[Handle::current()])))
    }

    /// One question and its answer.
    ///
    /// # Errors
    /// [`CallFailure`], also for a gRPC status other than OK.
    pub async fn ask(
        &self,
        method: Method,
        review: &AdmissionReview,
        timeout: Duration,
    ) -> Result<AdmissionReview, CallFailure> {
        answer::review(self.0.ask_once(method, framed(review), timeout).await?)
    }
}

/// One question over a connection of its own.
///
/// # Errors
/// As [`ReviewClient::open`] and [`ReviewClient::ask`].
pub async fn ask(
    endpoint: &Endpoint,
    method: Method,
    review: &AdmissionReview,
    timeout: Duration,
) -> Result<AdmissionReview, CallFailure> {
    ReviewClient::open(endpoint)?.ask(method, review, timeout).await
}
