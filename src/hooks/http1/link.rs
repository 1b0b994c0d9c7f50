//! Link: one HTTP/1.1 connection to a hook. A POST out, its reply in.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Response, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT},
};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::Notify, task::AbortHandle, time::timeout};

use super::{
    super::{
        answer_room::AnswerRoom,
        call::Call,
        collected::Collected,
        dial::Socket,
        gzip, media_type,
        post::{self, Media},
        reply::HttpReply,
        retry_after,
        unanswered::{Processed, Unanswered},
    },
    body::RopeBody,
    wire::{Heard, Wire},
};
use crate::model::{CallFailure, Hops, HttpForm, Step, Unreachable};

/// A hook that has answered without hearing us out gets so long to do so; then its connection is not used again.
const HEARS_OUT_WITHIN: Duration = Duration::from_millis(50);
/// What is read at once, and so the largest head of an answer.
const READ_BUFFER: usize = 32 << 10;
/// The most that a hook may send until the head of its answer is complete, interim ones (100, 103) included.
const LARGEST_HEAD: usize = 256 << 10;
/// The most headers of an answer. hyper makes room for all of them ahead.
const MOST_HEADERS: usize = 512;
/// Chunks that an answer may come in, however small; beyond, they must not be smaller than this on average.
const MOST_PIECES: usize = 65_536;
const SMALL_PIECE: usize = 64;

/// One connection, with nothing under way on it. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<RopeBody>,
    heard: Heard,
    driver: AbortHandle,
    beyond_guarantee: bool,
}

impl Drop for Link {
    /// Where nothing is under way, the connection takes its leave. Otherwise it is cut: what is still queued for a hook
    /// that does not read must not keep the socket open.
    fn drop(&mut self) {
        if !self.sender.is_ready() {
            self.driver.abort();
        }
    }
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) failure: CallFailure,
    /// Nothing of the call was sent.
    unsent: bool,
    /// The connection ended before the hook said anything.
    silent: bool,
    /// There was not even the head of an answer.
    pub(super) bare: bool,
}

impl Lost {
    /// For a connection that was kept from earlier calls.
    pub(super) fn on_kept(self) -> Unanswered {
        let processed = match (self.unsent, self.silent) {
            (true, _) => Processed::Stale { sent: false },
            (false, true) => Processed::Stale { sent: true },
            (false, false) => Processed::Perhaps,
        };
        Unanswered { failure: self.failure, processed }
    }
}

impl Link {
    /// Over this socket; `gone` rings when it ends.
    pub(super) async fn over(socket: Socket, gone: Arc<Notify>) -> Result<Self, CallFailure> {
        let (heard, beyond_guarantee) = (Heard::default(), socket.is_beyond_guarantee());
        let wire = TokioIo::new(Wire::new(socket, heard.clone()));
        // What does not fit into a read is no head of an answer.
        let handshake =
            Builder::new().read_buf_exact_size(Some(READ_BUFFER)).max_headers(MOST_HEADERS).handshake(wire).await;
        let (sender, connection) =
            handshake.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Greet, told(&error))))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whose call it ended was told already; an idle connection may end as it likes.
                tracing::trace!(error = told(&error), "connection to a hook ended");
            }
            gone.notify_one();
        });
        Ok(Self { sender, heard, driver: driver.abort_handle(), beyond_guarantee })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Its socket is beyond what the hook is guaranteed.
    pub(super) fn is_beyond_guarantee(&self) -> bool {
        self.beyond_guarantee
    }

    /// Posts, and collects the whole reply. The link comes back where it can carry another call.
    pub(super) async fn post(
        mut self,
        request: Request<RopeBody>,
        limit: usize,
        room: &Arc<AnswerRoom>,
    ) -> Result<(HttpReply, Option<Self>), Lost> {
        self.heard.expect_head(LARGEST_HEAD);
        let response = self.sender.send_request(request).await.map_err(|error| Lost {
            unsent: error.is_canceled(),
            silent: !self.heard.anything(),
            bare: !error.is_canceled(),
            failure: failure(&error),
        })?;
        // Chunks of a few bytes each would be much more than what is in them.
        self.heard.expect_body(LARGEST_HEAD + 2 * limit);
        let reply = collect(response, limit, room).await;
        let reply = reply.map_err(|failure| Lost { failure, unsent: false, silent: false, bare: false })?;
        let fit = self.sender.is_ready() || matches!(timeout(HEARS_OUT_WITHIN, self.sender.ready()).await, Ok(Ok(())));
        Ok((reply, fit.then_some(self)))
    }
}

