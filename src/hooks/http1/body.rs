//! Body: a review on its way out, as the shared pieces it consists of.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::model::Rope;

/// Yields a rope's pieces as they are; hyper queues them and writes them with one vectored write.
#[derive(Debug)]
pub(super) struct RopeBody {
    rope: Rope,
    next: usize,
    unsent: usize,
}

impl RopeBody {
    pub(super) fn new(rope: Rope) -> Self {
        let unsent = rope.len();
        Self { rope, next: 0, unsent }
    }
}

impl Body for RopeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Some(piece) = self.rope.chunks().get(self.next).cloned() {
            self.next += 1;
            if !piece.is_empty() {
                self.unsent -= piece.len();
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.unsent == 0
    }

    /// Exact, so that hyper announces it as the content's length.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.unsent as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_pieces_are_shared_and_their_length_is_exact() {
        let rope = Rope::new(["", "abc", "", "de", ""].map(Bytes::from));
        let mut body = RopeBody::new(rope.clone());
        assert_eq!(body.size_hint().exact(), Some(5));
        let mut cx = Context::from_waker(Waker::noop());
        for piece in [1, 3] {
            assert!(!body.is_end_stream());
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) else { panic!("a piece") };
            assert_eq!(frame.into_data().expect("data").as_ptr(), rope.chunks()[piece].as_ptr());
        }
        assert!(body.is_end_stream());
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)));
    }
}
