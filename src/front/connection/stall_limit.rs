//! StallLimit: a connection that ends when its peer takes nothing for too long.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection whose writes fail once the peer has taken nothing of them for so long.
#[derive(Debug)]
pub(crate) struct StallLimit<Io> {
    io: Io,
    limit: Duration,
    /// Since the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<Io> StallLimit<Io> {
    pub(crate) fn new(io: Io, limit: Duration) -> Self {
        Self { io, limit, stalled: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for StallLimit<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for StallLimit<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, progress)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_for_too_long_ends_the_connection() {
        let (ours, _theirs) = duplex(4);
        let mut ours = StallLimit::new(ours, LIMIT);
        assert_eq!(ours.write_all(b"more than fits").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_slow_is_given_everything() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = StallLimit::new(ours, LIMIT);
        let writing = tokio::spawn(async move { ours.write_all(&[b'x'; 40]).await });
        let mut taken = Vec::new();
        while taken.len() < 40 {
            sleep(LIMIT - Duration::from_secs(1)).await;
            let mut piece = [0; 4];
            let length = theirs.read(&mut piece).await.unwrap();
            taken.extend_from_slice(&piece[..length]);
        }
        writing.await.unwrap().unwrap();
    }
}
