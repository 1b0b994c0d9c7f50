//! ScriptedHook: a hook's side of one HTTP/2 connection, frame by frame, for tests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::hooks::{Call, GrpcRequest, HookRequest, Method, Responses, Reuse};
use gatepost_api::Rope;
use gatepost_base::clock::now;
use gatepost_http2_client::frame::{self, FrameHead, HEAD, PREFACE, flag, kind};

/// A hook's side of one connection.
#[derive(Debug)]
pub(in crate::hooks) struct ScriptedHook<S>(pub(in crate::hooks) S);

/// `:status: 200`, `content-type: application/grpc`.
pub(in crate::hooks) fn headers() -> Vec<u8> {
    [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat()
}

/// A field spelled out.
pub(in crate::hooks) fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

impl<S: AsyncRead + AsyncWrite + Unpin> ScriptedHook<S> {
    /// Over this socket: hears the greeting and greets with these settings.
    pub(in crate::hooks) async fn greet(socket: S, settings: &[(u16, u32)]) -> Self {
        let mut hook = Self(socket);
        let mut preface = [0; PREFACE.len()];
        hook.0.read_exact(&mut preface).await.expect("a preface");
        assert_eq!(preface, PREFACE);
        let payload = settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        hook.send(kind::SETTINGS, 0, 0, &payload.collect::<Vec<u8>>()).await;
        hook
    }

    pub(in crate::hooks) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut out = Vec::new();
        frame::put(&mut out, kind, flags, stream, payload);
        self.0.write_all(&out).await.expect("our connection reads");
    }

    /// As [`ScriptedHook::send`], to a connection that may have ended.
    pub(in crate::hooks) async fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut out = Vec::new();
        frame::put(&mut out, kind, flags, stream, payload);
        self.0.write_all(&out).await.is_ok()
    }

    /// The next frame, or `None` where the connection has ended.
    pub(in crate::hooks) async fn any(&mut self) -> Option<(FrameHead, Vec<u8>)> {
        let mut head = [0; HEAD];
        self.0.read_exact(&mut head).await.ok()?;
        let head = FrameHead::read(&head);
        let mut payload = vec![0; head.len];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head, payload))
    }

    /// The next frame that is about a stream, or takes leave.
    pub(super) async fn next(&mut self) -> Option<(FrameHead, Vec<u8>)> {
        loop {
            let (head, payload) = self.any().await?;
            if !matches!(head.kind, kind::SETTINGS | kind::WINDOW_UPDATE | kind::PING) {
                return Some((head, payload));
            }
        }
    }

    /// Waits until all that was sent has been read: a PING behind it is answered.
    pub(in crate::hooks) async fn wait_until_read(&mut self) {
        self.send(kind::PING, 0, 0, &[0; 8]).await;
        while let Some((head, _)) = self.any().await {
            if head.kind == kind::PING && head.has(flag::ACK) {
                return;
            }
        }
    }

    /// Reads until the connection ends.
    pub(in crate::hooks) async fn read_to_end(&mut self) {
        while self.any().await.is_some() {}
    }

    /// Reads a whole call, and returns its stream.
    pub(in crate::hooks) async fn call(&mut self) -> u32 {
        loop {
            let (head, _) = self.next().await.expect("a call");
            if head.kind == kind::DATA && head.has(flag::END_STREAM) {
                return head.stream;
            }
        }
    }

    /// Answers a gRPC call with this message.
    pub(in crate::hooks) async fn answer(&mut self, stream: u32, message: &[u8]) {
        self.send(kind::HEADERS, flag::END_HEADERS, stream, &headers()).await;
        let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
        for part in framed.chunks(16_384) {
            self.send(kind::DATA, 0, stream, part).await;
        }
        let ends = flag::END_HEADERS | flag::END_STREAM;
        self.send(kind::HEADERS, ends, stream, &field("grpc-status", "0")).await;
    }

    /// Sends GOAWAY.
    pub(in crate::hooks) async fn goaway(&mut self, last: u32, code: u32) {
        self.send(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()).await;
    }
}

/// A gRPC call of that body, to be answered within `time`.
pub(in crate::hooks) fn call(responses: &Arc<Responses>, tag: u32, body: Bytes, time: Duration) -> Call {
    Call {
        request: HookRequest::Grpc(GrpcRequest { method: Method::Validate, namespace_labels: None }),
        body: Rope::new([body]),
        deadline: now() + time,
        responses: Arc::clone(responses),
        tag,
        reuse: Reuse::Allowed,
        resends: 0,
        forwarded: gatepost_api::Hops::FIRST.into(),
    }
}
