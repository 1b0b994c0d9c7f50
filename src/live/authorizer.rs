//! Authorizer: queue of access checks from requests to the task that sends them to the cluster.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use gatepost_cel::{AccessCheck, AccessDecision, User};

/// Maximum number of queued access checks, of all requests together.
const MAX_QUEUED_CHECKS: usize = 1024;

/// Decision of an access check, or the reason why there is none.
pub type AccessResult = Result<AccessDecision, String>;

/// Authorizer of a cluster, as requests use it. The task that owns the receiver sends the checks to the cluster.
#[derive(Debug)]
pub struct Authorizer {
    requests: mpsc::Sender<AccessRequest>,
}

/// One access check.
#[derive(Debug)]
pub struct AccessRequest {
    /// Name of the user who makes the request.
    pub username: Arc<str>,
    /// Attributes of that user.
    pub user: Arc<User>,
    /// The check.
    pub check: AccessCheck,
    /// Sender of the decision; closed once no request waits for it.
    pub answer: oneshot::Sender<AccessResult>,
}

impl Authorizer {
    /// Creates an authorizer, and the receiver of its access checks.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<AccessRequest>) {
        let (requests, receiver) = mpsc::channel(MAX_QUEUED_CHECKS);
        (Arc::new(Self { requests }), receiver)
    }

    /// Queues an access check and returns the receiver of its decision.
    ///
    /// # Errors
    /// Returns a message if too many access checks wait, or if the task that sends them has ended.
    pub fn request(
        &self,
        username: &Arc<str>,
        user: &Arc<User>,
        check: AccessCheck,
    ) -> Result<oneshot::Receiver<AccessResult>, String> {
        let (answer, decided) = oneshot::channel();
        let request = AccessRequest { username: Arc::clone(username), user: Arc::clone(user), check, answer };
        match self.requests.try_send(request) {
            Ok(()) => Ok(decided),
            Err(mpsc::error::TrySendError::Full(_)) => Err("too many access checks wait at once".to_owned()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err("the access check task has stopped".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_cel::{AccessTarget, Subject};

    #[test]
    fn full_queue_rejects_access_checks() {
        let (authorizer, requests) = Authorizer::new();
        let check = AccessCheck {
            subject: Subject::Requester,
            verb: "get".into(),
            target: AccessTarget::Path("/healthz".into()),
        };
        let check_access = || authorizer.request(&"alice".into(), &Arc::default(), check.clone());
        let waiting: Vec<_> = (0..MAX_QUEUED_CHECKS).map(|_| check_access().unwrap()).collect();
        assert_eq!(check_access().unwrap_err(), "too many access checks wait at once");
        drop((requests, waiting));
        assert_eq!(check_access().unwrap_err(), "the access check task has stopped");
    }
}
