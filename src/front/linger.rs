//! Linger: closing a connection without taking back what was said on it.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// For how long a peer may go on sending after we have hung up.
const LINGER: Duration = Duration::from_secs(1);

/// Ends our side, then reads what the peer still sends, and drops it. A socket that is closed with bytes unread resets
/// the connection, and the peer may then never see the answer that was on its way.
pub(super) async fn linger<Io: AsyncRead + AsyncWrite + Unpin>(mut io: Io) {
    let reading = async {
        io.shutdown().await?;
        let mut dropped = [0; 16 << 10];
        while io.read(&mut dropped).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // Neither a peer that goes on nor one that is gone matters any more.
    let _ = timeout(LINGER, reading).await;
}
