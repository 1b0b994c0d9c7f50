//! Ask: one call, put to one member after another until one can do it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{sleep, timeout};
use tonic::{Request, Status, metadata::MetadataValue, transport::Channel};

use super::{
    EtcdAccess, EtcdError,
    error::{Done, Failure, listed, wants_another_token},
    login::{Token, Tokens},
    member::Member,
};
use crate::access::Trust;

/// A member that has not answered a read for so long has the next one asked beside it.
const HEDGE: Duration = Duration::from_millis(250);

/// Does a call change anything?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It may be asked of several members at once, and again.
    Read,
    /// It goes to another member only where the first has certainly not seen it.
    Write,
}

/// The members of a cluster, the one that answered last first.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    trust: Arc<Trust>,
    tokens: Option<Tokens>,
    preferred: AtomicUsize,
}

/// Connection of a call, and the token shown over it.
pub(super) struct AuthorizedChannel {
    pub(super) channel: Channel,
    token: Token,
}

impl AuthorizedChannel {
    /// The message with what is shown to etcd.
    pub(super) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        // A member without a leader says so at once, instead of waiting for one until we are gone.
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
    /// Reads the files that are needed; connects to nothing yet.
    pub(super) fn open(access: &EtcdAccess) -> Result<Self, EtcdError> {
        let places: Vec<_> = access.places()?.into_iter().map(Arc::new).collect();
        let trust = Arc::new(Trust::load(access.tls.clone(), places.clone())?);
        let tokens = access.login.clone().map(Tokens::open).transpose()?;
        let members = places.into_iter().map(Member::new).collect();
        Ok(Self { members, trust, tokens, preferred: AtomicUsize::new(0) })
    }

    /// The endpoints, as they were written.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| &*member.place.written)
    }

    /// Puts the call to the member that answered last, and to the others in turn: at once where one has failed, and a
    /// little later where a read has no answer yet. The first answer counts.
    ///
    /// So a read outlives the member it was put to, whether that has died aloud (the connection is refused or reset),
    /// silently (no answer), or lives without a leader (it says so); all of it within `patience`.
    pub(super) async fn ask<T, C, A>(&self, kind: Kind, patience: Duration, call: C) -> Result<T, EtcdError>
    where
        C: Fn(AuthorizedChannel, String) -> A,
        A: Future<Output = Result<T, Wrong>>,
    {
        let count = self.members.len();
        let first = self.preferred.load(Ordering::Relaxed);
        // All of them get their turn while there is still time for an answer.
        let hedge = HEDGE.min(patience / (count as u32 + 1));
        let silent = Mutex::new(BTreeSet::new());
        let failures = Mutex::new(Vec::new());
        let asking = async {
            let mut turns = (0..count).map(|turn| (first + turn) % count);
            let mut calls = FuturesUnordered::new();
            calls.extend(turns.next().map(|member| self.ask_one(member, &call, &silent)));
            loop {
                let next = tokio::select! {
                    ended = calls.next() => match ended {
                        Some((member, Ok(answer))) => {
                            self.preferred.store(member, Ordering::Relaxed);
                            return Ok(answer);
                        }
                        Some((_, Err(failure))) if failure.done.ends(kind) => return Err(failure.error),
                        Some((_, Err(failure))) => {
                            locked(&failures).push(failure.error);
                            turns.next()
                        }
                        None => return Err(EtcdError::all(std::mem::take(&mut locked(&failures)))),
                    },
                    () = sleep(hedge), if kind == Kind::Read && turns.len() > 0 => turns.next(),
                };
                calls.extend(next.map(|member| self.ask_one(member, &call, &silent)));
            }
        };
        let answer = timeout(patience, asking).await;
        if answer.is_err() {
            // Next time somebody else comes first.
            self.preferred.store((first + 1) % count, Ordering::Relaxed);
        }
        let silent = silent.into_inner().unwrap_or_else(PoisonError::into_inner);
        silent.iter().filter_map(|member| self.members.get(*member)).for_each(|member| member.heard(false));
        answer.unwrap_or_else(|_| {
            let names = silent.iter().filter_map(|member| Some(self.members.get(*member)?.place.written.clone()));
            let mut asked = names.collect::<Vec<_>>().join(", ");
            let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
            if !failures.is_empty() {
                asked = format!("{asked} ({})", listed(&failures));
            }
            Err(EtcdError::Late { patience, asked })
        })
    }

    /// Puts the call to one member, with a new token where the old one is no longer taken.
    async fn ask_one<T, C, A>(
        &self,
        index: usize,
        call: &C,
        silent: &Mutex<BTreeSet<usize>>,
    ) -> (usize, Result<T, Failure>)
    where
        C: Fn(AuthorizedChannel, String) -> A,
        A: Future<Output = Result<T, Wrong>>,
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
        A: Future<Output = Result<T, Wrong>>,
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
            member.heard(true);
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(Wrong::Answer(error)) => return Err(Failure { error, done: Done::Perhaps }),
                Err(Wrong::Status(status)) => status,
            };
            match &self.tokens {
                Some(tokens) if wants_another_token(&status) && !tries.is_empty() => tokens.forget(&token),
                tokens => return Err(Failure::of(&status, endpoint, tokens.as_ref().map(Tokens::user))),
            }
        }
    }
}

/// Reasons why a call has no result: etcd's status, or an answer that cannot be used.
pub(super) enum Wrong {
    Status(Status),
    Answer(EtcdError),
}

impl From<Status> for Wrong {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<EtcdError> for Wrong {
    fn from(error: EtcdError) -> Self {
        Self::Answer(error)
    }
}

impl Done {
    fn ends(self, kind: Kind) -> bool {
        match self {
            Self::No => false,
            Self::Perhaps => kind == Kind::Write,
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
        for (done, read, write) in
            [(Done::No, false, false), (Done::Perhaps, false, true), (Done::Answered, true, true)]
        {
            assert_eq!((done.ends(Kind::Read), done.ends(Kind::Write)), (read, write), "{done:?}");
        }
    }
}
