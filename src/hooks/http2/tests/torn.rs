//! Hooks that answer and close while we still write.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::hooks::http2::testing::{call, field, headers};
use gatepost_http2_client::frame::{self, flag, kind};

/// A socket that takes the handshake and half a request. By then the answer is there, and the hook gone.
struct Torn {
    settings: Vec<u8>,
    answer: Vec<u8>,
    writes: usize,
}

impl AsyncRead for Torn {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let torn = self.writes > 2;
        let said = std::mem::take(if torn { &mut self.answer } else { &mut self.settings });
        buf.put_slice(&said);
        if said.is_empty() && !torn { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Torn {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Poll::Ready(match self.writes {
            1 => Ok(bytes.len()),
            2 => Ok(bytes.len().div_ceil(2)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_a_failed_write_is_delivered() {
    let (mut settings, mut answer) = (Vec::new(), Vec::new());
    frame::put(&mut settings, kind::SETTINGS, 0, 0, &[]);
    frame::put(&mut answer, kind::HEADERS, flag::END_HEADERS, 1, &headers());
    frame::put(&mut answer, kind::DATA, 0, 1, b"\0\0\0\0\x03yes");
    let ends = flag::END_HEADERS | flag::END_STREAM;
    frame::put(&mut answer, kind::HEADERS, ends, 1, &field("grpc-status", "0"));
    let mut connection = Http2Connection::new(
        Torn { settings, answer, writes: 0 },
        limits(1 << 20).1,
        RequestHeads::new(false, "hook:1", None),
    );
    connection.handshake().await.expect("established");
    let responses = Arc::new(Responses::default());
    let (_commands, mut received) = unbounded_channel();
    let ended = connection.drive(&mut received, vec![call(&responses, 0, body(10), Duration::from_secs(1))]).await;
    assert_eq!(responses.take_now().remove(0).1, Ok(Reply::Grpc(Bytes::from_static(b"yes"))));
    assert!(ended.answered && ended.why.expect("lost").contains("broken pipe"));
}
