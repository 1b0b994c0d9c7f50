//! Outgoing: the body of an answer, held in the memory budget until the connection has written it.

use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::connection::unsent::Expiring;
use crate::{initialize::hub::TaskMessage, memory::Reservation};

/// The body of an answer. Its reservation is given back when it is dropped: once it is written, or its stream is reset,
/// or its connection ends.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Bytes,
    /// Its bytes in the memory budget.
    _reserved: Option<Reservation>,
    /// The task that has its bytes in the memory budget, for every instance that gets them.
    _task: Option<Arc<TaskMessage>>,
    /// Its time on its connection.
    _expiring: Option<Expiring>,
}

impl Outgoing {
    /// A verdict with its place in the memory budget, and by when it has to be written.
    pub(super) fn held(bytes: Bytes, reserved: Reservation, expiring: Expiring) -> Self {
        Self { bytes, _reserved: Some(reserved), _expiring: Some(expiring), ..Self::default() }
    }

    /// The review of a task, and by when it has to be written.
    pub(super) fn of_task(task: Arc<TaskMessage>, expiring: Expiring) -> Self {
        Self { bytes: task.review.clone(), _task: Some(task), _expiring: Some(expiring), ..Self::default() }
    }

    /// The same, which has to be written by then.
    pub(super) fn until(self, expiring: Expiring) -> Self {
        Self { _expiring: Some(expiring), ..self }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Small texts of ours.
impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
