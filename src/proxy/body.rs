//! Body: the content of a message that passes, chunk by chunk, or that was made here.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

/// Something that is kept until a message has ended.
pub(super) type Guard = Box<dyn fmt::Debug + Send>;

/// Content of a message.
#[derive(Debug)]
pub(super) enum Body {
    /// As it comes from the other side, chunk by chunk: nothing is read before it is wanted.
    Streamed(Incoming),
    /// The same, with its place on a connection to the apiserver.
    Leased { body: Incoming, _lease: Guard },
    /// Ready content, with its share of the memory for what is inspected.
    Whole { body: Full<Bytes>, _room: Option<OwnedSemaphorePermit> },
}

impl Body {
    /// Content that was made here.
    pub(super) fn of(bytes: impl Into<Bytes>) -> Self {
        Self::Whole { body: Full::new(bytes.into()), _room: None }
    }
}

impl Default for Body {
    /// No content.
    fn default() -> Self {
        Self::of(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Streamed(body) | Self::Leased { body, .. } => Pin::new(body).poll_frame(cx),
            Self::Whole { body, .. } => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Streamed(body) | Self::Leased { body, .. } => body.is_end_stream(),
            Self::Whole { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Streamed(body) | Self::Leased { body, .. } => body.size_hint(),
            Self::Whole { body, .. } => body.size_hint(),
        }
    }
}
