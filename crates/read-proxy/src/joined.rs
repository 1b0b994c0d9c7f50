//! Joins small frames of an apiserver's response.
//!
//! Go writes a list in frames of 4 KiB. Each frame that is sent alone costs a TLS record and a system call, so the
//! frames that have already arrived are joined.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// Size from which on a frame is not joined, in bytes: a client's default maximum frame size (RFC 9113, 6.5.2).
const FULL_FRAME_BYTES: usize = 16 << 10;

/// Body whose frames are joined. It never waits for a frame that has not arrived.
pub(super) struct Joined<B: Body = Incoming> {
    body: B,
    /// Item that was read after the joined frames.
    behind: Option<Item<B>>,
}

/// Item of a body; `None` at its end.
type Item<B> = Option<Result<Frame<Bytes>, <B as Body>::Error>>;

impl<B: Body<Data = Bytes> + Unpin> Joined<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, behind: None }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Item<B>> {
        if let Some(behind) = self.behind.take() {
            return Poll::Ready(behind);
        }
        let first = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            },
            other => return other,
        };
        Poll::Ready(Some(Ok(Frame::data(self.join(first, cx)))))
    }

    /// Joins the frame with following ones that have already arrived.
    fn join(&mut self, first: Bytes, cx: &mut Context<'_>) -> Bytes {
        let (mut joined, mut last) = (BytesMut::new(), first);
        while joined.len() + last.len() < FULL_FRAME_BYTES && !self.body.is_end_stream() {
            let next = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) => frame.into_data().map_err(|trailers| Some(Ok(trailers))),
                Poll::Ready(end) => Err(end),
            };
            match next {
                Ok(next) if next.len() >= FULL_FRAME_BYTES => {
                    self.behind = Some(Some(Ok(Frame::data(next))));
                    break;
                }
                Ok(next) => {
                    joined.reserve(last.len() + next.len());
                    joined.extend_from_slice(&last);
                    last = next;
                }
                Err(behind) => {
                    self.behind = Some(behind);
                    break;
                }
            }
        }
        if joined.is_empty() {
            return last;
        }
        joined.extend_from_slice(&last);
        joined.freeze()
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match &self.behind {
            Some(behind) => behind.is_none(),
            None => self.body.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some(Some(Ok(frame))) = &self.behind {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            let upper = hint.upper().map(|upper| upper + length);
            hint.set_lower(hint.lower() + length);
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
        }
        hint
    }
}

impl<B: Body> fmt::Debug for Joined<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, task::Waker};

    use http::HeaderMap;

    use super::*;

    /// Frames that have arrived; `None` where the next has not.
    struct Arrived(VecDeque<Option<Frame<Bytes>>>);

    impl Body for Arrived {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(None) => Poll::Pending,
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
            }
        }
    }

    fn data(bytes: usize) -> Option<Frame<Bytes>> {
        Some(Frame::data(vec![7; bytes].into()))
    }

    /// Lengths of the frames that come out; "-" for one that has not arrived, "trailers", "end".
    fn passed(frames: impl IntoIterator<Item = Option<Frame<Bytes>>>) -> Vec<String> {
        let mut joined = Joined::new(Arrived(frames.into_iter().collect()));
        let mut passed = Vec::new();
        while passed.last().is_none_or(|last| last != "end") {
            let ended = joined.is_end_stream();
            passed.push(match joined.poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => "-".to_owned(),
                Poll::Ready(None) => "end".to_owned(),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data.len().to_string(),
                    Err(_) => "trailers".to_owned(),
                },
            });
            assert!(!ended || passed.last().is_some_and(|last| last == "end"), "{passed:?}");
        }
        passed
    }

    #[test]
    fn frames_that_have_arrived_pass_as_one() {
        let trailers = || Some(Frame::trailers(HeaderMap::new()));
        for (frames, expected) in [
            (vec![], vec!["end"]),
            (vec![data(3)], vec!["3", "end"]),
            (vec![data(3), data(4), None, None, data(5)], vec!["7", "-", "5", "end"]),
            (vec![data(4 << 10), data(4 << 10), data(4 << 10), data(4 << 10), data(1)], vec!["16384", "1", "end"]),
            (vec![data(3), data(FULL_FRAME_BYTES), data(1)], vec!["3", "16384", "1", "end"]),
            (vec![data(FULL_FRAME_BYTES - 1), data(FULL_FRAME_BYTES - 1), data(1)], vec!["32766", "1", "end"]),
            (vec![data(FULL_FRAME_BYTES), data(FULL_FRAME_BYTES)], vec!["16384", "16384", "end"]),
            (vec![data(3), data(4), trailers()], vec!["7", "trailers", "end"]),
            (vec![None, data(3), trailers()], vec!["-", "3", "trailers", "end"]),
        ] {
            assert_eq!(passed(frames), expected);
        }
    }
}
