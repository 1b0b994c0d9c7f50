//! Exchange: one call over HTTP/1.1, from a connection or a dial to its result.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT},
};
use hyper::{
    body::{Body, Frame, SizeHint},
    client::conn::http1::SendRequest,
};
use tokio::{
    sync::{Notify, mpsc::unbounded_channel, oneshot},
    task::AbortHandle,
    time::{timeout, timeout_at},
};

use super::{
    idle_arbiter::IdleArbiter,
    reader::{PostError, ReadLimit, error_chain, handshake, round_trip},
};
use crate::hooks::{
    answer_buffer::AnswerBudget,
    call::{Call, FailedCall, ProcessingEvidence, Responses},
    connect::Socket,
    connection_budget::Slot,
    dialler::{Dialler, HookConnection},
    header_values::GZIP,
    http2::Http2Connection,
    protocol::{
        HookRequest, HttpRequest,
        request_head::{self, Media, write_path},
    },
    reply::{HttpReply, MAX_ANSWER, Reply},
};
use gatepost_api::{CallFailure, Hops, HttpForm, Rope, Step, Unreachable};
use gatepost_base::clock::now;

/// Maximum time for a hook that has answered early to read the rest of the request. After this time the connection is
/// not reused.
const REQUEST_END_TIMEOUT: Duration = Duration::from_millis(50);

/// Carries out calls of one client over HTTP/1.1.
#[derive(Clone, Debug)]
pub(super) struct CallRunner {
    pub(super) dialler: Arc<Dialler>,
    pub(super) host: HeaderValue,
    pub(super) authorization: Option<HeaderValue>,
    /// Notified when a connection has ended.
    pub(super) gone: Arc<Notify>,
    pub(super) arbiter: Arc<IdleArbiter>,
}

/// Connection that a call gets.
#[derive(Debug)]
pub(super) enum ConnectionChoice {
    /// A connection that has carried calls before.
    Reused(Http1Connection),
    /// A connection that the client has dialled.
    Dialled(Socket),
    /// None yet: the call dials with this slot.
    Dial(Slot),
    /// None yet: the call waits for a slot like other clients, and dials.
    DialInTurn,
    /// None yet: the call waits for a choice.
    Wait(oneshot::Receiver<ConnectionChoice>),
    /// None, for this reason.
    None(Unreachable),
}

/// Result of a call, and the connection if it can carry another one.
#[derive(Debug)]
pub(super) struct CallOutcome {
    /// `None` if the call's deadline has passed, which its owner knows too.
    pub(super) result: Option<Result<Reply, FailedCall>>,
    pub(super) connection: Option<Http1Connection>,
    /// True if the hook has turned out to speak HTTP/2.
    pub(super) http2: bool,
}

impl CallRunner {
    /// Carries out one call until its deadline. A late call's connection is closed, as HTTP/1.1 has no other way to
    /// cancel a call. If a reused connection turns out to be dead, the result reports that.
    pub(super) async fn run(self, call: Call, choice: ConnectionChoice) -> CallOutcome {
        let deadline = call.deadline;
        match timeout_at(deadline.into(), self.run_to_end(call, choice)).await {
            Ok(outcome) => outcome.unwrap_or_else(failed),
            Err(_) => CallOutcome { result: None, connection: None, http2: false },
        }
    }

    async fn run_to_end(&self, call: Call, choice: ConnectionChoice) -> Result<CallOutcome, FailedCall> {
        let choice = match choice {
            ConnectionChoice::Wait(offer) => {
                offer.await.unwrap_or_else(|_| ConnectionChoice::None(at_connect("gatepost is stopping")))
            }
            choice => choice,
        };
        let new = match choice {
            ConnectionChoice::Reused(connection) => {
                return self.post(connection, &call).await.map_err(on_reused_connection);
            }
            ConnectionChoice::DialInTurn => Err(self.dialler.slot().await.map_err(CallFailure::Connect)?),
            ConnectionChoice::Dialled(socket) => Ok(socket),
            ConnectionChoice::Dial(slot) => Err(slot),
            ConnectionChoice::None(why) => return Err(CallFailure::Connect(why).into()),
            ConnectionChoice::Wait(_) => return Err(CallFailure::Connect(at_connect("it waits for ever")).into()),
        };
        self.arbiter.run_or_evict_idle(self.run_over_new(call, new)).await
    }

