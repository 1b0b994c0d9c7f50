//! Bodies of messages: streamed chunk by chunk, or complete.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::{activity::RequestInProgress, joined::Joined};

/// A value that is kept until a message has ended.
pub(super) type Guard = Box<dyn fmt::Debug + Send>;

/// Size of the chunks in which a complete body is sent, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Body of a message.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    /// Request that this body answers.
    in_progress: Option<Arc<RequestInProgress>>,
}

#[derive(Debug)]
enum Content {
    /// Body from the apiserver, read on demand.
    Streamed { body: Joined, _lease: Option<Guard> },
    /// Body from a client. `broke_off` is set if it ends prematurely.
    Uploaded { body: Incoming, broke_off: Arc<AtomicBool> },
    /// Rest of a complete body.
    Whole(Bytes),
}

/// Part of a response that was passed to the client's connection. Dropped once it is written.
struct PendingPart(Arc<RequestInProgress>);

impl PendingPart {
    fn new(in_progress: &Arc<RequestInProgress>) -> Self {
        in_progress.on_part_passed();
        Self(Arc::clone(in_progress))
    }
}

impl Drop for PendingPart {
    fn drop(&mut self) {
        self.0.on_part_written();
    }
}

/// Bytes with a guard that is dropped after the last part of them was sent.
struct GuardedBytes<G> {
    bytes: Bytes,
    _guard: G,
}

impl<G> AsRef<[u8]> for GuardedBytes<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body {
    /// Creates a complete body.
    pub(super) fn of(bytes: impl Into<Bytes>) -> Self {
        Content::Whole(bytes.into()).into()
    }

    /// Creates a complete body. The guard is dropped once no part of the body exists, not even in a queue to a client.
    pub(super) fn keeping<G: Send + 'static>(bytes: Bytes, guard: G) -> Self {
        Self::of(Bytes::from_owner(GuardedBytes { bytes, _guard: guard }))
    }

    /// Creates a body that streams from the apiserver.
    pub(super) fn streamed(body: Incoming) -> Self {
        Content::Streamed { body: Joined::new(body), _lease: None }.into()
    }

    /// Creates a body that streams from a client, without trailers. Sets `broke_off` if the body ends prematurely.
    pub(super) fn uploaded(body: Incoming, broke_off: Arc<AtomicBool>) -> Self {
        Content::Uploaded { body, broke_off }.into()
    }

    /// Creates a body that streams from the apiserver, with the lease of its connection.
    pub(super) fn leased(body: Incoming, lease: Guard) -> Self {
        Content::Streamed { body: Joined::new(body), _lease: Some(lease) }.into()
    }

    /// Makes the body the response to this request.
    pub(super) fn answering(mut self, in_progress: RequestInProgress) -> Self {
        in_progress.on_response_ready(matches!(self.content, Content::Whole(_)));
        self.in_progress = Some(Arc::new(in_progress));
        self
    }
}

impl From<Content> for Body {
    fn from(content: Content) -> Self {
        Self { content, in_progress: None }
    }
}

impl Default for Body {
    /// Returns an empty body.
    fn default() -> Self {
        Self::of(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { content, in_progress } = self.get_mut();
        if let Some(in_progress) = in_progress {
            in_progress.on_part_requested();
        }
        let polled = match content {
            Content::Streamed { body, .. } => body.poll_frame(cx),
            Content::Uploaded { body, broke_off } => {
                match Pin::new(body).poll_frame(cx) {
                    // Trailers end the body: the apiserver must not trust fields in them that only the proxy may set.
                    Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => Poll::Ready(None),
                    polled => {
                        if let Poll::Ready(Some(Err(_))) = &polled {
                            broke_off.store(true, Relaxed);
                        }
                        polled
                    }
                }
            }
            Content::Whole(rest) if rest.is_empty() => Poll::Ready(None),
            Content::Whole(rest) => Poll::Ready(Some(Ok(Frame::data(rest.split_to(rest.len().min(CHUNK_BYTES)))))),
        };
        let Some(in_progress) = in_progress else { return polled };
        let tracked = |bytes| Bytes::from_owner(GuardedBytes { bytes, _guard: PendingPart::new(in_progress) });
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(tracked))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Streamed { body, .. } => body.is_end_stream(),
            Content::Uploaded { body, .. } => body.is_end_stream(),
            Content::Whole(rest) => rest.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Streamed { body, .. } => body.size_hint(),
            Content::Uploaded { body, .. } => body.size_hint(),
            Content::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::{super::activity::Activity, *};

    #[tokio::test]
    async fn what_is_kept_is_kept_until_the_last_part_was_sent() {
        let guard = Arc::new(());
        let mut body = Body::keeping(Bytes::from(vec![7; CHUNK_BYTES + 1]), Arc::clone(&guard));
        let mut parts = Vec::new();
        while let Some(frame) = body.frame().await {
            parts.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [CHUNK_BYTES, 1]);
        parts.pop();
        assert_eq!(Arc::strong_count(&guard), 2, "a part is in a queue");
        parts.pop();
        assert_eq!(Arc::strong_count(&guard), 1);
    }

    #[tokio::test]
    async fn an_answer_is_under_way_until_its_last_part_was_sent() {
        let activity = Arc::new(Activity::default());
        let mut body = Body::of(vec![7; CHUNK_BYTES + 1]).answering(activity.begin());
        let parts = [body.frame().await, body.frame().await];
        assert!(body.frame().await.is_none());
        drop(body);
        assert!(!activity.is_idle(), "two parts are in a queue");
        drop(parts);
        assert!(activity.is_idle());
    }
}
