//! Writing of an answer.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::front::testing::{MESSAGE, connect, front, refused, review, serve};

/// A stream that counts the writes that reach it.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn verdict_leaves_with_its_headers_and_trailers_in_one_write() {
    let (ours, theirs) = duplex(1 << 16);
    let writes = Arc::new(AtomicUsize::new(0));
    let (_life, _serving) = serve(&front(1 << 20), Counted(theirs, Arc::clone(&writes)));
    let (mut send, connection) = h2::client::handshake(ours).await.expect("handshake");
    tokio::spawn(connection);
    let mut before = 0;
    for _ in 0..5 {
        before = writes.load(Ordering::Relaxed);
        send = send.ready().await.expect("ready");
        let (response, mut stream) = send.send_request(review(), false).expect("sent");
        stream.send_data(MESSAGE.into(), true).expect("sent");
        let response = response.await.expect("answered");
        assert_eq!(response.headers().get("grpc-message"), None);
        let mut body = response.into_body();
        while poll_fn(|cx| body.poll_data(cx)).await.is_some() {}
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await.expect("ended").expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
    }
    // The first calls share their writes with the settings' acknowledgements.
    assert_eq!(writes.load(Ordering::Relaxed) - before, 1);
}

/// Writes these bytes; returns the answer, the time that the connection then lasts, and the counts.
async fn answered(bytes: &[u8]) -> (String, u64, f64) {
    let front = front(1 << 20);
    let (mut ours, _life, _serving) = connect(&front);
    let began = tokio::time::Instant::now();
    ours.write_all(bytes).await.expect("written");
    let mut answer = String::new();
    ours.read_to_string(&mut answer).await.expect("an end");
    (answer, began.elapsed().as_secs(), refused(&front, "protocol"))
}

#[tokio::test(start_paused = true)]
async fn silent_and_dripping_connections_time_out() {
    assert_eq!(answered(b"").await, (String::new(), limits::HANDSHAKE_TIMEOUT.as_secs(), 1.0));
    assert_eq!(answered(b"PRI * HT").await, (String::new(), limits::HANDSHAKE_TIMEOUT.as_secs(), 1.0));
    let (answer, lasted, _) = answered(b"POST /validate HTTP/1.1\r\nhost: gat").await;
    assert_eq!((answer.as_str(), lasted), ("", limits::HEAD_OR_IDLE_TIMEOUT.as_secs()));
    // An idle connection lives longer than any caller keeps one.
    let (answer, lasted, _) = answered(b"GET /validate HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert_eq!(lasted, limits::HEAD_OR_IDLE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn connection_that_is_not_http_is_refused_and_counted() {
    let (answer, _, counted) = answered(b"\x00\x01 garbage\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(counted, 1.0);
}