    /// Carries out a call over a connection that has carried nothing yet, or that is dialled with this slot.
    async fn run_over_new(&self, call: Call, new: Result<Socket, Slot>) -> Result<CallOutcome, FailedCall> {
        let attempt = self.arbiter.breaker.begin_attempt(now())?;
        let dialled = match new {
            Ok(socket) => Ok(HookConnection::Http1(socket)),
            Err(slot) => self.dialler.dial_with(slot).await,
        };
        let socket = match dialled {
            Ok(HookConnection::Http1(socket)) => socket,
            Ok(HookConnection::Http2(connection)) => return Ok(run_over_own_http2(connection, call).await),
            Err(why) => {
                // A refused connection costs little; a failed handshake does not.
                let was_refused = matches!(why.step, Step::Resolve | Step::Connect);
                let failure = CallFailure::Connect(why);
                if !was_refused {
                    self.arbiter.breaker.record_failure(attempt, now(), &failure);
                }
                return Err(failure.into());
            }
        };
        let connection = Http1Connection::connect(socket, self.gone.clone()).await?;
        match self.post(connection, &call).await {
            Ok(outcome) => {
                self.arbiter.record_answer();
                Ok(outcome)
            }
            Err(error) => {
                if error.no_response_head {
                    self.arbiter.breaker.record_failure(attempt, now(), &error.failure);
                }
                Err(error.failure.into())
            }
        }
    }

    async fn post(&self, connection: Http1Connection, call: &Call) -> Result<CallOutcome, PostError> {
        let HookRequest::Http(HttpRequest { path, form, timeout }) = &call.request else {
            return Ok(failed(CallFailure::NotGrpc("it is asked over HTTP/1.1".into())));
        };
        if now() >= call.deadline {
            // A call past its deadline is not sent.
            return Ok(CallOutcome { result: None, connection: Some(connection), http2: false });
        }
        let request = match post_request((&self.host, self.authorization.as_ref()), call, path, *form, *timeout) {
            Ok(request) => request,
            Err(failure) => return Ok(CallOutcome { connection: Some(connection), ..failed(failure) }),
        };
        let answers = self.dialler.answers.of_answer(call.responses.are_spare());
        let (reply, connection) = connection.post(request, MAX_ANSWER, answers).await?;
        Ok(CallOutcome { result: Some(Ok(Reply::Http(reply))), connection, http2: false })
    }
}

pub(super) fn failed(failure: impl Into<FailedCall>) -> CallOutcome {
    CallOutcome { result: Some(Err(failure.into())), connection: None, http2: false }
}

/// Returns the result of a call whose reused connection has failed. The connection may have been dead before the call.
fn on_reused_connection(error: PostError) -> FailedCall {
    let evidence = match (error.nothing_sent, error.no_response_bytes) {
        (true, _) => ProcessingEvidence::ReusedConnectionEnded { may_have_arrived: false },
        (false, true) => ProcessingEvidence::ReusedConnectionEnded { may_have_arrived: true },
        (false, false) => ProcessingEvidence::Unknown,
    };
    FailedCall { failure: error.failure, evidence }
}

fn at_connect(why: &str) -> Unreachable {
    Unreachable::at(Step::Connect, why)
}

/// Carries out a call over an HTTP/2 connection of its own. While servers behind one address are replaced, some may
/// speak HTTP/2 and others not. The client switches to HTTP/2 once it has no HTTP/1.1 connection left.
async fn run_over_own_http2(connection: Http2Connection<Socket>, call: Call) -> CallOutcome {
    let responses = Arc::new(Responses::default());
    // The connection gets no further calls.
    let (_, mut commands) = unbounded_channel();
    let ended = connection.drive(&mut commands, vec![Call { responses: responses.clone(), ..call }]).await;
    if !ended.unsent.is_empty() {
        let failure = CallFailure::Connection("the hook takes no calls on a new connection".into());
        return CallOutcome { http2: true, ..failed(failure) };
    }
    if let Some(mut connection) = ended.draining {
        connection.finish_calls().await;
    }
    // A call past its deadline has no result.
    let arrived = responses.take_now().into_iter().next();
    let lost = || Err(CallFailure::Connection("the hook took no call".into()).into());
    CallOutcome { result: Some(arrived.map_or_else(lost, |(_, result)| result)), connection: None, http2: true }
}

/// A connection that carries no call. It is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<RopeBody>,
    read_limit: ReadLimit,
    driver: AbortHandle,
    /// True if it is beyond the connections that the hook is guaranteed.
    pub(super) is_beyond_guarantee: bool,
}

