//! Life: stage of a server's life, as its connections see it.

/// Stage of a server.
///
/// ```text
/// Serving --shutdown signal--> Draining --all calls done, or the bound--> Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Serving,
    Draining,
    Over,
}
