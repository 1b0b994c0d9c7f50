//! Logins: tokens for user name and password.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::timeout;
use tonic::{
    Code, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use super::{
    EtcdError,
    access::Login,
    error::{Failure, FailureKind},
    pb::etcdserverpb::{AuthenticateRequest, auth_client::AuthClient},
};
use gatepost_base::files::{self, BlockingReads, ReadFailure};

/// Timeout of a login. Etcd hashes passwords slowly on purpose: the next call can use the token of a late login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the read of the password file, which is part of the login.
const PASSWORD_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of the password file, in bytes.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;

/// Token sent to etcd with every call; `None` if etcd has no authentication enabled.
pub(super) type Token = Option<MetadataValue<Ascii>>;

type Pending = Shared<BoxFuture<'static, Result<Token, Failure>>>;

/// Token of a user, requested on first use and again after etcd rejects it.
pub(super) struct Tokens {
    login: Login,
    reads: BlockingReads,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    pending: Option<Pending>,
}

impl fmt::Debug for Tokens {
    /// Never shows a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Checks that the password can be read.
    pub(super) fn open(login: Login) -> Result<Self, EtcdError> {
        password(&login)?;
        Ok(Self { login, reads: BlockingReads::default(), state: Arc::default() })
    }

    pub(super) fn user(&self) -> &str {
        &self.login.user
    }

    /// Returns the current token, or a new one from this member. Concurrent callers share one login.
    pub(super) async fn get(&self, endpoint: &str, channel: Channel) -> Result<Token, Failure> {
        let pending = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(token) = &state.token {
                return Ok(token.clone());
            }
            match state.pending.clone().filter(|pending| pending.peek().is_none()) {
                Some(pending) => pending,
                None => {
                    let pending = self.begin(endpoint.to_owned(), channel);
                    state.pending = Some(pending.clone());
                    pending
                }
            }
        };
        pending.await
    }

    /// Discards this token, which etcd no longer accepts.
    pub(super) fn forget(&self, token: &Token) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.token.as_ref() == Some(token) {
            state.token = None;
        }
    }

    /// Starts a login in a task of its own, which completes even if all callers are cancelled.
    fn begin(&self, endpoint: String, channel: Channel) -> Pending {
        let (login, reads, state) = (self.login.clone(), self.reads.clone(), Arc::clone(&self.state));
        let task = tokio::spawn(async move {
            let late = || Failure {
                error: EtcdError::TimedOut { timeout: LOGIN_TIMEOUT, asked: format!("{endpoint} to log in") },
                kind: FailureKind::NotProcessed,
            };
            let got = timeout(LOGIN_TIMEOUT, authenticate(&login, &reads, &endpoint, channel)).await;
            let got = got.unwrap_or_else(|_| Err(late()));
            if let Ok(token) = &got {
                state.lock().unwrap_or_else(PoisonError::into_inner).token = Some(token.clone());
            }
            got
        });
        let ended = async {
            let broken = || EtcdError::access("the login", "was broken off");
            task.await.unwrap_or_else(|_| Err(Failure { error: broken(), kind: FailureKind::NotProcessed }))
        };
        ended.boxed().shared()
    }
}

async fn authenticate(
    login: &Login,
    reads: &BlockingReads,
    endpoint: &str,
    channel: Channel,
) -> Result<Token, Failure> {
    let reading = login.clone();
    let read = reads.run(PASSWORD_READ_TIMEOUT, move || password(&reading)).await;
    let unread = |why: ReadFailure| Err(EtcdError::file(&login.password_file, &why.to_string()));
    let password = read.unwrap_or_else(unread).map_err(Failure::answered)?;
    let request = AuthenticateRequest { name: login.user.clone(), password };
    match AuthClient::new(channel).authenticate(request).await {
        Ok(answer) => {
            let token = MetadataValue::try_from(answer.into_inner().token);
            let mut token = token
                .map_err(|_| Failure::answered(EtcdError::invalid_response(endpoint, "its token fits no header")))?;
            token.set_sensitive(true);
            Ok(Some(token))
        }
        // Without authentication, etcd needs no token.
        Err(status) if status.message().contains("authentication is not enabled") => {
            tracing::warn!(
                endpoint,
                user = login.user,
                "etcd has no authentication: anybody who reaches it may write the configuration"
            );
            Ok(None)
        }
        Err(status) => Err(failed(&status, login, endpoint)),
    }
}

fn failed(status: &Status, login: &Login, endpoint: &str) -> Failure {
    let says = |words: &str| status.message().contains(words);
    // source: etcd api/v3rpc/rpctypes/error.go, ErrGRPCAuthFailed, ErrGRPCUserNotFound.
    if status.code() == Code::InvalidArgument && says("authentication failed") || says("user name not found") {
        return Failure::answered(EtcdError::Login { endpoint: endpoint.to_owned(), user: login.user.clone() });
    }
    let failure = Failure::of(status, endpoint, Some(&login.user));
    // A login changes nothing, so it may be retried at another member.
    let kind = if failure.kind == FailureKind::MaybeProcessed { FailureKind::NotProcessed } else { failure.kind };
    Failure { kind, ..failure }
}

fn password(login: &Login) -> Result<String, EtcdError> {
    let path = &login.password_file;
    let unreadable = |cause: &dyn fmt::Display| EtcdError::file(path, &format!("the password cannot be read: {cause}"));
    let bytes = files::read(path, MAX_PASSWORD_BYTES).map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not UTF-8 text"))?;
    match text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line)) {
        "" => Err(EtcdError::file(path, "there is no password in it")),
        password => Ok(password.to_owned()),
    }
}
