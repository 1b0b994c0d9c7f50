//! DrainingConnections: connections on which the hook takes no new calls, but still answers those it has.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use tokio::sync::{Notify, oneshot};

use super::{dial::Socket, http2::Http2Connection};

/// More are not waited for at a time: a hook that sends every call away must not pile up what it was sent.
const MOST: usize = 8;

/// Connections on which the hook takes no new calls, but still answers those it has. Each ends with its last call,
/// which has a deadline.
#[derive(Debug)]
pub(super) struct DrainingConnections {
    /// The oldest first. Letting one go ends it.
    held: VecDeque<oneshot::Sender<()>>,
    /// Rings when calls were abandoned.
    swept: Arc<Notify>,
}

impl DrainingConnections {
    pub(super) fn new(swept: Arc<Notify>) -> Self {
        Self { held: VecDeque::new(), swept }
    }

    /// Waits for the answers still due on this connection, beside the client.
    pub(super) fn add(&mut self, connection: Http2Connection<Socket>) {
        self.held.retain(|leaver| !leaver.is_closed());
        while self.held.len() >= MOST {
            self.held.pop_front();
        }
        let (held, let_go) = oneshot::channel();
        self.held.push_back(held);
        tokio::spawn(finish(connection, let_go, self.swept.clone()));
    }
}

async fn finish(mut connection: Http2Connection<Socket>, mut let_go: oneshot::Receiver<()>, swept: Arc<Notify>) {
    let mut abandoned = pin!(swept.notified());
    while !connection.is_settled() {
        tokio::select! {
            biased;
            _ = &mut let_go => connection.give_up("the hook has left too many connections without answering on them"),
            () = &mut abandoned => {
                // Before the look at who waits, so that nobody is missed.
                abandoned.set(swept.notified());
                abandoned.as_mut().enable();
                connection.cancel_abandoned();
            }
            () = connection.finish_calls() => {}
        }
    }
}
