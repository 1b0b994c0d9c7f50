//! Partial: the DATA frame of a connection that has begun and is not whole, in the memory budget.
//!
//! h2 hands a frame on once it is whole, and only then does its call find room for it. Large frames are worth having,
//! as a large object then arrives in one piece; but what has come of one would be held by nobody, on every connection.
//! Where there is no room it is read all the same, as no frame can be refused before it is whole: its call is then
//! refused.

use std::{sync::Arc, time::Instant};

use super::session::Session;
use crate::{
    front::Front,
    memory::{Purpose, Reservation},
};

/// Frames up to this are not counted: they are read at once.
pub(crate) const SMALL: usize = 32 << 10;

/// Frame that has arrived in part.
#[derive(Debug)]
pub(crate) struct Partial {
    front: Arc<Front>,
    session: Arc<Session>,
    held: Reservation,
    /// Bytes that have come and are not held yet.
    owed: usize,
}

impl Partial {
    /// Nothing, on a connection that begins.
    pub(crate) fn new(front: Arc<Front>, session: Arc<Session>) -> Self {
        let held = front.inflight().budget().empty(Purpose::Review);
        Self { front, session, held, owed: 0 }
    }

    /// Takes note of the bytes of the frame that is being read; 0 where none is, or a small one.
    pub(crate) fn has(&mut self, bytes: usize) {
        if bytes < self.held.bytes() {
            let before = self.held.bytes();
            // A frame that is whole is its call's.
            self.held.shrink_to(bytes);
            self.session.client().give_back(before - bytes);
        }
        self.owed = bytes - self.held.bytes();
        self.take();
    }

    fn take(&mut self) {
        let second = if self.owed > 0 { self.front.clients().second(Instant::now()) } else { return };
        let client = self.session.client();
        let share = self.front.inflight().share(self.front.clients(), client, second);
        if self.front.inflight().try_grow(&mut self.held, client, share, self.owed, self.owed).is_ok() {
            self.owed = 0;
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.session.client().give_back(self.held.bytes());
    }
}
