//! Action: something that whoever holds the streams is to do for the desk.

use std::time::{Duration, Instant};

use super::{InstanceId, TaskId};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the task to the instance; `attempt` is 1 the first time.
    Assign {
        /// The instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// Number of assignments, this one included.
        attempt: u32,
        /// Latest time at which its answer counts.
        deadline: Instant,
    },
    /// Tell the instance that its answer is not wanted any more.
    Cancel {
        /// The instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
    },
    /// The instance has lapsed: end its stream.
    Drop(InstanceId),
    /// The task was not answered in time.
    Late(TaskId),
    /// The task's name has had no instance for too long.
    Vacant {
        /// The task.
        task: TaskId,
        /// Time for which the name has had none.
        vacant: Duration,
    },
}

/// An answer that does not count: the task has ended, or is another's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;
