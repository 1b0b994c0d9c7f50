//! One call, from an idle connection or a new one to its result.

use std::sync::Arc;

use http::HeaderValue;
use tokio::{
    sync::{Notify, mpsc::unbounded_channel, oneshot},
    time::timeout_at,
};

use super::{
    super::{
        call::Call,
        connection_budget::Slot,
        dial::Socket,
        dialler::{Dialled, Dialler},
        failed_call::FailedCall,
        http2::Http2Connection,
        protocol::{HookRequest, HttpRequest},
        reply::{LARGEST_ANSWER, Reply},
        responses::Responses,
    },
    connection::{Http1Connection, request},
    idle_arbiter::IdleArbiter,
    reader::Lost,
};
use crate::{
    clock::now,
    model::{CallFailure, Step, Unreachable},
};

/// Resources that an exchange takes, besides the call.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) dialler: Arc<Dialler>,
    pub(super) host: HeaderValue,
    /// Rings when a connection has ended.
    pub(super) gone: Arc<Notify>,
    pub(super) arbiter: Arc<IdleArbiter>,
}

/// Connection that a call begins with.
#[derive(Debug)]
pub(super) enum ConnectionChoice {
    /// A connection that has carried calls before.
    Used(Http1Connection),
    /// One that the client dialled when this call was waiting already.
    Dialled(Socket),
    /// Room for one: it dials.
    Dial(Slot),
    /// Room for one, in turn with all who wait for room: it dials then.
    DialInTurn,
    /// Nothing yet: an offer comes.
    Wait(oneshot::Receiver<ConnectionChoice>),
    /// There will be none.
    None(Unreachable),
}

/// A connection that has carried nothing yet, or room for one.
enum New {
    Dialled(Socket),
    Dial(Slot),
}

/// Result of a call, and the connection where it can carry another.
#[derive(Debug)]
pub(super) struct Completed {
    /// None where the call's time was up. The caller knows that by the same clock.
    pub(super) result: Option<Result<Reply, FailedCall>>,
    pub(super) connection: Option<Http1Connection>,
    /// The hook was found to speak HTTP/2.
    pub(super) http2: bool,
}

impl Exchange {
    /// Carries out one call until its deadline; then what it uses is closed, as HTTP/1.1 has no other way to call off a
    /// call. A used connection may be dead without our knowing, which is reported.
    pub(super) async fn run(self, call: Call, choice: ConnectionChoice) -> Completed {
        let deadline = call.deadline;
        let completed = timeout_at(deadline.into(), self.run_by(call, choice)).await;
        completed.unwrap_or(Completed { result: None, connection: None, http2: false })
    }

    async fn run_by(&self, call: Call, choice: ConnectionChoice) -> Completed {
        let choice = match choice {
            ConnectionChoice::Wait(offer) => {
                offer.await.unwrap_or_else(|_| ConnectionChoice::None(at_connect("gatepost is stopping")))
            }
            choice => choice,
        };
        let new = match choice {
            ConnectionChoice::Used(connection) => {
                return self.post(connection, &call).await.unwrap_or_else(|lost| failed(lost.on_kept()));
            }
            ConnectionChoice::DialInTurn => match self.dialler.room().await {
                Ok(slot) => New::Dial(slot),
                Err(why) => return failed(CallFailure::Connect(why)),
            },
            ConnectionChoice::Dialled(socket) => New::Dialled(socket),
            ConnectionChoice::Dial(slot) => New::Dial(slot),
            ConnectionChoice::None(why) => return failed(CallFailure::Connect(why)),
            ConnectionChoice::Wait(_) => return failed(CallFailure::Connect(at_connect("it waits for ever"))),
        };
        self.arbiter.run_or_evict_idle(self.run_over_new(call, new)).await
    }

    /// Carries out a call over a new connection.
    async fn run_over_new(&self, call: Call, new: New) -> Completed {
        let attempt = match self.arbiter.breaker.try_one(now()) {
            Ok(attempt) => attempt,
            Err(failure) => return failed(failure),
        };
        let dialled = match new {
            New::Dialled(socket) => Ok(Dialled::Http1(socket)),
            New::Dial(slot) => self.dialler.dial_with(slot).await,
        };
        let socket = match dialled {
            Err(why) => {
                // A refused connection is cheap to find out; one that is lost after its handshake is not.
                if !matches!(why.step, Step::Resolve | Step::Connect) {
                    self.arbiter.breaker.failed(attempt, now(), &CallFailure::Connect(why.clone()));
                }
                return failed(CallFailure::Connect(why));
            }
            Ok(Dialled::Http2(connection)) => return alone(connection, call).await,
            Ok(Dialled::Http1(socket)) => socket,
        };
        let connection = match Http1Connection::over(socket, self.gone.clone()).await {
            Err(failure) => return failed(failure),
            Ok(connection) => connection,
        };
        match self.post(connection, &call).await {
            Err(lost) => {
                if lost.bare {
                    self.arbiter.breaker.failed(attempt, now(), &lost.failure);
                }
                failed(lost.failure)
            }
            Ok(completed) => {
                self.arbiter.answered();
                completed
            }
        }
    }

    async fn post(&self, connection: Http1Connection, call: &Call) -> Result<Completed, Lost> {
        let HookRequest::Http(HttpRequest { path, form, timeout }) = &call.request else {
            return Ok(failed(CallFailure::NotGrpc("it is asked over HTTP/1.1".into())));
        };
        if now() >= call.deadline {
            // A call past its deadline is not sent any more.
            return Ok(Completed { result: None, connection: Some(connection), http2: false });
        }
        let request = match request(&self.host, call, path, *form, *timeout) {
            Ok(request) => request,
            Err(failure) => return Ok(Completed { connection: Some(connection), ..failed(failure) }),
        };
        let (reply, connection) = connection.post(request, LARGEST_ANSWER, &self.dialler.answers).await?;
        Ok(Completed { result: Some(Ok(Reply::Http(reply))), connection, http2: false })
    }
}

pub(super) fn failed(failure: impl Into<FailedCall>) -> Completed {
    Completed { result: Some(Err(failure.into())), connection: None, http2: false }
}

fn at_connect(why: &str) -> Unreachable {
    Unreachable::at(Step::Connect, why)
}

/// A call over an HTTP/2 connection of its own. Behind one address may stand servers that speak HTTP/2 and others that
/// do not, while they are being replaced; the client changes over once no HTTP/1.1 connection is left.
async fn alone(connection: Http2Connection<Socket>, call: Call) -> Completed {
    let responses = Arc::new(Responses::default());
    // This connection gets no further calls.
    let (_, mut commands) = unbounded_channel();
    let ended = connection.drive(&mut commands, vec![Call { responses: responses.clone(), ..call }]).await;
    if !ended.unsent.is_empty() {
        let failure = CallFailure::Connection("the hook takes no calls on a new connection".into());
        return Completed { http2: true, ..failed(failure) };
    }
    if let Some(mut leaving) = ended.leaving {
        leaving.finish_calls().await;
    }
    // A call that ran out of time is not answered at all.
    let arrived = responses.take_now().into_iter().next();
    let lost = || Err(CallFailure::Connection("the hook took no call".into()).into());
    Completed { result: Some(arrived.map_or_else(lost, |(_, result)| result)), connection: None, http2: true }
}
