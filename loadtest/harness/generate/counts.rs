//! Counts: figures of the counting build, read over its socket.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::Fallible;

/// Totals since the start, and how much is live.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counts {
    /// Bytes allocated
    pub(crate) bytes: u64,
    /// Allocations
    pub(crate) allocations: u64,
    /// Allocations of 4 KiB and more
    pub(crate) large: u64,
    /// Bytes live now
    pub(crate) live: u64,
    /// Most bytes ever live at once, since the last reset
    pub(crate) peak: u64,
}

impl Counts {
    /// Asks the counting build behind `socket`.
    pub(crate) fn read(socket: &Path) -> Fallible<Self> {
        Self::ask(socket, "read")
    }

    /// Lets the peak begin again at what is live now.
    pub(crate) fn reset(socket: &Path) -> Fallible<Self> {
        Self::ask(socket, "reset")
    }

    /// Totals between `before` and now; live and peak as they are now.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            allocations: self.allocations - before.allocations,
            large: self.large - before.large,
            ..self
        }
    }

    fn ask(socket: &Path, question: &str) -> Fallible<Self> {
        let mut stream = UnixStream::connect(socket)?;
        writeln!(stream, "{question}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}
