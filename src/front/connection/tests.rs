//! How an answer leaves.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
    time::Instant,
};

use http::Request;
use tokio::io::{DuplexStream, ReadBuf, duplex};

use super::*;
use crate::{admit::Reasons, live::Current, telemetry::Audit};

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

fn front() -> Arc<Front> {
    let gate = Gate {
        current: Arc::new(Current::new(Instant::now())),
        metrics: Arc::default(),
        audit: Arc::new(Audit::off()),
        reasons: Reasons::First,
        namespaces: None,
    };
    gate.current.stamp(Instant::now());
    Front::new(Arc::new(gate), Limits::default()).expect("front")
}

/// A framed review with uid "u" and operation CREATE.
const MESSAGE: &[u8] = b"\0\0\0\0\x0d\x0a\x0b\x0a\x01u:\x06CREATE";

#[tokio::test]
async fn headers_verdict_and_trailers_leave_in_one_write() {
    let (ours, theirs) = duplex(1 << 16);
    let writes = Arc::new(AtomicUsize::new(0));
    let (_life, watched) = watch::channel(Life::Serving);
    tokio::spawn(front().serve(0, Counted(theirs, Arc::clone(&writes)), watched));
    let (mut send, connection) = h2::client::handshake(ours).await.expect("handshake");
    tokio::spawn(connection);
    let mut before = 0;
    for _ in 0..5 {
        before = writes.load(Ordering::Relaxed);
        let request = Request::post("http://gatepost/gatepost.v1.Admission/Review")
            .header("content-type", "application/grpc")
            .body(())
            .expect("request");
        send = send.ready().await.expect("ready");
        let (response, mut stream) = send.send_request(request, false).expect("sent");
        stream.send_data(MESSAGE.into(), true).expect("sent");
        let mut body = response.await.expect("answered").into_body();
        while poll_fn(|cx| body.poll_data(cx)).await.is_some() {}
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await.expect("ended").expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
    }
    // The first calls share their writes with the settings' acknowledgements.
    assert_eq!(writes.load(Ordering::Relaxed) - before, 1);
}
