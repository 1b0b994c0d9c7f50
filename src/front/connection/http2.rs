//! One HTTP/2 connection: gRPC and reviews over plain HTTP. Once a second it checks whether the peer still responds and
//! whether the connection is idle.

use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use futures_util::FutureExt;
use h2::{
    Ping, PingPong, Reason, RecvStream,
    server::{Connection, SendResponse},
};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, interval, timeout},
};

use super::{meter::FrameMeter, socket::Socket};
use crate::{
    front::{
        admission, answer,
        body::Body,
        grpc::{attach, follow, initialization, rule_index},
        limits,
        outgoing::Outgoing,
        route::{self, Route},
        state::ConnectionContext,
    },
    telemetry::RefusalReason,
};

/// Time to send the reason for the close to a peer that misbehaves.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for an evicted connection to close, in addition to the timeout of its reviews.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Seconds without a call after which GOAWAY is sent. Longer than the 90 seconds for which client-go keeps an idle
/// connection, so that usually the caller closes it.
const IDLE_SECONDS: u32 = 120;
/// Seconds between two PINGs.
const PING_SECONDS: u32 = 30;
/// Seconds within which a PING must be answered. A peer that stops reading or stops amid a frame misses this.
const PONG_SECONDS: u32 = 20;
/// Seconds for an idle connection to close after GOAWAY was sent.
const CLOSE_SECONDS: u32 = 10;

/// Serves one connection that begins as HTTP/2.
pub(crate) async fn serve<Io>(context: ConnectionContext, socket: Socket<Io>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let context = Arc::new(context);
    let ConnectionContext { front, session, drain, .. } = &*context;
    let (metrics, buffers) = (&front.deps.metrics, front.buffers());
    // h2 shuts the socket down after its last answer is written, and then drops it.
    let handshake = h2::server::Builder::new()
        .max_frame_size(buffers.frame)
        .initial_window_size(buffers.stream_window)
        .initial_connection_window_size(buffers.connection_window)
        .max_header_list_size(limits::MAX_HEADER_LIST)
        .max_concurrent_streams(front.limits.streams)
        .max_concurrent_reset_streams(limits::MAX_REMEMBERED_REFUSALS)
        .max_local_error_reset_streams(Some(limits::MAX_FORGOTTEN_REFUSALS))
        .handshake(socket.metered(FrameMeter::new(&context)));
    let mut draining = pin!(drain.begun());
    let mut evicted = pin!(session.evicted());
    let begun = tokio::select! {
        biased;
        begun = timeout(limits::HANDSHAKE_TIMEOUT, handshake) => begun,
        () = drain.grace_over() => return,
        () = &mut evicted => return metrics.record_refusal(RefusalReason::Evicted),
    };
    let mut connection = match begun {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection did not begin as HTTP/2");
            return metrics.record_refusal(RefusalReason::Protocol);
        }
        Err(_) => return metrics.record_refusal(RefusalReason::Protocol),
    };
    let mut keepalive = Keepalive::new(connection.ping_pong());
    let mut beat = interval(limits::BEAT_INTERVAL);
    let (mut closing, mut evicted_at) = (false, None);
    loop {
        let goaway = tokio::select! {
            biased;
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    keepalive.on_call();
                    spawn_call(&context, request, respond);
                    false
                }
                Some(Err(error)) => {
                    if error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::QuotaExceeded) {
                        metrics.record_refusal(RefusalReason::Flood);
                    }
                    return tracing::debug!(%error, "a connection broke");
                }
                None => return,
            },
            () = &mut draining, if !closing => true,
            () = &mut evicted, if evicted_at.is_none() => {
                evicted_at = Some(Instant::now());
                metrics.record_refusal(RefusalReason::Evicted);
                !closing
            }
            now = beat.tick() => {
                if evicted_at.is_some_and(|since| eviction_is_over(&context, now.duration_since(since))) {
                    return;
                }
                if session.unsent.has_expired(now.into_std()) {
                    metrics.record_refusal(RefusalReason::Unread);
                    return farewell(connection).await;
                }
                match keepalive.beat(connection.has_streams(), closing) {
                    Beat::Alive => false,
                    Beat::Idle => true,
                    Beat::Dead => {
                        if !closing {
                            metrics.record_refusal(RefusalReason::Unanswered);
                        }
                        return;
                    }
                }
            }
        };
        if goaway {
            closing = true;
            keepalive.on_call();
            connection.graceful_shutdown();
        }
    }
}

