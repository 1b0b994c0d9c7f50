//! Access reviews: has access checks of requests decided by the authorizer of a cluster.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::{
    live::{Authorizer, authorizer::AccessQuestion},
    telemetry::{AccessReviewOutcome, Metrics},
};
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, ReloadingClient};

/// Access checks that are asked at once; others wait, each within its request's time.
const AT_ONCE: usize = 64;

/// Interval at which a client is checked for changed credentials.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Failure as the requester may read it. The whole one names the apiserver's address and our own account, and is logged.
const UNDECIDED: &str = "the cluster gave no decision, and the log of Gatepost says why";

/// A cluster whose authorizer is about to be asked.
#[derive(Debug)]
pub struct AccessReviews {
    connection: ReloadingClient,
    client: Option<(KubeClient, Instant)>,
    authorizer: Arc<Authorizer>,
    questions: mpsc::Receiver<AccessQuestion>,
    metrics: Arc<Metrics>,
    /// Failure of the last check, as logged.
    logged: Option<KubeError>,
}

impl AccessReviews {
    /// Of that cluster. Connects to nothing before [`AccessReviews::run`].
    ///
    /// # Errors
    /// Address or credentials that cannot be read.
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        let (authorizer, questions) = Authorizer::new();
        let connection = ReloadingClient::new(access).await?;
        Ok(Self { connection, client: None, authorizer, questions, metrics: Arc::default(), logged: None })
    }

    /// The same, counted there.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// The authorizer, for those who ask it.
    pub fn authorizer(&self) -> Arc<Authorizer> {
        Arc::clone(&self.authorizer)
    }

    /// Has checks decided until dropped.
    pub async fn run(mut self) {
        let mut asking = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = asking.join_next(), if !asking.is_empty() => {
                    if let Ok(Some(outcome)) = ended {
                        self.report(outcome);
                    }
                }
                question = self.questions.recv(), if asking.len() < AT_ONCE => {
                    // The authorizer is ours: there is always somebody who may ask.
                    let Some(question) = question else { return };
                    match self.client().await {
                        Ok(client) => drop(asking.spawn(decide(client, question, Arc::clone(&self.metrics)))),
                        Err(error) => {
                            self.metrics.access_review(AccessReviewOutcome::Failed, Duration::ZERO);
                            let _ = question.answer.send(Err(UNDECIDED.to_owned()));
                            self.report(Err(error));
                        }
                    }
                }
            }
        }
    }

    async fn client(&mut self) -> Result<KubeClient, KubeError> {
        if let Some((client, since)) = &self.client
            && since.elapsed() < LOOK_EVERY
        {
            return Ok(client.clone());
        }
        let client = self.connection.client().await?;
        self.client = Some((client.clone(), Instant::now()));
        Ok(client)
    }

    /// One line a change.
    fn report(&mut self, outcome: Result<(), KubeError>) {
        match outcome {
            Ok(()) if self.logged.take().is_some() => tracing::info!("the authorizer of the cluster answers again"),
            Ok(()) => {}
            Err(failure) => {
                self.connection.failed(&failure);
                self.client = None;
                if self.logged.as_ref() != Some(&failure) {
                    tracing::warn!(
                        %failure,
                        fix = failure.fix(),
                        "cannot ask the authorizer of the cluster; conditions that need it go by their hook's failure \
                         policy, and new objects with the annotation gatepost.dev/initializers are refused"
                    );
                    self.logged = Some(failure);
                }
            }
        }
    }
}

/// One access check; `None` where its request has ended before.
async fn decide(client: KubeClient, question: AccessQuestion, metrics: Arc<Metrics>) -> Option<Result<(), KubeError>> {
    let AccessQuestion { username, user, check, mut answer } = question;
    let began = Instant::now();
    let decided = tokio::select! {
        decided = client.review_access(&username, &user, &check) => decided,
        () = answer.closed() => {
            metrics.access_review(AccessReviewOutcome::Abandoned, began.elapsed());
            return None;
        }
    };
    let outcome = match &decided {
        Ok(decision) if decision.allowed => AccessReviewOutcome::Allowed,
        Ok(_) => AccessReviewOutcome::Denied,
        Err(_) => AccessReviewOutcome::Failed,
    };
    metrics.access_review(outcome, began.elapsed());
    let outcome = decided.as_ref().map(|_| ()).map_err(Clone::clone);
    let _ = answer.send(decided.map_err(|_| UNDECIDED.to_owned()));
    Some(outcome)
}
