//! One HTTP/2 connection: gRPC and reviews over plain HTTP.

use std::{future::poll_fn, io, pin::pin, sync::Arc, time::Duration};

use h2::{
    Reason, RecvStream,
    server::{Connection, SendResponse},
};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, interval, timeout},
};

use super::{
    flood::Metered,
    grace,
    keepalive::{self, Beat, Keepalive},
    partial::Partial,
    session::Session,
};
use crate::{
    front::{
        Front,
        accept::{life::Life, linger::Lingering},
        answer,
        grpc::{attach, call, follow, initialization},
        http::{body::Body, webhook},
        limits,
        outgoing::Outgoing,
        route::{self, Route},
    },
    telemetry::Refused,
};

/// Time for a connection that is closed for its behaviour to be sent the reason.
const FAREWELL: Duration = Duration::from_secs(1);
/// Time for one that makes room to close, beside the reviews it has.
const LEAVE: Duration = Duration::from_secs(2);

impl Front {
    /// Serves one connection that begins as HTTP/2; see [`Front::serve`].
    pub(crate) async fn serve_http2<Io>(
        self: Arc<Self>,
        worker: usize,
        io: Io,
        session: &Arc<Session>,
        life: watch::Receiver<Life>,
    ) where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let buffers = self.buffers();
        let handshake = h2::server::Builder::new()
            .max_frame_size(buffers.frame)
            .initial_window_size(buffers.stream_window)
            .initial_connection_window_size(buffers.connection_window)
            .max_header_list_size(limits::HEADER_LIST)
            .max_concurrent_streams(self.limits().streams)
            .max_concurrent_reset_streams(limits::REFUSED_REMEMBERED)
            .max_local_error_reset_streams(Some(limits::REFUSED_FORGOTTEN))
            .handshake(Metered::new(
                // h2 shuts a connection down once its last answer is written, and then lets go of it.
                Lingering::new(io),
                Partial::new(Arc::clone(&self), Arc::clone(session)),
            ));
        let mut watched = life.clone();
        let mut draining = pin!(async move { watched.wait_for(|life| *life != Life::Serving).await.map(drop) });
        let mut evicted = pin!(session.evicted());
        let metrics = &self.gate().metrics;
        let begun = tokio::select! {
            biased;
            begun = timeout(limits::HANDSHAKE, handshake) => begun,
            () = grace::over(life.clone(), grace::length(self.limits())) => return,
            () = &mut evicted => return metrics.refused(Refused::Evicted),
        };
        let mut connection = match begun {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection did not begin as HTTP/2");
                return metrics.refused(Refused::Protocol);
            }
            Err(_) => return metrics.refused(Refused::Protocol),
        };
        let mut keepalive = Keepalive::new(connection.ping_pong());
        let mut beat = interval(keepalive::EVERY);
        let (mut closing, mut making_room) = (false, None);
        loop {
            let goaway = tokio::select! {
                biased;
                accepted = connection.accept() => match accepted {
                    Some(Ok((request, respond))) => {
                        keepalive.used();
                        self.take(session, worker, request, respond, &life);
                        false
                    }
                    Some(Err(error)) => {
                        if error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::QuotaExceeded) {
                            metrics.refused(Refused::Flood);
                        }
                        return tracing::debug!(%error, "a connection broke");
                    }
                    None => return,
                },
                _ = &mut draining, if !closing => true,
                () = &mut evicted, if making_room.is_none() => {
                    making_room = Some(Instant::now());
                    metrics.refused(Refused::Evicted);
                    !closing
                }
                now = beat.tick() => {
                    if making_room.is_some_and(|since| self.has_left(session, now.duration_since(since))) {
                        return;
                    }
                    if session.unsent().has_expired(now.into_std()) {
                        metrics.refused(Refused::Unread);
                        return farewell(connection).await;
                    }
                    match keepalive.beat(connection.has_streams(), closing) {
                        Beat::Alive => false,
                        Beat::Idle => true,
                        Beat::Dead => {
                            if !closing {
                                metrics.refused(Refused::Unanswered);
                            }
                            return;
                        }
                    }
                }
            };
            if goaway {
                closing = true;
                keepalive.used();
                connection.graceful_shutdown();
            }
        }
    }

    /// Is a connection over that was asked so long ago to make room? Another has its place already: it must not stay
    /// for the sake of a watch that never ends, nor of calls that go on and on.
    fn has_left(&self, session: &Session, since: Duration) -> bool {
        since >= if session.is_busy() { self.limits().timeout + LEAVE } else { LEAVE }
    }

    /// Routes one call; each runs as its own task, so that none waits for another.
    fn take(
        self: &Arc<Self>,
        session: &Arc<Session>,
        worker: usize,
        request: Request<RecvStream>,
        mut respond: SendResponse<Outgoing>,
        life: &watch::Receiver<Life>,
    ) {
        let (parts, body) = request.into_parts();
        match route::route(&parts) {
            Ok(Route::Webhook(route)) => {
                let (front, session) = (Arc::clone(self), Arc::clone(session));
                tokio::spawn(async move {
                    // A caller that goes away cancels the hook calls: leaving drops the answer in the making.
                    let reply = tokio::select! {
                        biased;
                        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
                        reply = webhook::answer(&front, &session, worker, route, parts, Body::Http2(body)) => reply,
                    };
                    // An error here says that the caller is gone.
                    let _ = answer::send(&mut respond, reply);
                });
            }
            Ok(Route::Admission(phase)) => {
                let (front, session) = (Arc::clone(self), Arc::clone(session));
                tokio::spawn(async move {
                    call::answer(&front, &session, worker, phase, parts.headers, body, respond).await;
                });
            }
            Ok(Route::Attach) => {
                let (front, session, life) = (Arc::clone(self), Arc::clone(session), life.clone());
                tokio::spawn(async move {
                    attach::answer(&front, &session, parts.headers, body, respond, life).await;
                });
            }
            Ok(Route::Follow) => {
                let (front, session, life) = (Arc::clone(self), Arc::clone(session), life.clone());
                tokio::spawn(async move {
                    follow::answer(&front, &session, parts.headers, body, respond, life).await;
                });
            }
            Ok(Route::Initialization(call)) => {
                let (front, session, life) = (Arc::clone(self), Arc::clone(session), life.clone());
                tokio::spawn(async move {
                    initialization::answer(&front, &session, call, parts.headers, body, respond, life).await;
                });
            }
            Ok(route) => {
                let (front, session, life) = (Arc::clone(self), Arc::clone(session), life.clone());
                let request = Request::from_parts(parts, body);
                tokio::spawn(async move {
                    front.aux_services().answer(&front, &session, route, request, respond, life).await
                });
            }
            Err(refusal) => self.refuse(&mut respond, &refusal),
        }
    }
}

/// Closes a connection, and says why if that can still be written.
async fn farewell<Io: AsyncRead + AsyncWrite + Unpin>(mut connection: Connection<Io, Outgoing>) {
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    let _ = timeout(FAREWELL, poll_fn(|cx| connection.poll_closed(cx))).await;
}

#[cfg(test)]
#[path = "http2/tests.rs"]
mod tests;