/// Returns true if a connection that was evicted `since` ago must be closed. Another connection has replaced it, so it
/// must not stay for an endless watch or for an endless sequence of calls.
fn eviction_is_over(ConnectionContext { front, session, .. }: &ConnectionContext, since: Duration) -> bool {
    since >= if session.is_busy() { front.limits.timeout + EVICTION_TIMEOUT } else { EVICTION_TIMEOUT }
}

/// Routes one call and spawns it as a task, so that calls do not wait for each other.
fn spawn_call(context: &Arc<ConnectionContext>, request: Request<RecvStream>, mut respond: SendResponse<Outgoing>) {
    let (parts, body) = request.into_parts();
    let route = match route::route(&parts) {
        Ok(route) => route,
        Err(refusal) => return context.front.send_refusal(&mut respond, &refusal),
    };
    let context = Arc::clone(context);
    match route {
        Route::Webhook(route) => {
            tokio::spawn(async move {
                // If the caller cancels, dropping the future cancels the hook calls.
                let reply = tokio::select! {
                    biased;
                    _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
                    reply = admission::answer_http(&context, route, &parts, Body::Http2(body)) => reply,
                };
                // An error means that the caller is gone.
                let _ = answer::send(&mut respond, reply);
            });
        }
        Route::Admission(phase) => {
            tokio::spawn(async move { admission::answer_grpc(&context, phase, &parts.headers, body, respond).await });
        }
        Route::Attach => {
            tokio::spawn(async move { attach::serve_stream(&context, &parts.headers, body, respond).await });
        }
        Route::Follow => {
            tokio::spawn(async move { follow::answer(&context, &parts.headers, body, respond).await });
        }
        Route::RuleIndex => {
            tokio::spawn(async move { rule_index::answer(&context, &parts.headers, body, respond).await });
        }
        Route::Initialization(call) => {
            tokio::spawn(async move {
                initialization::answer(&context, call, &parts.headers, body, respond).await;
            });
        }
        Route::Aux(service) => {
            let request = Request::from_parts(parts, body);
            tokio::spawn(async move {
                let ConnectionContext { front, session, drain, .. } = &*context;
                let answered = async {
                    let _quota_guard = front.aux_quota.take(session, service.memory())?;
                    front.aux_services.answer(service, request, &mut respond, front.limits.timeout, drain).await
                };
                if let Err(refusal) = answered.await {
                    // A response that has begun is reset.
                    front.send_refusal(&mut respond, &refusal);
                }
            });
        }
    }
}

/// Closes a connection and sends the reason, if that can still be written.
async fn farewell<Io: AsyncRead + AsyncWrite + Unpin>(mut connection: Connection<Io, Outgoing>) {
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    let _ = timeout(FAREWELL_TIMEOUT, poll_fn(|cx| connection.poll_closed(cx))).await;
}

/// State of a connection, found by the check of each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    /// No action is needed.
    Alive,
    /// It has no calls: GOAWAY must be sent.
    Idle,
    /// Its peer does not answer, or did not close in time: it must be dropped.
    Dead,
}

/// Seconds that a connection has spent in its states.
#[derive(Debug)]
struct Keepalive {
    ping: Option<PingPong>,
    since_ping: u32,
    ping_answered: bool,
    idle: u32,
}

impl Keepalive {
    fn new(ping: Option<PingPong>) -> Self {
        Self { ping, since_ping: 0, ping_answered: true, idle: 0 }
    }

    /// Records that the connection is in use.
    fn on_call(&mut self) {
        self.idle = 0;
    }

    /// Advances by one second. `has_calls` says whether calls are open, `closing` whether GOAWAY was sent.
    fn beat(&mut self, has_calls: bool, closing: bool) -> Beat {
        self.idle = if has_calls { 0 } else { self.idle + 1 };
        if closing {
            return if self.idle > CLOSE_SECONDS { Beat::Dead } else { Beat::Alive };
        }
        if self.idle >= IDLE_SECONDS {
            self.idle = 0;
            return Beat::Idle;
        }
        self.since_ping += 1;
        if let Some(ping) = &mut self.ping {
            let pong = poll_fn(|cx| match ping.poll_pong(cx) {
                Poll::Ready(pong) => Poll::Ready(pong.is_ok()),
                Poll::Pending => Poll::Ready(false),
            });
            self.ping_answered |= pong.now_or_never().unwrap_or(false);
            if !self.ping_answered && self.since_ping >= PONG_SECONDS {
                return Beat::Dead;
            }
            if self.ping_answered && self.since_ping >= PING_SECONDS {
                (self.since_ping, self.ping_answered) = (0, ping.send_ping(Ping::opaque()).is_err());
            }
        }
        Beat::Alive
    }
}

#[cfg(test)]
mod tests;
