//! One reply read from bytes in memory, without a socket, for `fuzz/oracles/http1.rs`.

use std::{convert::Infallible, future::pending, sync::Arc};

use bytes::Bytes;
use http::{Request, header::HOST};
use http_body_util::Empty;
use tokio::io::{AsyncWriteExt, duplex};

use super::{
    super::{answer_room::AnswerRoom, reply::HttpReply},
    limited_socket::ReadLimit,
    reader::{error_chain, handshake, round_trip},
};
use crate::{memory::MemoryBudget, model::CallFailure};

/// Capacity of the pipe between the two ends of a connection.
const PIPE: usize = 64 << 10;

/// Reads the reply to a POST from what a server says, in these parts, before it hangs up. It has at most `limit` bytes,
/// which are held in `memory`.
///
/// # Errors
/// There is no reply in it.
pub async fn read_http1(said: &[&[u8]], limit: usize, memory: &Arc<MemoryBudget>) -> Result<HttpReply, CallFailure> {
    let (ours, mut theirs) = duplex(PIPE);
    let (read_limit, room) = (ReadLimit::default(), AnswerRoom::of_one_hook(memory));
    let connected = handshake::<_, Empty<Bytes>>(ours, read_limit.clone()).await;
    let (mut sender, connection) = connected.map_err(|error| CallFailure::NotHttp(error_chain(&error)))?;
    let request = Request::post("/").header(HOST, "hook").body(Empty::new());
    let request = request.map_err(|error| CallFailure::Unwritable(error.to_string()))?;
    let server = async move {
        for part in said {
            if theirs.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        // It hangs up.
        drop(theirs);
        pending::<Infallible>().await
    };
    let driver = async {
        // The request's failure says why it ended.
        let _ = connection.await;
        pending::<Infallible>().await
    };
    // In this order: the request is sent before the server says anything.
    tokio::select! {
        biased;
        reply = round_trip(&mut sender, &read_limit, request, limit, &room) => reply.map_err(|lost| lost.failure),
        never = driver => match never {},
        never = server => match never {},
    }
}
