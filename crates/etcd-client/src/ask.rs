//! One call, tried at one member after another until one succeeds.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{self, sleep};
use tonic::{Request, Status, metadata::MetadataValue, transport::Channel};

use super::{
    EtcdAccess, EtcdError,
    error::{Failure, FailureKind, listed, wants_another_token},
    login::{Token, Tokens},
    member::Member,
};
use crate::access::Trust;

/// Delay after which a read without an answer is sent to the next member, too.
const HEDGE_DELAY: Duration = Duration::from_millis(250);

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// May be sent to several members concurrently, and repeated.
    Read,
    /// Goes to another member only if the first has certainly not processed it.
    Write,
}

/// Members of a cluster. A call starts at the member that answered last.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    trust: Arc<Trust>,
    tokens: Option<Tokens>,
    preferred: AtomicUsize,
}

/// Channel of a call, and the token sent over it.
pub(super) struct AuthorizedChannel {
    pub(super) channel: Channel,
    token: Token,
}

impl AuthorizedChannel {
    /// Returns the request for `message`, with our metadata.
    pub(super) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        // Makes a member without a leader fail immediately instead of waiting for a leader until the call times out.
        // source: etcd api/v3rpc/rpctypes/md.go, MetadataRequireLeaderKey.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            // source: etcd api/v3rpc/rpctypes/metadatafields.go, TokenFieldNameGRPC.
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

impl Members {
    /// Reads the TLS files and the password. Connects to nothing yet.
    pub(super) fn open(access: &EtcdAccess) -> Result<Self, EtcdError> {
        let places: Vec<_> = access.places()?.into_iter().map(Arc::new).collect();
        let trust = Arc::new(Trust::load(access.tls.clone(), places.clone())?);
        let tokens = access.login.clone().map(Tokens::open).transpose()?;
        let members = places.into_iter().map(Member::new).collect();
        Ok(Self { members, trust, tokens, preferred: AtomicUsize::new(0) })
    }

    /// Returns the endpoints as configured.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| &*member.place.written)
    }

    /// Calls the member that answered last, then the others in turn: immediately if a member has failed, and after
    /// [`HEDGE_DELAY`] if a read has no answer yet. Returns the first answer.
    ///
    /// A read therefore survives the loss of a member within `timeout`, whether its connection is refused or reset, it
    /// does not answer, or it reports that it has no leader.
    pub(super) async fn call_any<T, C, A>(&self, kind: CallKind, timeout: Duration, call: C) -> Result<T, EtcdError>
    where
        C: Fn(AuthorizedChannel, String) -> A,
        A: Future<Output = Result<T, CallError>>,
    {
        let count = self.members.len();
        let first = self.preferred.load(Ordering::Relaxed);
        // Shortens the delay so that every member is called while there is still time for an answer.
        let hedge = HEDGE_DELAY.min(timeout / (count as u32 + 1));
        let silent = Mutex::new(BTreeSet::new());
        let failures = Mutex::new(Vec::new());
        let asking = async {
            let mut turns = (0..count).map(|turn| (first + turn) % count);
            let mut calls = FuturesUnordered::new();
            calls.extend(turns.next().map(|member| self.call_one(member, &call, &silent)));
            loop {
                let next = tokio::select! {
                    ended = calls.next() => match ended {
                        Some((member, Ok(answer))) => {
                            self.preferred.store(member, Ordering::Relaxed);
                            return Ok(answer);
                        }
                        Some((_, Err(failure))) if failure.kind.ends(kind) => return Err(failure.error),
                        Some((_, Err(failure))) => {
                            locked(&failures).push(failure.error);
                            turns.next()
                        }
                        None => return Err(EtcdError::all(std::mem::take(&mut locked(&failures)))),
                    },
                    () = sleep(hedge), if kind == CallKind::Read && turns.len() > 0 => turns.next(),
                };
                calls.extend(next.map(|member| self.call_one(member, &call, &silent)));
            }
        };
        let answer = time::timeout(timeout, asking).await;
        if answer.is_err() {
            // Start the next call at another member.
            self.preferred.store((first + 1) % count, Ordering::Relaxed);
        }
        let silent = silent.into_inner().unwrap_or_else(PoisonError::into_inner);
        silent.iter().filter_map(|member| self.members.get(*member)).for_each(|member| member.record_answer(false));
        answer.unwrap_or_else(|_| {
            let names = silent.iter().filter_map(|member| Some(self.members.get(*member)?.place.written.clone()));
            let mut asked = names.collect::<Vec<_>>().join(", ");
            let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !failures.is_empty() {
                asked = format!("{asked} ({})", listed(&failures));
            }
            Err(EtcdError::TimedOut { timeout, asked })
        })
    }

    /// Calls one member, whose index is in `silent` until it answers.
    async fn call_one<T, C, A>(
        &self,
        index: usize,
        call: &C,
        silent: &Mutex<BTreeSet<usize>>,
    ) -> (usize, Result<T, Failure>)
    where
        C: Fn(AuthorizedChannel, String) -> A,
        A: Future<Output = Result<T, CallError>>,
    {
        locked(silent).insert(index);
        let answer = match self.members.get(index) {
            Some(member) => self.call(index, member, call).await,
            None => Err(Failure::answered(EtcdError::access("the endpoints", "there are none"))),
        };
        locked(silent).remove(&index);
        (index, answer)
    }

    async fn call<T, C, A>(&self, index: usize, member: &Member, call: &C) -> Result<T, Failure>
    where
        C: Fn(AuthorizedChannel, String) -> A,
        A: Future<Output = Result<T, CallError>>,
    {
        let endpoint = &member.place.written;
        let mut tries = 0..2;
        loop {
            let channel = member.channel(index, &self.trust.current()).map_err(Failure::answered)?;
            let token = match &self.tokens {
                Some(tokens) => tokens.get(endpoint, channel.clone()).await?,
                None => None,
            };
            tries.next();
            let answer = call(AuthorizedChannel { channel, token: token.clone() }, endpoint.clone()).await;
            member.record_answer(true);
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(CallError::Answer(error)) => return Err(Failure { error, kind: FailureKind::MaybeProcessed }),
                Err(CallError::Status(status)) => status,
            };
            match &self.tokens {
                Some(tokens) if wants_another_token(&status) && !tries.is_empty() => tokens.forget(&token),
                tokens => return Err(Failure::of(&status, endpoint, tokens.as_ref().map(Tokens::user))),
            }
        }
    }
}

/// Error of a call: etcd's status, or an invalid response.
pub(super) enum CallError {
    Status(Status),
    Answer(EtcdError),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<EtcdError> for CallError {
    fn from(error: EtcdError) -> Self {
        Self::Answer(error)
    }
}

impl FailureKind {
    fn ends(self, kind: CallKind) -> bool {
        match self {
            Self::NotProcessed => false,
            Self::MaybeProcessed => kind == CallKind::Write,
            Self::Answered => true,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_goes_to_another_member_only_where_the_first_has_certainly_not_seen_it() {
        for (done, read, write) in [
            (FailureKind::NotProcessed, false, false),
            (FailureKind::MaybeProcessed, false, true),
            (FailureKind::Answered, true, true),
        ] {
            assert_eq!((done.ends(CallKind::Read), done.ends(CallKind::Write)), (read, write), "{done:?}");
        }
    }
}
