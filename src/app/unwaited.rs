//! UnwaitedRuntime: a runtime whose end waits for nothing that blocks.

use std::{io, ops::Deref};

use tokio::runtime::{Builder, Runtime};

/// A runtime whose end waits for nothing that blocks. An ordinary one waits, when it is dropped, until every read of a
/// file and every look-up of a name has ended, and some of them never do.
#[derive(Debug)]
pub(crate) struct UnwaitedRuntime(Option<Runtime>);

impl UnwaitedRuntime {
    /// A runtime on the thread that uses it.
    ///
    /// # Errors
    /// The operating system gives us no event queue.
    pub(crate) fn new() -> io::Result<Self> {
        Self::build(Builder::new_current_thread().enable_all())
    }

    /// As the builder says.
    ///
    /// # Errors
    /// As [`UnwaitedRuntime::new`].
    pub(crate) fn build(builder: &mut Builder) -> io::Result<Self> {
        builder.build().map(|runtime| Self(Some(runtime)))
    }
}

impl Deref for UnwaitedRuntime {
    type Target = Runtime;

    #[allow(clippy::expect_used, reason = "it is there until it is dropped")]
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for UnwaitedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_runtime_ends_though_what_was_begun_on_it_blocks() {
        let (release, hung) = mpsc::channel::<()>();
        let (blocks, begun) = mpsc::channel();
        let runtime = UnwaitedRuntime::new().unwrap();
        runtime.spawn_blocking(move || {
            blocks.send(()).unwrap();
            hung.recv().unwrap_or_default();
        });
        begun.recv().unwrap();
        drop(runtime);
        drop(release);
    }
}
