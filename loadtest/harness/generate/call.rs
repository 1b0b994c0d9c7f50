//! Caller: one connection to the sidecar and the review it sends again and again.

use std::sync::Arc;

use bytes::Bytes;
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Method, Request};
use prost::Message;
use tokio::net::TcpStream;

use super::{Settings, numbered::Numbered};
use crate::{Fallible, review::UID};

const WINDOW: u32 = 1 << 20;

/// Sends one fixed review over one connection; clones share the connection, and the numbers of reviews that have any.
#[derive(Clone)]
pub(super) struct Caller {
    streams: SendRequest<Bytes>,
    body: Bytes,
    numbered: Option<Arc<Numbered>>,
    request: Request<()>,
}

/// The callers, each with its own connection, honouring whatever frame size the sidecar allows.
pub(super) async fn connect(settings: &Settings, body: &Bytes) -> Fallible<Vec<Caller>> {
    let Settings { target, connections, deadline, mutate, .. } = *settings;
    let method = if mutate { "Mutate" } else { "Review" };
    let numbered = mutate.then(|| Numbered::new(body)).transpose()?.map(Arc::new);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{target}/gatepost.v1.Admission/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", deadline.as_millis()))
        .body(())?;
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let socket = TcpStream::connect(target).await?;
        socket.set_nodelay(true)?;
        let (streams, connection) = client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .initial_max_send_streams(4096)
            .handshake(socket)
            .await?;
        tokio::spawn(connection);
        let (streams, body) = (streams.ready().await?, body.clone());
        callers.push(Caller { streams, body, numbered: numbered.clone(), request: request.clone() });
    }
    Ok(callers)
}

/// End of a review that is not an error of the measurement.
pub(super) enum Ended {
    Allowed,
    /// The sidecar gave up at the review's deadline.
    Expired,
}

impl Caller {
    /// One review there and back; an error unless the verdict is `allowed` for our uid.
    pub(super) async fn call(&self) -> Fallible<()> {
        match self.call_within_deadline().await? {
            Ended::Allowed => Ok(()),
            Ended::Expired => Err("the sidecar gave up at a review's deadline".into()),
        }
    }

    /// The same, for who counts the reviews whose deadline ends.
    pub(super) async fn call_within_deadline(&self) -> Fallible<Ended> {
        let mut streams = self.streams.clone().ready().await?;
        let (review, uid) = match &self.numbered {
            Some(numbered) => numbered.next(),
            None => (self.body.clone(), UID.into()),
        };
        let (response, mut body) = streams.send_request(self.request.clone(), false)?;
        body.send_data(review, true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut answer = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            answer.extend_from_slice(&chunk);
        }
        let trailers = body.trailers().await?.unwrap_or(head.headers);
        check(&answer, &trailers, &uid)
    }
}

fn check(answer: &[u8], trailers: &HeaderMap, uid: &str) -> Fallible<Ended> {
    if is_expired(trailers) {
        return Ok(Ended::Expired);
    }
    if trailers.get("grpc-status").is_none_or(|status| status != "0") {
        return Err(format!("the sidecar answered no verdict: {trailers:?}").into());
    }
    let message = answer.get(5..).ok_or("the sidecar answered without a message")?;
    let response = AdmissionReview::decode(message)?.response.ok_or("the sidecar answered without a response")?;
    match (response.allowed, response.uid.as_deref()) {
        (Some(true), Some(repeated)) if repeated == uid => Ok(Ended::Allowed),
        _ => Err(format!("the sidecar did not allow our review: {response:?}").into()),
    }
}

/// DEADLINE_EXCEEDED; tonic's server says CANCELLED instead, with these words.
fn is_expired(trailers: &HeaderMap) -> bool {
    let is = |name, value: &str| trailers.get(name).is_some_and(|there| there == value);
    is("grpc-status", "4") || (is("grpc-status", "1") && is("grpc-message", "Timeout%20expired"))
}
