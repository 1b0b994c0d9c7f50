//! Watch: resources that the sidecar has used so far, read at both ends of the window.

use std::{path::PathBuf, time::Duration};

use super::{Settings, counts::Counts};
use crate::{Fallible, process};

/// Process to watch, if any.
pub(super) struct Watch {
    pid: Option<u32>,
    counts: Option<PathBuf>,
}

/// Resources used: since the process began as read, between two readings after [`Used::since`].
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) cpu: Option<Duration>,
    pub(super) counts: Option<Counts>,
}

impl Watch {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { pid: settings.watch_pid, counts: settings.watch_counts.clone() }
    }

    pub(super) fn read(&self) -> Fallible<Used> {
        Ok(Used {
            cpu: self.pid.map(process::cpu_time).transpose()?,
            counts: self.counts.as_deref().map(Counts::read).transpose()?,
        })
    }
}

impl Used {
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.zip(before.cpu).map(|(after, before)| after.saturating_sub(before)),
            counts: self.counts.zip(before.counts).map(|(after, before)| after.since(before)),
        }
    }
}
