//! Link: one HTTP/1.1 connection to a hook. A POST out, its reply in.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderValue, Request, Response, Uri,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT},
};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::Notify, task::AbortHandle, time::timeout};

use super::{
    super::{
        call::{Call, HttpReply},
        dial::Socket,
        post::{self, Media},
    },
    body::RopeBody,
    wire::{Heard, Wire},
};
use crate::model::{CallFailure, HttpForm, Step, Unreachable};

/// A hook that has answered without hearing us out gets so long to do so; then its connection is not used again.
const HEARS_OUT_WITHIN: Duration = Duration::from_millis(50);

/// One connection, with nothing under way on it. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<RopeBody>,
    heard: Heard,
    driver: AbortHandle,
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
    pub(super) unsent: bool,
    /// The connection ended before the hook said anything.
    pub(super) silent: bool,
}

impl Link {
    /// Over this socket; `gone` rings when it ends.
    pub(super) async fn over(socket: Socket, gone: Arc<Notify>) -> Result<Self, CallFailure> {
        let heard = Heard::default();
        let wire = TokioIo::new(Wire::new(socket, heard.clone()));
        let (sender, connection) =
            handshake(wire).await.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Greet, told(&error))))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whose call it ended was told already; an idle connection may end as it likes.
                tracing::trace!(error = told(&error), "connection to a hook ended");
            }
            gone.notify_one();
        });
        Ok(Self { sender, heard, driver: driver.abort_handle() })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Posts, and collects the whole reply. The link comes back where it can carry another call.
    pub(super) async fn post(
        mut self,
        request: Request<RopeBody>,
        limit: usize,
    ) -> Result<(HttpReply, Option<Self>), Lost> {
        self.heard.clear();
        let response = self.sender.send_request(request).await.map_err(|error| Lost {
            unsent: error.is_canceled(),
            silent: !self.heard.anything(),
            failure: failure(&error),
        })?;
        let reply = collect(response, limit).await.map_err(|failure| Lost { failure, unsent: false, silent: false })?;
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
) -> Result<Request<RopeBody>, CallFailure> {
    let media = Media::of(form);
    let mut whole = Vec::with_capacity(path.len() + 16);
    post::write_path(path, call.deadline.saturating_duration_since(Instant::now()), &mut whole);
    let unwritable = |error: &dyn std::error::Error| CallFailure::Unwritable(format!("its path: {error}"));
    let uri = Uri::from_maybe_shared(Bytes::from(whole)).map_err(|error| unwritable(&error))?;
    Request::post(uri)
        .header(HOST, host)
        .header(CONTENT_TYPE, HeaderValue::from_static(media.content_type()))
        .header(ACCEPT, HeaderValue::from_static(media.accept()))
        .header(USER_AGENT, HeaderValue::from_static(post::USER_AGENT))
        .header(CONTENT_LENGTH, HeaderValue::from(call.body.len()))
        .body(RopeBody::new(call.body.clone()))
        .map_err(|error| unwritable(&error))
}

async fn collect(response: Response<Incoming>, limit: usize) -> Result<HttpReply, CallFailure> {
    let status = response.status().as_u16();
    if status < 200 {
        return Err(CallFailure::NotHttp(format!("it answered with HTTP status {status}, which ends no call")));
    }
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after =
        retry_after.and_then(|value| super::super::retry_after::read(value.as_bytes(), SystemTime::now()));
    let mut body = response.into_body();
    if hyper::body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(CallFailure::TooLarge { limit });
    }
    // Most replies are one piece, which is kept as it came.
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| failure(&error))?.into_data() else { continue };
        if first.len().max(all.len()) + data.len() > limit {
            return Err(CallFailure::TooLarge { limit });
        }
        if first.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&data);
    }
    Ok(HttpReply { status, retry_after, body: if all.is_empty() { first } else { all.freeze() } })
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
