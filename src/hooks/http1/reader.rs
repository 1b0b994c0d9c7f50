//! Reader: the answer to one POST, read from an HTTP/1.1 connection within bounds.

use std::{error::Error, io, sync::Arc};

use http::{
    HeaderValue, Request, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Incoming},
    client::conn::http1::{Builder, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        answer_room::AnswerRoom,
        collected::Collected,
        failed_call::{FailedCall, ProcessingEvidence},
        gzip, media_type,
        reply::HttpReply,
        retry_after,
    },
    limited_socket::{LimitedSocket, ReadLimit},
};
use crate::model::CallFailure;

/// Bytes of one read, and so the largest head of an answer.
const READ_BUFFER: usize = 32 << 10;
/// The most that a hook may send until the head of its answer is complete, interim ones (100, 103) included.
const LARGEST_HEAD: usize = 256 << 10;
/// The most headers of an answer. hyper makes room for all of them ahead.
const MOST_HEADERS: usize = 512;
/// Chunks that an answer may come in, however small; beyond, they must not be smaller than this on average.
const MOST_PIECES: usize = 65_536;
const SMALL_PIECE: usize = 64;

/// Call without a reply, and the reason.
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
    pub(super) fn on_kept(self) -> FailedCall {
        let evidence = match (self.unsent, self.silent) {
            (true, _) => ProcessingEvidence::Stale { sent: false },
            (false, true) => ProcessingEvidence::Stale { sent: true },
            (false, false) => ProcessingEvidence::Perhaps,
        };
        FailedCall { failure: self.failure, evidence }
    }
}

/// The two halves of a connection over this socket: what sends requests, and what drives it.
pub(super) async fn handshake<S, B>(
    socket: S,
    read_limit: ReadLimit,
) -> hyper::Result<(SendRequest<B>, Connection<TokioIo<LimitedSocket<S>>, B>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let limited = TokioIo::new(LimitedSocket::new(socket, read_limit));
    // A head of an answer must fit into one read.
    Builder::new().read_buf_exact_size(Some(READ_BUFFER)).max_headers(MOST_HEADERS).handshake(limited).await
}

/// Sends a request and collects its whole reply, of at most `limit` bytes, which is held in `room`.
pub(super) async fn round_trip<B: Body + 'static>(
    sender: &mut SendRequest<B>,
    read_limit: &ReadLimit,
    request: Request<B>,
    limit: usize,
    room: &Arc<AnswerRoom>,
) -> Result<HttpReply, Lost> {
    read_limit.expect_head(LARGEST_HEAD);
    let response = sender.send_request(request).await.map_err(|error| Lost {
        unsent: error.is_canceled(),
        silent: !read_limit.has_read(),
        bare: !error.is_canceled(),
        failure: failure(&error),
    })?;
    // Chunks of a few bytes each would be much more than what is in them.
    read_limit.expect_body(LARGEST_HEAD + 2 * limit);
    let reply = collect(response, limit, room).await;
    reply.map_err(|failure| Lost { failure, unsent: false, silent: false, bare: false })
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
    if body.size_hint().lower() > limit as u64 {
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
    let hold = collected.hold();
    let reply = HttpReply { retry_after, readable_type, hold, ..HttpReply::new(status, collected.finish()) };
    Ok(if gzipped { reply.gzipped(room) } else { reply })
}

/// Failure of the call that hyper's error stands for.
fn failure(error: &hyper::Error) -> CallFailure {
    let source = Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let malformed =
        source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput));
    let chain = error_chain(error);
    if error.is_parse() || malformed { CallFailure::NotHttp(chain) } else { CallFailure::Connection(chain) }
}

/// An error and its causes, as far as they say more than the error itself.
pub(super) fn error_chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
