//! One HTTP/1.1 connection, served by hyper: reviews over plain HTTP, one after another.

use std::{convert::Infallible, future::poll_fn, pin::pin, sync::Arc};

use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::interval,
};

use super::socket::Socket;
use crate::{
    front::{
        admission,
        body::Body,
        limits,
        outgoing::Outgoing,
        refusal::Refusal,
        route::{self, Route},
        state::ConnectionContext,
    },
    telemetry::RefusalReason,
};

/// Serves one connection that does not begin as HTTP/2. When the caller disconnects, hyper drops the pending answer,
/// and with it the hook calls.
pub(crate) async fn serve<Io>(context: ConnectionContext, socket: Socket<Io>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let context = Arc::new(context);
    let ConnectionContext { front, session, drain, .. } = &*context;
    let service = service_fn(|request: Request<Incoming>| {
        let context = Arc::clone(&context);
        Box::pin(async move {
            let mut reply = answer(&context, request).await.map(Full::new);
            if context.drain.has_begun() {
                reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(reply)
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_OR_IDLE_TIMEOUT)
        .max_header_size(limits::MAX_HEADER_LIST as usize)
        .max_buf_size(front.buffers().read)
        // Writes verdicts without copying them into hyper's buffer.
        .writev(true)
        .serve_connection(TokioIo::new(socket), service);
    // Until the grace is over the peer might send a request before it knows of the drain. That request is answered,
    // and the answer announces the close.
    let mut draining = pin!(drain.grace_over());
    let mut evicted = pin!(session.evicted());
    let mut beat = interval(limits::BEAT_INTERVAL);
    let (mut shutdown_begun, mut eviction_begun) = (false, false);
    let ended = loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
            () = &mut draining, if !shutdown_begun => {
                shutdown_begun = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = &mut evicted, if !eviction_begun => {
                eviction_begun = true;
                front.deps.metrics.record_refusal(RefusalReason::Evicted);
                if !session.is_busy() {
                    return;
                }
                Pin::new(&mut connection).graceful_shutdown();
            }
            now = beat.tick() => if session.unsent.has_expired(now.into_std()) {
                return front.deps.metrics.record_refusal(RefusalReason::Unread);
            }
        }
    };
    match ended {
        Err(error) if error.is_parse() => {
            tracing::debug!(%error, "a connection did not speak HTTP/1.1");
            front.deps.metrics.record_refusal(RefusalReason::Protocol);
        }
        Err(error) => return tracing::debug!(%error, "a connection broke"),
        Ok(()) => {}
    }
    connection.into_parts().io.into_inner().close_unless_evicted(session).await;
}

async fn answer(context: &ConnectionContext, request: Request<Incoming>) -> Response<Outgoing> {
    let (parts, body) = request.into_parts();
    match route::route(&parts) {
        Ok(Route::Webhook(route)) => admission::answer_http(context, route, &parts, Body::Http1(body)).await,
        Ok(_) => context.front.refusal_response(&context.session, &Refusal::GrpcOverHttp1),
        Err(refusal) => context.front.refusal_response(&context.session, &refusal),
    }
}

#[cfg(test)]
mod tests;
