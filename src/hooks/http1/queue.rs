//! Queue: the calls of one client that wait for a connection.

use std::{
    collections::VecDeque,
    future::{pending, ready},
    pin::{Pin, pin},
};

use tokio::sync::oneshot;

use super::{
    super::connection_budget::Slot,
    exchange::{ConnectionChoice, Exchange},
};
use crate::model::Unreachable;

/// The most calls that wait; beyond, a call fails at once.
pub(super) const MOST_WAITING: usize = 1024;

/// Room for a connection, or why there is none.
pub(super) type Room = Result<Slot, Unreachable>;

/// The calls of one client that wait for a connection, in order. Each of them is carried by a task of its own, which
/// ends with the call's deadline, and its offer then goes to the next one.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<oneshot::Sender<ConnectionChoice>>,
    /// Permit that the first of them waits for, besides a connection that is free.
    room: Option<Pin<Box<dyn Future<Output = Room> + Send>>>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Queue {
    /// One more waits; or so many do already that it must not.
    pub(super) fn join(&mut self) -> Result<ConnectionChoice, usize> {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.retain(|call| !call.is_closed());
        }
        if self.waiting.len() >= MOST_WAITING {
            return Err(self.waiting.len());
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Ok(ConnectionChoice::Wait(receiver))
    }

    /// Is the queue empty?
    pub(super) fn is_empty(&mut self) -> bool {
        while self.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.room = None;
        }
        self.waiting.is_empty()
    }

    /// Number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().filter(|call| !call.is_closed()).count()
    }

    /// It waits for room as well.
    pub(super) fn seeks(&self) -> bool {
        self.room.is_some()
    }

    /// For who has waited longest; given back where nobody waits.
    pub(super) fn offer(&mut self, mut choice: ConnectionChoice) -> Option<ConnectionChoice> {
        while let Some(call) = self.waiting.pop_front() {
            match call.send(choice) {
                Ok(()) => return None,
                // Its time was up.
                Err(back) => choice = back,
            }
        }
        Some(choice)
    }

    /// Room for a connection, once there is any; without anybody who waits, never.
    pub(super) async fn room(&mut self, exchange: &Exchange) -> Room {
        if self.is_empty() {
            return pending().await;
        }
        let room = self.room.get_or_insert_with(|| {
            let (dialler, arbiter) = (exchange.dialler.clone(), exchange.arbiter.clone());
            Box::pin(async move {
                let mut room = pin!(dialler.room());
                tokio::select! {
                    biased;
                    room = &mut room => return room,
                    // It is known to wait by now.
                    () = ready(()) => arbiter.want_room(),
                }
                room.await
            })
        });
        let result = room.as_mut().await;
        self.room = None;
        result
    }
}
