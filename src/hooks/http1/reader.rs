//! Reader: the reply to one POST, read from an HTTP/1.1 connection within bounds.

use std::{
    convert::Infallible,
    error::Error,
    future::pending,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER},
};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1::{Builder, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};

use crate::hooks::{
    answer_buffer::{AnswerBudget, AnswerBuffer},
    header_values::{self, is_gzip, is_readable_media_type},
    reply::HttpReply,
};
use gatepost_api::CallFailure;
use gatepost_base::memory::MemoryBudget;

/// Size of one read, and so the maximum size of an answer's head, in bytes.
const READ_BUFFER: usize = 32 << 10;
/// Maximum number of bytes that a hook may send until the head of its answer is complete, interim responses (100, 103)
/// included.
const MAX_HEAD: usize = 256 << 10;
/// Maximum number of headers of an answer. hyper allocates space for all of them ahead.
const MAX_HEADERS: usize = 512;
/// Maximum number of chunks of an answer that may be of any size. Further chunks must have at least [`SMALL_CHUNK`]
/// bytes on average.
const MAX_SMALL_CHUNKS: usize = 65_536;
const SMALL_CHUNK: usize = 64;

/// A POST without a reply.
#[derive(Debug)]
pub(super) struct PostError {
    pub(super) failure: CallFailure,
    /// True if nothing of the request was sent.
    pub(super) nothing_sent: bool,
    /// True if the connection ended before a byte of the response.
    pub(super) no_response_bytes: bool,
    /// True if the request was sent, and the head of the response was not complete.
    pub(super) no_response_head: bool,
}

/// Makes an HTTP/1.1 connection over this socket: the sender of requests, and the driver.
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
    let limited = TokioIo::new(LimitedSocket { socket, read_limit });
    // The head of an answer must fit into one read.
    Builder::new().read_buf_exact_size(Some(READ_BUFFER)).max_headers(MAX_HEADERS).handshake(limited).await
}

/// Sends a request and collects its whole reply of at most `limit` bytes.
pub(super) async fn round_trip<B: Body + 'static>(
    sender: &mut SendRequest<B>,
    read_limit: &ReadLimit,
    request: Request<B>,
    limit: usize,
    answers: &Arc<AnswerBudget>,
) -> Result<HttpReply, PostError> {
    read_limit.expect_head(MAX_HEAD);
    let response = sender.send_request(request).await.map_err(|error| PostError {
        nothing_sent: error.is_canceled(),
        no_response_bytes: !read_limit.has_read(),
        no_response_head: !error.is_canceled(),
        failure: failure(&error),
    })?;
    // The framing of small chunks is larger than their contents.
    read_limit.expect_body(MAX_HEAD + 2 * limit);
    collect(response, limit, answers).await.map_err(|failure| PostError {
        failure,
        nothing_sent: false,
        no_response_bytes: false,
        no_response_head: false,
    })
}

async fn collect(
    response: Response<Incoming>,
    limit: usize,
    answers: &Arc<AnswerBudget>,
) -> Result<HttpReply, CallFailure> {
    let status = response.status().as_u16();
    if status < 200 {
        return Err(CallFailure::NotHttp(format!("it sent informational status {status} as its final response")));
    }
    // If a header occurs several times, the first value counts, as in Go.
    let header = |name| response.headers().get(name).map(HeaderValue::as_bytes);
    let retry_after = header(RETRY_AFTER).and_then(header_values::retry_after);
    let readable_type = header(CONTENT_TYPE).is_none_or(is_readable_media_type);
    let gzipped = header(CONTENT_ENCODING).is_some_and(is_gzip);
    let mut body = response.into_body();
    if body.size_hint().lower() > limit as u64 {
        return Err(CallFailure::TooLarge { limit });
    }
    // Chunks are copied: one may be much smaller than the read buffer that it would keep.
    let (mut buffer, mut chunks) = (AnswerBuffer::new(answers), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| failure(&error))?.into_data() else { continue };
        chunks += 1;
        if chunks > MAX_SMALL_CHUNKS + buffer.len() / SMALL_CHUNK {
            return Err(CallFailure::NotHttp(format!("its answer comes in more than {MAX_SMALL_CHUNKS} tiny chunks")));
        }
        if buffer.len() + data.len() > limit {
            return Err(CallFailure::TooLarge { limit });
        }
        buffer.extend(&data)?;
    }
    Ok(HttpReply { retry_after, readable_type, ..HttpReply::received(status, gzipped, buffer) })
}

/// Returns the failure of a call for an error of hyper.
fn failure(error: &hyper::Error) -> CallFailure {
    let source = Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let malformed =
        source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput));
    let chain = error_chain(error);
    if error.is_parse() || malformed { CallFailure::NotHttp(chain) } else { CallFailure::Connection(chain) }
}

/// Returns the text of an error and of its causes, as far as they add to it.
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

/// Number of bytes that a hook has sent since a call began, and their maximum.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadLimit(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicUsize,
    /// Zero before the first call.
    limit: AtomicUsize,
}

impl ReadLimit {
    /// Begins a call, with that many bytes for the head of its answer.
    pub(super) fn expect_head(&self, limit: usize) {
        self.0.bytes.store(0, Relaxed);
        self.0.limit.store(limit, Relaxed);
    }

    /// Allows that many bytes for the whole answer, once the head is complete.
    pub(super) fn expect_body(&self, limit: usize) {
        self.0.limit.store(limit, Relaxed);
    }

    pub(super) fn has_read(&self) -> bool {
        self.0.bytes.load(Relaxed) > 0
    }

    /// Counts bytes. Fails if there are too many.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let limit = self.0.limit.load(Relaxed);
        if self.0.bytes.fetch_add(bytes, Relaxed) + bytes <= limit {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {limit} bytes and no end of the answer")))
    }
}

/// A socket that reads within a [`ReadLimit`].
#[derive(Debug)]
pub(super) struct LimitedSocket<S> {
    socket: S,
    read_limit: ReadLimit,
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.read_limit.add(read)?;
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Capacity of the pipe of [`read_http1`], in bytes.
const PIPE: usize = 64 << 10;

/// Reads a reply of at most `limit` bytes from a server that sends these parts and closes the connection. Used by
/// `fuzz/oracles/http1.rs`.
///
/// # Errors
/// The parts contain no valid reply.
pub async fn read_http1(parts: &[&[u8]], limit: usize, memory: &Arc<MemoryBudget>) -> Result<HttpReply, CallFailure> {
    let (ours, mut theirs) = duplex(PIPE);
    let (read_limit, answers) = (ReadLimit::default(), AnswerBudget::new(memory));
    let connected = handshake::<_, Empty<Bytes>>(ours, read_limit.clone()).await;
    let (mut sender, connection) = connected.map_err(|error| CallFailure::NotHttp(error_chain(&error)))?;
    let request = Request::post("/").header(HOST, "hook").body(Empty::new());
    let request = request.map_err(|error| CallFailure::Unwritable(error.to_string()))?;
    let server = async move {
        for part in parts {
            if theirs.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(theirs);
        pending::<Infallible>().await
    };
    let driver = async {
        // The failure of the request says why it ended.
        let _ = connection.await;
        pending::<Infallible>().await
    };
    // In this order: the request is sent before the server sends anything.
    tokio::select! {
        biased;
        reply = round_trip(&mut sender, &read_limit, request, limit, &answers) => reply.map_err(|error| error.failure),
        never = driver => match never {},
        never = server => match never {},
    }
}
