//! Access reviews: sends the access checks of requests to the authorizer of a cluster.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    live::{Authorizer, authorizer::AccessRequest},
    telemetry::{AccessReviewOutcome, Metrics},
};
use gatepost_kube_support::{FailureLog, KubeAccess, KubeClient, KubeError, ReloadingClient};

/// Maximum number of access checks in flight; others wait within the deadlines of their requests.
const MAX_CONCURRENT_REVIEWS: usize = 64;

/// Error for the requester. The full error names the apiserver's address and our account, so it is only logged.
const UNDECIDED: &str = "the cluster gave no decision, and the log of Gatepost says why";

/// Loop that sends access checks to a cluster's authorizer.
#[derive(Debug)]
pub struct AccessReviews {
    connection: ReloadingClient,
    authorizer: Arc<Authorizer>,
    requests: mpsc::Receiver<AccessRequest>,
    metrics: Arc<Metrics>,
    log: FailureLog,
}

impl AccessReviews {
    /// Creates the loop for a cluster, with metrics that count access reviews. Connects to nothing before [`AccessReviews::run`].
    ///
    /// # Errors
    /// Returns an error if the address or the credentials cannot be read.
    pub async fn new(access: KubeAccess, metrics: Arc<Metrics>) -> Result<Self, KubeError> {
        let (authorizer, requests) = Authorizer::new();
        let connection = ReloadingClient::new(access).await?;
        Ok(Self { connection, authorizer, requests, metrics, log: FailureLog::default() })
    }

    /// Returns the authorizer that requests use.
    pub fn authorizer(&self) -> Arc<Authorizer> {
        Arc::clone(&self.authorizer)
    }

    /// Sends access checks until dropped.
    pub async fn run(mut self) {
        let mut reviews = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = reviews.join_next(), if !reviews.is_empty() => {
                    if let Ok(Some(outcome)) = ended {
                        self.report(outcome);
                    }
                }
                request = self.requests.recv(), if reviews.len() < MAX_CONCURRENT_REVIEWS => {
                    // `self.authorizer` has a sender, so the channel is never closed.
                    let Some(request) = request else { return };
                    match self.connection.recent_client().await {
                        Ok(client) => drop(reviews.spawn(decide(client, request, Arc::clone(&self.metrics)))),
                        Err(error) => {
                            self.metrics.record_access_review(AccessReviewOutcome::Failed, Duration::ZERO);
                            let _ = request.answer.send(Err(UNDECIDED.to_owned()));
                            self.report(Err(error));
                        }
                    }
                }
            }
        }
    }

    /// Logs changes of the outcome.
    fn report(&mut self, outcome: Result<(), KubeError>) {
        match outcome {
            Ok(()) => self.log.recovered("the authorizer of the cluster answers again"),
            Err(failure) => {
                self.connection.failed(&failure);
                let lost = "cannot ask the authorizer of the cluster; conditions that need it go by their hook's failure \
                            policy, and new objects with the annotation gatepost.dev/initializers are refused";
                self.log.failed(lost, failure);
            }
        }
    }
}

/// Does one access check; `None` if its request ended first.
async fn decide(client: KubeClient, request: AccessRequest, metrics: Arc<Metrics>) -> Option<Result<(), KubeError>> {
    let AccessRequest { username, user, check, mut answer } = request;
    let began = Instant::now();
    let decided = tokio::select! {
        decided = client.review_access(&username, &user, &check) => decided,
        () = answer.closed() => {
            metrics.record_access_review(AccessReviewOutcome::Abandoned, began.elapsed());
            return None;
        }
    };
    let outcome = match &decided {
        Ok(decision) if decision.allowed => AccessReviewOutcome::Allowed,
        Ok(_) => AccessReviewOutcome::Denied,
        Err(_) => AccessReviewOutcome::Failed,
    };
    metrics.record_access_review(outcome, began.elapsed());
    let outcome = decided.as_ref().map(|_| ()).map_err(Clone::clone);
    let _ = answer.send(decided.map_err(|_| UNDECIDED.to_owned()));
    Some(outcome)
}
