//! One HTTP/1.1 connection: reviews over plain HTTP, one after the other. hyper's server.

use std::{convert::Infallible, future::poll_fn, pin::pin, sync::Arc};

use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::interval,
};

use super::{grace, keepalive, session::Session};
use crate::{
    front::{
        Front,
        accept::{life::Life, linger::linger_unless_evicted},
        http::{body::Body, webhook},
        limits,
        outgoing::Outgoing,
        refusal::Refusal,
        route::{self, Route},
    },
    telemetry::Refused,
};

impl Front {
    /// Serves one connection that does not begin as HTTP/2; see [`Front::serve`]. When the caller hangs up, hyper drops
    /// the answer in the making, and with it the hook calls.
    pub(crate) async fn serve_http1<Io>(
        self: Arc<Self>,
        worker: usize,
        io: Io,
        session: &Arc<Session>,
        life: watch::Receiver<Life>,
    ) where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let (front, session, life) = (Arc::clone(&self), Arc::clone(session), life.clone());
            Box::pin(async move {
                let mut reply = front.reply(&session, worker, request).await.map(Full::new);
                if *life.borrow() != Life::Serving {
                    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(reply)
            })
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits::HEAD_OR_IDLE)
            .max_header_size(limits::HEADER_LIST as usize)
            .max_buf_size(self.buffers().read)
            // Verdicts stay what they are until they are written, and are not copied into a buffer.
            .writev(true)
            .serve_connection(TokioIo::new(io), service);
        // Until then the peer may not know, and be asking: its request is answered, and the answer says that it is the
        // last.
        let mut draining = pin!(grace::over(life.clone(), grace::length(self.limits())));
        let mut evicted = pin!(session.evicted());
        let mut beat = interval(keepalive::EVERY);
        let (mut message, mut making_room) = (false, false);
        let ended = loop {
            tokio::select! {
                biased;
                ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
                () = &mut draining, if !message => {
                    message = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = &mut evicted, if !making_room => {
                    making_room = true;
                    self.gate().metrics.refused(Refused::Evicted);
                    if !session.is_busy() {
                        return;
                    }
                    Pin::new(&mut connection).graceful_shutdown();
                }
                now = beat.tick() => if session.unsent().has_expired(now.into_std()) {
                    return self.gate().metrics.refused(Refused::Unread);
                }
            }
        };
        match ended {
            Err(error) if error.is_parse() => {
                tracing::debug!(%error, "a connection did not speak HTTP/1.1");
                self.gate().metrics.refused(Refused::Protocol);
            }
            Err(error) => return tracing::debug!(%error, "a connection broke"),
            Ok(()) => {}
        }
        linger_unless_evicted(connection.into_parts().io.into_inner(), session).await;
    }

    async fn reply(&self, session: &Session, worker: usize, request: Request<Incoming>) -> Response<Outgoing> {
        let (parts, body) = request.into_parts();
        match route::route(&parts) {
            Ok(Route::Webhook(route)) => webhook::answer(self, session, worker, route, parts, Body::Http1(body)).await,
            Ok(_) => self.refused(session, &Refusal::GrpcOverHttp1),
            Err(refusal) => self.refused(session, &refusal),
        }
    }
}

#[cfg(test)]
#[path = "http1/tests.rs"]
mod tests;
