//! One HTTP/2 connection: gRPC and reviews over plain HTTP.

use std::{future::poll_fn, pin::pin, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::timeout,
};

use super::{
    Front, answer,
    body::Body,
    call,
    head::{self, Route},
    limits,
    listen::Life,
    webhook,
};
use crate::telemetry::Refused;

impl Front {
    /// Serves one connection that begins as HTTP/2; see [`Front::serve`].
    pub(super) async fn serve_http2<Io>(self: Arc<Self>, worker: usize, io: Io, life: watch::Receiver<Life>)
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = h2::server::Builder::new()
            .max_frame_size(limits::FRAME)
            .initial_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_header_list_size(limits::HEADER_LIST)
            .max_concurrent_streams(self.limits().streams)
            .max_concurrent_reset_streams(limits::REFUSED_REMEMBERED)
            .max_local_error_reset_streams(Some(limits::REFUSED_FORGOTTEN))
            .handshake(io);
        let mut watched = life.clone();
        let mut draining = pin!(async move { watched.wait_for(|life| *life != Life::Serving).await.map(drop) });
        let begun = tokio::select! {
            biased;
            begun = timeout(limits::HANDSHAKE, handshake) => begun,
            _ = &mut draining => return,
        };
        let mut connection = match begun {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection did not begin as HTTP/2");
                return self.gate().metrics.refused(Refused::Protocol);
            }
            Err(_) => return self.gate().metrics.refused(Refused::Protocol),
        };
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                accepted = connection.accept() => match accepted {
                    Some(Ok((request, respond))) => self.take(worker, request, respond, &life),
                    Some(Err(error)) => return tracing::debug!(%error, "a connection broke"),
                    None => return,
                },
                _ = &mut draining, if !told => {
                    told = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }

    /// Routes one call; each runs as its own task, so that none waits for another.
    fn take(
        self: &Arc<Self>,
        worker: usize,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        life: &watch::Receiver<Life>,
    ) {
        let (parts, body) = request.into_parts();
        match head::route(&parts) {
            Ok(Route::Webhook(asks)) => {
                let front = Arc::clone(self);
                tokio::spawn(async move {
                    // A caller that goes away cancels the hook calls: leaving drops the answer in the making.
                    let reply = tokio::select! {
                        biased;
                        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
                        reply = webhook::answer(&front, worker, asks, parts, Body::Http2(body)) => reply,
                    };
                    // An error here says that the caller is gone.
                    let _ = answer::send(&mut respond, reply);
                });
            }
            Ok(Route::Admission(phase)) => {
                let front = Arc::clone(self);
                tokio::spawn(async move { call::answer(&front, worker, phase, parts.headers, body, respond).await });
            }
            Ok(route) => {
                let (front, life) = (Arc::clone(self), life.clone());
                let request = Request::from_parts(parts, body);
                tokio::spawn(async move { front.cold().answer(route, request, respond, life).await });
            }
            Err(refusal) => self.refuse(&mut respond, &refusal),
        }
    }
}
