//! Access: the access checks that expressions of one review make, each decided once.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::{sync::oneshot, time::timeout_at};

use super::rejection::{self, StatusError};
use crate::live::{Authorizer, authorizer::AccessResult};
use gatepost_api::Review;
use gatepost_base::offload;
use gatepost_cel::{AccessCheck, AccessDecision, AccessDecisions};
use gatepost_wire::encodings;

/// Maximum number of access checks of one request, for all hooks together.
const MAX_ACCESS_CHECKS: usize = 64;

/// Access checks of one review, which the cluster's authorizer decides.
#[derive(Debug)]
pub(super) struct Access<'a> {
    authorizer: Option<&'a Authorizer>,
    decisions: Mutex<AccessDecisions>,
}

impl<'a> Access<'a> {
    pub(super) fn new(authorizer: Option<&'a Authorizer>) -> Self {
        Self { authorizer, decisions: Mutex::default() }
    }

    /// Returns all decisions so far.
    pub(super) fn decisions(&self) -> AccessDecisions {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends these checks to the authorizer, all concurrently, and stores their decisions.
    ///
    /// # Errors
    /// The request's deadline passes first.
    pub(super) async fn decide(
        &self,
        review: &Review,
        checks: Vec<AccessCheck>,
        until: Instant,
    ) -> Result<(), StatusError> {
        let out_of_time = |_| Box::new(rejection::out_of_time());
        let len = review.user.as_ref().map_or(0, Range::len);
        let theirs = review.clone();
        let reading = offload::run(len, move || user_of(&theirs));
        let user = timeout_at(until.into(), reading).await.map_err(out_of_time)?.map(Arc::new);
        let username: Arc<str> = Arc::from(&*review.username);
        let mut waiting: Vec<(AccessCheck, oneshot::Receiver<AccessResult>)> = Vec::new();
        let mut many = self.decisions().len();
        for check in checks {
            if self.decisions().get(&check).is_some() || waiting.iter().any(|(other, _)| *other == check) {
                continue;
            }
            many += 1;
            let request = match (self.authorizer, &user) {
                (_, Err(why)) => Err(why.clone()),
                (None, _) => Err("no cluster is followed".to_owned()),
                _ if many > MAX_ACCESS_CHECKS => {
                    Err(format!("a request makes at most {MAX_ACCESS_CHECKS} access checks"))
                }
                (Some(authorizer), Ok(user)) => authorizer.request(&username, user, check.clone()),
            };
            match request {
                Ok(decided) => waiting.push((check, decided)),
                Err(why) => self.insert(check, Err(why)),
            }
        }
        for (check, decided) in waiting {
            let decided = timeout_at(until.into(), decided).await.map_err(out_of_time)?;
            self.insert(check, decided.unwrap_or_else(|_| Err("the access check task has stopped".to_owned())));
        }
        Ok(())
    }

    fn insert(&self, check: AccessCheck, decided: Result<AccessDecision, String>) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.insert(check, decided.map_err(Into::into));
    }
}

/// Reads the user who makes the request.
pub(super) fn user_of(review: &Review) -> Result<gatepost_cel::User, String> {
    let user = encodings::user_of(review).map_err(|failure| failure.to_string())?;
    Ok(gatepost_cel::User {
        uid: user.uid.unwrap_or_default(),
        groups: user.groups,
        extra: user.extra.into_iter().map(|(key, values)| (key, values.items)).collect(),
    })
}
