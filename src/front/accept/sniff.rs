//! Sniff: HTTP version of a connection, by its first bytes, which are then read once more.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Connection preface of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Which HTTP a connection speaks.
#[derive(Debug)]
pub(crate) enum Spoken<Io> {
    Http2(Rewound<Io>),
    /// Anything that is not HTTP/2; hyper judges whether it is HTTP at all.
    Http1(Rewound<Io>),
    /// The peer said nothing and hung up.
    Nothing,
}

/// Reads until it is clear.
pub(crate) async fn spoken<Io: AsyncRead + Unpin>(mut io: Io) -> io::Result<Spoken<Io>> {
    let mut first = [0; PREFACE.len()];
    let mut len = 0;
    while len < first.len() {
        let read = io.read(&mut first[len..]).await?;
        if read == 0 && len == 0 {
            return Ok(Spoken::Nothing);
        }
        len += read;
        if read == 0 || first[..len] != PREFACE[..len] {
            return Ok(Spoken::Http1(Rewound { first, len, at: 0, io }));
        }
    }
    Ok(Spoken::Http2(Rewound { first, len, at: 0, io }))
}

/// A connection whose first bytes are read again.
#[derive(Debug)]
pub(crate) struct Rewound<Io> {
    first: [u8; PREFACE.len()],
    len: usize,
    /// Number of them that have been read again.
    at: usize,
    io: Io,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Rewound<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.at < self.len {
            let end = self.len.min(self.at + buf.remaining());
            buf.put_slice(&self.first[self.at..end]);
            self.at = end;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Rewound<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// Writes these pieces and hangs up; returns the protocol and the bytes that are then read.
    async fn sniffed(pieces: &[&[u8]]) -> (&'static str, Vec<u8>) {
        let (mut theirs, ours) = duplex(3);
        let pieces: Vec<_> = pieces.iter().map(|piece| piece.to_vec()).collect();
        tokio::spawn(async move {
            for piece in pieces {
                theirs.write_all(&piece).await.expect("written");
            }
        });
        let mut read = Vec::new();
        let (name, mut rewound) = match spoken(ours).await.expect("sniffed") {
            Spoken::Http2(rewound) => ("2", rewound),
            Spoken::Http1(rewound) => ("1", rewound),
            Spoken::Nothing => return ("-", read),
        };
        rewound.read_to_end(&mut read).await.expect("read");
        (name, read)
    }

    #[tokio::test]
    async fn the_preface_is_http_2_and_nothing_is_lost() {
        let whole = [PREFACE, &b"more"[..]].concat();
        assert_eq!(sniffed(&[&whole[..5], &whole[5..]]).await, ("2", whole));
        for other in ["POST /validate HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", "P", "\x16\x03\x01"] {
            assert_eq!(sniffed(&[other.as_bytes()]).await, ("1", other.as_bytes().to_vec()));
        }
        assert_eq!(sniffed(&[]).await, ("-", vec![]));
    }
}
