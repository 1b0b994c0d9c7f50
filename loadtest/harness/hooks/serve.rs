//! One hook's listener, and the connections of hooks that wait or hang; the others are `lean`.

use std::{future, sync::Arc};

use bytes::Bytes;
use h2::{RecvStream, server};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{Behaviour, answer, lean};
use crate::Fallible;

const LARGEST_FRAME: u32 = 16 << 10;

/// Accepts connections for ever; a connection's end is the peer's business and is not reported.
pub(super) async fn accept(listener: TcpListener, tls: Option<Arc<TlsAcceptor>>, behaviour: Behaviour) {
    while let Ok((socket, _)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            socket.set_nodelay(true)?;
            match tls {
                Some(tls) => connection(tls.accept(socket).await?, behaviour).await,
                None => connection(socket, behaviour).await,
            }
        });
    }
}

async fn connection(socket: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour) -> Fallible<()> {
    if !behaviour.hangs && behaviour.delay.is_zero() {
        return lean::connection(socket, behaviour).await;
    }
    let mut connection = server::Builder::new()
        .initial_window_size(behaviour.window)
        .initial_connection_window_size(behaviour.window)
        .max_frame_size(LARGEST_FRAME)
        .max_concurrent_streams(4096)
        .handshake::<_, Bytes>(socket)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        tokio::spawn(stream(request, respond, behaviour));
    }
    Ok(())
}

async fn stream(
    request: http::Request<RecvStream>,
    mut respond: server::SendResponse<Bytes>,
    behaviour: Behaviour,
) -> Fallible<()> {
    let (head, mut body) = request.into_parts();
    if head.uri.path() == "/grpc.health.v1.Health/Check" {
        return answer::send(&mut respond, answer::serving());
    }
    if behaviour.hangs {
        // Reading on keeps the connection usable; the answer never comes.
        drain(&mut body).await?;
        return future::pending().await;
    }
    if !behaviour.delay.is_zero() {
        tokio::time::sleep(behaviour.delay).await;
    }
    let arrived = drain(&mut body).await?;
    answer::send(&mut respond, answer::verdict(&arrived.beginning, arrived.length))
}

/// Part of a body that is kept: enough for the gRPC header and the uid, and its length.
struct Arrived {
    beginning: Vec<u8>,
    length: usize,
}

async fn drain(body: &mut RecvStream) -> Fallible<Arrived> {
    let mut arrived = Arrived { beginning: Vec::with_capacity(answer::BEGINNING), length: 0 };
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        let wanted = chunk.len().min(answer::BEGINNING - arrived.beginning.len());
        arrived.beginning.extend_from_slice(&chunk[..wanted]);
        arrived.length += chunk.len();
    }
    Ok(arrived)
}
