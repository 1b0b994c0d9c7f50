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
        http2::Http2Connection,
        inbox::Inbox,
        protocol::{HttpRequest, Request},
        reply::{LARGEST_ANSWER, Reply},
        unanswered::Unanswered,
    },
    link::{Link, request},
    reader::Lost,
    turns::Turns,
};
use crate::{
    clock::now,
    model::{CallFailure, Step, Unreachable},
};

/// Resources that an exchange takes, besides the call.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    pub(super) dialler: Arc<Dialler>,
    pub(super) host: HeaderValue,
    /// Rings when a connection has ended.
    pub(super) gone: Arc<Notify>,
    pub(super) turns: Arc<Turns>,
}

/// Connection that a call begins with.
#[derive(Debug)]
pub(super) enum Way {
    /// A connection that has carried calls before.
    Used(Link),
    /// One that the lane dialled when this call was waiting already.
    Dialled(Socket),
    /// Room for one: it dials.
    Dial(Slot),
    /// Room for one, in turn with all who wait for room: it dials then.
    DialInTurn,
    /// Nothing yet: it is told.
    Wait(oneshot::Receiver<Way>),
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
pub(super) struct Carried {
    /// None where the call's time was up. Whoever asked knows that by the same clock.
    pub(super) result: Option<Result<Reply, Unanswered>>,
    pub(super) link: Option<Link>,
    /// The hook was found to speak HTTP/2.
    pub(super) http2: bool,
}

impl Carrier {
    /// Carries out one call until its deadline; then what it uses is closed, as HTTP/1.1 has no other way to call off a
    /// call. A used connection may be dead without our knowing, which is reported.
    pub(super) async fn carry(self, call: Call, way: Way) -> Carried {
        let deadline = call.deadline;
        let carried = timeout_at(deadline.into(), self.carry_by(call, way)).await;
        carried.unwrap_or(Carried { result: None, link: None, http2: false })
    }

    async fn carry_by(&self, call: Call, way: Way) -> Carried {
        let way = match way {
            Way::Wait(told) => told.await.unwrap_or_else(|_| Way::None(at_connect("gatepost is stopping"))),
            way => way,
        };
        let new = match way {
            Way::Used(link) => return self.post(link, &call).await.unwrap_or_else(|lost| failed(lost.on_kept())),
            Way::DialInTurn => match self.dialler.room().await {
                Ok(slot) => New::Dial(slot),
                Err(why) => return failed(CallFailure::Connect(why)),
            },
            Way::Dialled(socket) => New::Dialled(socket),
            Way::Dial(slot) => New::Dial(slot),
            Way::None(why) => return failed(CallFailure::Connect(why)),
            Way::Wait(_) => return failed(CallFailure::Connect(at_connect("it waits for ever"))),
        };
        self.turns.patiently(self.carry_anew(call, new)).await
    }

    /// Carries out a call over a new connection.
    async fn carry_anew(&self, call: Call, new: New) -> Carried {
        let attempt = match self.turns.barren.attempt(now()) {
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
                    self.turns.barren.failed(attempt, now(), &CallFailure::Connect(why.clone()));
                }
                return failed(CallFailure::Connect(why));
            }
            Ok(Dialled::Http2(connection)) => return alone(connection, call).await,
            Ok(Dialled::Http1(socket)) => socket,
        };
        let link = match Link::over(socket, self.gone.clone()).await {
            Err(failure) => return failed(failure),
            Ok(link) => link,
        };
        match self.post(link, &call).await {
            Err(lost) => {
                if lost.bare {
                    self.turns.barren.failed(attempt, now(), &lost.failure);
                }
                failed(lost.failure)
            }
            Ok(carried) => {
                self.turns.answered();
                carried
            }
        }
    }

    async fn post(&self, link: Link, call: &Call) -> Result<Carried, Lost> {
        let Request::Http(HttpRequest { path, form, timeout }) = &call.request else {
            return Ok(failed(CallFailure::NotGrpc("it is asked over HTTP/1.1".into())));
        };
        if now() >= call.deadline {
            // A call past its deadline is not sent any more.
            return Ok(Carried { result: None, link: Some(link), http2: false });
        }
        let request = match request(&self.host, call, path, *form, *timeout) {
            Ok(request) => request,
            Err(failure) => return Ok(Carried { link: Some(link), ..failed(failure) }),
        };
        let (reply, link) = link.post(request, LARGEST_ANSWER, &self.dialler.answers).await?;
        Ok(Carried { result: Some(Ok(Reply::Http(reply))), link, http2: false })
    }
}

pub(super) fn failed(failure: impl Into<Unanswered>) -> Carried {
    Carried { result: Some(Err(failure.into())), link: None, http2: false }
}

fn at_connect(why: &str) -> Unreachable {
    Unreachable::at(Step::Connect, why)
}

/// A call over an HTTP/2 connection of its own. Behind one address may stand servers that speak HTTP/2 and others that
/// do not, while they are being replaced; the lane changes over once no HTTP/1.1 connection is left.
async fn alone(connection: Http2Connection<Socket>, call: Call) -> Carried {
    let inbox = Arc::new(Inbox::default());
    // This connection gets no further calls.
    let (_, mut commands) = unbounded_channel();
    let ended = connection.drive(&mut commands, vec![Call { inbox: inbox.clone(), ..call }]).await;
    if !ended.unsent.is_empty() {
        let failure = CallFailure::Connection("the hook takes no calls on a new connection".into());
        return Carried { http2: true, ..failed(failure) };
    }
    if let Some(mut leaving) = ended.leaving {
        leaving.finish_calls().await;
    }
    // A call that ran out of time is not answered at all.
    let arrived = inbox.take_now().into_iter().next();
    let lost = || Err(CallFailure::Connection("the hook took no call".into()).into());
    Carried { result: Some(arrived.map_or_else(lost, |(_, result)| result)), link: None, http2: true }
}