impl Drop for Http1Connection {
    /// Shuts an idle connection down in order. Aborts any other: bytes still queued for a hook that does not read must
    /// not keep the socket open.
    fn drop(&mut self) {
        if !self.sender.is_ready() {
            self.driver.abort();
        }
    }
}

impl Http1Connection {
    /// Connects over this socket; `gone` is notified when the connection ends.
    pub(super) async fn connect(socket: Socket, gone: Arc<Notify>) -> Result<Self, CallFailure> {
        let (read_limit, is_beyond_guarantee) = (ReadLimit::default(), socket.slot.is_beyond_guarantee());
        let connected = handshake(socket, read_limit.clone()).await;
        let (sender, connection) =
            connected.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Handshake, error_chain(&error))))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Its call has failed already, and an idle connection may end.
                tracing::trace!(error = error_chain(&error), "connection to a hook ended");
            }
            gone.notify_one();
        });
        Ok(Self { sender, read_limit, driver: driver.abort_handle(), is_beyond_guarantee })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Posts a request, and collects the whole reply. Returns the connection if it can carry another call.
    async fn post(
        mut self,
        request: Request<RopeBody>,
        limit: usize,
        answers: &Arc<AnswerBudget>,
    ) -> Result<(HttpReply, Option<Self>), PostError> {
        let reply = round_trip(&mut self.sender, &self.read_limit, request, limit, answers).await?;
        let fit =
            self.sender.is_ready() || matches!(timeout(REQUEST_END_TIMEOUT, self.sender.ready()).await, Ok(Ok(())));
        Ok((reply, fit.then_some(self)))
    }
}

/// Returns the POST of a call. Its configured path may be invalid.
fn post_request(
    (host, authorization): (&HeaderValue, Option<&HeaderValue>),
    call: &Call,
    path: &str,
    form: HttpForm,
    timeout: Duration,
) -> Result<Request<RopeBody>, CallFailure> {
    let media = Media::of(form);
    let mut whole = Vec::with_capacity(path.len() + 16);
    write_path(path, timeout, &mut whole);
    let unwritable = |error: &dyn std::error::Error| CallFailure::Unwritable(format!("its path: {error}"));
    let uri = Uri::from_maybe_shared(Bytes::from(whole)).map_err(|error| unwritable(&error))?;
    let mut request = Request::post(uri)
        .header(HOST, host)
        .header(CONTENT_TYPE, HeaderValue::from_static(media.content_type()))
        .header(ACCEPT, HeaderValue::from_static(media.accept()))
        .header(ACCEPT_ENCODING, HeaderValue::from_static(GZIP))
        .header(USER_AGENT, HeaderValue::from_static(request_head::USER_AGENT))
        .header(HeaderName::from_static(Hops::HEADER), HeaderValue::from(u16::from(call.forwarded.hops.get())))
        .header(CONTENT_LENGTH, HeaderValue::from(call.body.len()));
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    for (name, value) in call.forwarded.trace.iter().flat_map(|trace| trace.iter()) {
        request = request.header(HeaderName::from_static(name), value);
    }
    request.body(RopeBody::new(call.body.clone())).map_err(|error| unwritable(&error))
}

/// Body that yields the pieces of a rope. hyper writes them with one vectored write.
#[derive(Debug)]
struct RopeBody {
    rope: Rope,
    next: usize,
    unsent: usize,
}

impl RopeBody {
    fn new(rope: Rope) -> Self {
        let unsent = rope.len();
        Self { rope, next: 0, unsent }
    }
}

impl Body for RopeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Some(piece) = self.rope.chunks().get(self.next).cloned() {
            self.next += 1;
            if !piece.is_empty() {
                self.unsent -= piece.len();
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.unsent == 0
    }

    /// Returns the exact length, which hyper sends as the content length.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_rope_body_shares_its_pieces_and_has_an_exact_length() {
        let rope = Rope::new(["", "abc", "", "de", ""].map(Bytes::from));
        let mut body = RopeBody::new(rope.clone());
        assert_eq!(body.size_hint().exact(), Some(5));
        let mut cx = Context::from_waker(Waker::noop());
        for piece in [1, 3] {
            assert!(!body.is_end_stream());
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) else { panic!("a piece") };
            assert_eq!(frame.into_data().expect("data").as_ptr(), rope.chunks()[piece].as_ptr());
        }
        assert!(body.is_end_stream());
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)));
    }
}