/// The POST of a call. Its path is of the configuration, which does not promise that it can be written.
pub(super) fn request(
    host: &HeaderValue,
    call: &Call,
    path: &str,
    form: HttpForm,
    timeout: Duration,
) -> Result<Request<RopeBody>, CallFailure> {
    let media = Media::of(form);
    let mut whole = Vec::with_capacity(path.len() + 16);
    post::write_path(path, timeout, &mut whole);
    let unwritable = |error: &dyn std::error::Error| CallFailure::Unwritable(format!("its path: {error}"));
    let uri = Uri::from_maybe_shared(Bytes::from(whole)).map_err(|error| unwritable(&error))?;
    Request::post(uri)
        .header(HOST, host)
        .header(CONTENT_TYPE, HeaderValue::from_static(media.content_type()))
        .header(ACCEPT, HeaderValue::from_static(media.accept()))
        .header(ACCEPT_ENCODING, HeaderValue::from_static(gzip::ENCODING))
        .header(USER_AGENT, HeaderValue::from_static(post::USER_AGENT))
        .header(HeaderName::from_static(Hops::HEADER), HeaderValue::from(u16::from(call.hops.get())))
        .header(CONTENT_LENGTH, HeaderValue::from(call.body.len()))
        .body(RopeBody::new(call.body.clone()))
        .map_err(|error| unwritable(&error))
}

async fn collect(response: Response<Incoming>, limit: usize, room: &Arc<AnswerRoom>) -> Result<HttpReply, CallFailure> {
    let status = response.status().as_u16();
    if status < 200 {
        return Err(CallFailure::NotHttp(format!("it answered with HTTP status {status}, which ends no call")));
    }
    // Of several, Go reads the first.
    let header = |name| response.headers().get(name).map(HeaderValue::as_bytes);
    let retry_after = header(RETRY_AFTER).and_then(retry_after::read);
    let readable_type = header(CONTENT_TYPE).is_none_or(media_type::is_readable);
    let gzipped = header(CONTENT_ENCODING).is_some_and(gzip::is_ours);
    let mut body = response.into_body();
    if hyper::body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(CallFailure::TooLarge { limit });
    }
    // Copied from the buffers they were read into: a piece may be much smaller than what it would keep.
    let (mut collected, mut pieces) = (Collected::new(room), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| failure(&error))?.into_data() else { continue };
        pieces += 1;
        if pieces > MOST_PIECES + collected.len() / SMALL_PIECE {
            return Err(CallFailure::NotHttp(format!("its answer comes in more than {MOST_PIECES} tiny chunks")));
        }
        if collected.len() + data.len() > limit {
            return Err(CallFailure::TooLarge { limit });
        }
        collected.extend(&data)?;
    }
    let reply = HttpReply { retry_after, readable_type, ..HttpReply::new(status, collected.finish()) };
    Ok(if gzipped { reply.gzipped(room) } else { reply })
}

/// What hyper's error means for the call.
fn failure(error: &hyper::Error) -> CallFailure {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let malformed =
        source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput));
    if error.is_parse() || malformed { CallFailure::NotHttp(told(error)) } else { CallFailure::Connection(told(error)) }
}

/// An error and its causes, as far as they say more than the error itself.
fn told(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
