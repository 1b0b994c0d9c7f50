//! One caller's connection, and what all of them share.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::timeout,
};

use super::{
    Limits, answer, call,
    cold::Cold,
    head::{self, Route},
    inflight::Inflight,
    limits,
    listen::Life,
    readiness,
    refusal::Refusal,
};
use crate::{
    admit::Gate,
    telemetry::{Reading, Refused},
};

/// What all connections share.
#[derive(Debug)]
pub struct Front {
    gate: Arc<Gate>,
    limits: Limits,
    inflight: Arc<Inflight>,
    cold: Cold,
}

/// Why the front cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the descriptors that reflection serves are broken; this is a bug in gatepost: {0}")]
pub struct BuildError(#[from] tonic_reflection::server::Error);

impl Front {
    /// Builds the front and registers what it knows with the gate's metrics.
    pub fn new(gate: Arc<Gate>, limits: Limits) -> Result<Arc<Self>, BuildError> {
        let inflight = Inflight::new(limits.inflight_bytes);
        let (requests, bytes) = (Arc::clone(&inflight), Arc::clone(&inflight));
        gate.metrics.observe(Reading::InflightRequests, move || Some(requests.requests() as f64));
        gate.metrics.observe(Reading::InflightBytes, move || Some(bytes.bytes() as f64));
        readiness::observe(&gate);
        let cold = Cold::new(Arc::clone(&gate.current))?;
        Ok(Arc::new(Self { gate, limits, inflight, cold }))
    }

    /// The gate reviews are brought to.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// How much callers may ask at once.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is in flight.
    pub fn inflight(&self) -> &Arc<Inflight> {
        &self.inflight
    }

    pub(super) fn cold(&self) -> &Cold {
        &self.cold
    }

    /// Counts and answers a refusal.
    pub(super) fn refuse(&self, respond: &mut SendResponse<Bytes>, refusal: &Refusal) {
        if let Some(reason) = refusal.counted() {
            self.gate.metrics.refused(reason);
        }
        if *refusal != Refusal::Cancelled {
            // An error here says that the caller is gone.
            let _ = answer::refuse(respond, refusal);
        }
    }

    /// Serves one connection on the runtime this is polled on, until the caller closes it or `life` ends it: from
    /// [`Life::Draining`] on, calls under way are finished and no new ones taken.
    pub(super) async fn serve<Io>(self: Arc<Self>, worker: usize, io: Io, life: watch::Receiver<Life>)
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = h2::server::Builder::new()
            .max_frame_size(limits::FRAME)
            .initial_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_header_list_size(limits::HEADER_LIST)
            .max_concurrent_streams(self.limits.streams)
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
                return self.gate.metrics.refused(Refused::NotGrpc);
            }
            Err(_) => return self.gate.metrics.refused(Refused::NotGrpc),
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

#[cfg(test)]
#[path = "connection/tests.rs"]
mod tests;
