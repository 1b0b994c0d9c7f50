//! Http1Connection: one HTTP/1.1 connection to a hook. A POST out, its reply in.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT},
};
use hyper::client::conn::http1::SendRequest;
use tokio::{sync::Notify, task::AbortHandle, time::timeout};

use super::{
    super::{
        answer_room::AnswerRoom,
        call::Call,
        dial::Socket,
        gzip,
        post::{self, Media},
        reply::HttpReply,
    },
    body::RopeBody,
    limited_socket::ReadLimit,
    reader::{Lost, error_chain, handshake, round_trip},
};
use crate::model::{CallFailure, Hops, HttpForm, Step, Unreachable};

/// A hook that has answered without hearing us out gets so long to do so; then its connection is not used again.
const HEARS_OUT_WITHIN: Duration = Duration::from_millis(50);

/// One connection, with nothing under way on it. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<RopeBody>,
    read_limit: ReadLimit,
    driver: AbortHandle,
    beyond_guarantee: bool,
}

impl Drop for Http1Connection {
    /// An idle connection is shut down in order. Otherwise it is cut: bytes still queued for a hook that does not read
    /// must not keep the socket open.
    fn drop(&mut self) {
        if !self.sender.is_ready() {
            self.driver.abort();
        }
    }
}

impl Http1Connection {
    /// Over this socket; `gone` rings when it ends.
    pub(super) async fn over(socket: Socket, gone: Arc<Notify>) -> Result<Self, CallFailure> {
        let (read_limit, beyond_guarantee) = (ReadLimit::default(), socket.is_beyond_guarantee());
        let connected = handshake(socket, read_limit.clone()).await;
        let (sender, connection) =
            connected.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Handshake, error_chain(&error))))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // The call that it ended has failed already; an idle connection may end as it likes.
                tracing::trace!(error = error_chain(&error), "connection to a hook ended");
            }
            gone.notify_one();
        });
        Ok(Self { sender, read_limit, driver: driver.abort_handle(), beyond_guarantee })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Its socket is beyond what the hook is guaranteed.
    pub(super) fn is_beyond_guarantee(&self) -> bool {
        self.beyond_guarantee
    }

    /// Posts, and collects the whole reply. The connection comes back where it can carry another call.
    pub(super) async fn post(
        mut self,
        request: Request<RopeBody>,
        limit: usize,
        room: &Arc<AnswerRoom>,
    ) -> Result<(HttpReply, Option<Self>), Lost> {
        let reply = round_trip(&mut self.sender, &self.read_limit, request, limit, room).await?;
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
