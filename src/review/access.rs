//! Access: decisions of the cluster's authorizer on the access checks of one request's conditions, each asked for once.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::{sync::oneshot, time::timeout_at};

use super::{status, status::StatusError};
use crate::{
    cel::{self, AccessCheck, AccessDecision, AccessDecisions},
    live::{Authorizer, authorizer::Decided},
    model::Review,
    offload,
    wire::encodings,
};

/// Access checks of one request, of all hooks together.
const MOST: usize = 64;

/// Access checks of one request.
#[derive(Debug)]
pub(super) struct Access<'a> {
    authorizer: Option<&'a Authorizer>,
    decisions: Mutex<AccessDecisions>,
}

impl<'a> Access<'a> {
    pub(super) fn new(authorizer: Option<&'a Authorizer>) -> Self {
        Self { authorizer, decisions: Mutex::default() }
    }

    /// All decisions so far.
    pub(super) fn decisions(&self) -> AccessDecisions {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has these checks decided, all at once.
    ///
    /// # Errors
    /// The request's time ends before that.
    pub(super) async fn decide(
        &self,
        review: &Review,
        checks: Vec<AccessCheck>,
        until: Instant,
    ) -> Result<(), StatusError> {
        let out_of_time = |_| Box::new(status::out_of_time());
        let len = review.user.as_ref().map_or(0, Range::len);
        let theirs = review.clone();
        let reading = offload::run(len, move || user_of(&theirs));
        let user = timeout_at(until.into(), reading).await.map_err(out_of_time)?.map(Arc::new);
        let username: Arc<str> = Arc::from(&*review.username);
        let mut waiting: Vec<(AccessCheck, oneshot::Receiver<Decided>)> = Vec::new();
        let mut many = self.decisions().len();
        for check in checks {
            if self.decisions().get(&check).is_some() || waiting.iter().any(|(other, _)| *other == check) {
                continue;
            }
            many += 1;
            let asked = match (self.authorizer, &user) {
                (_, Err(why)) => Err(why.clone()),
                (None, _) => Err("no cluster is followed".to_owned()),
                _ if many > MOST => Err(format!("a request makes at most {MOST} access checks")),
                (Some(authorizer), Ok(user)) => authorizer.ask(&username, user, check.clone()),
            };
            match asked {
                Ok(decided) => waiting.push((check, decided)),
                Err(why) => self.insert(check, Err(why)),
            }
        }
        for (check, decided) in waiting {
            let decided = timeout_at(until.into(), decided).await.map_err(out_of_time)?;
            self.insert(check, decided.unwrap_or_else(|_| Err("nobody asks the cluster any more".to_owned())));
        }
        Ok(())
    }

    fn insert(&self, check: AccessCheck, decided: Result<AccessDecision, String>) {
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.insert(check, decided.map_err(Into::into));
    }
}

/// The user who makes the request.
pub(super) fn user_of(review: &Review) -> Result<cel::User, String> {
    let user = encodings::user_of(review).map_err(|failure| failure.to_string())?;
    Ok(cel::User {
        uid: user.uid.unwrap_or_default(),
        groups: user.groups,
        extra: user.extra.into_iter().map(|(key, values)| (key, values.items)).collect(),
    })
}
