//! Requests that upgrade to another protocol (exec, attach, port-forward, a watch over WebSocket). The bytes pass
//! without inspection, over a separate connection.

use std::sync::Arc;

use http::{
    HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, UPGRADE},
};
use hyper::{client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::{
    body::Body,
    fields,
    peer::Place,
    pool::{SendError, address_http1, set_length},
    refusal::ProxyRefusal,
    upstream::Upstream,
};

/// Passes the request, and then the bytes in both directions.
pub(super) async fn pass(
    upstream: &Upstream,
    mut request: Request<Body>,
    protocol: HeaderValue,
    client: OnUpgrade,
    place: Arc<Place>,
) -> Result<Response<Body>, ProxyRefusal> {
    let stream = upstream.connect(true).await.map_err(SendError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(SendError::Lost)?;
    tokio::spawn(connection.with_upgrades());
    set_length(&mut request);
    address_http1(&mut request, upstream);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    request.headers_mut().insert(UPGRADE, protocol);
    let mut answer = sender.send_request(request).await.map_err(SendError::Lost)?;
    *answer.version_mut() = Version::default();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        fields::end_to_end(answer.headers_mut());
        return Ok(answer.map(Body::streamed));
    }
    let apiserver = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        let copying = async {
            // A peer that is already gone has ended the upgrade.
            let Ok((client, apiserver)) = tokio::try_join!(client, apiserver) else { return };
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(apiserver)).await;
        };
        // Holds the connection permit until the upgraded connection ends, or the drain times out.
        tokio::select! {
            () = copying => {}
            () = place.cut() => {}
        }
    });
    Ok(answer.map(|_| Body::default()))
}
