//! One call under way: what is still to be sent, and what has come back.

use std::sync::Arc;

use super::{
    super::{
        answer_room::AnswerRoom,
        call::{Call, Request},
        collected::Collected,
        reply::Reply,
    },
    frame, grpc_reply,
    header_read::Headers,
    http_reply,
    outgoing::Outgoing,
};
use crate::{model::CallFailure, wire::inbound::FRAME_HEAD};

/// What the hook may send on one stream before we give more room.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;

/// One call under way on one connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) call: Call,
    /// The piece of the body being sent, and how far into it; how much is left of all.
    chunk: usize,
    offset: usize,
    pub(super) unsent: usize,
    /// How much the peer will take on this stream.
    pub(super) window: i64,
    /// It stands in the connection's ready queue.
    pub(super) ready: bool,
    /// Where what is queued of it ends.
    pub(super) queued_to: u64,
    /// Bytes received whose window was not yet given back, and how many more the hook may send.
    pub(super) unreturned: u32,
    pub(super) granted: u32,
    headers: Option<Headers>,
    body: Collected,
}

impl Stream {
    /// Its answer is held in `room`.
    pub(super) fn new(call: Call, window: i64, room: &Arc<AnswerRoom>) -> Self {
        let (unsent, body) = (call.body.len(), Collected::new(room));
        Self {
            call,
            chunk: 0,
            offset: 0,
            unsent,
            window,
            ready: false,
            queued_to: 0,
            unreturned: 0,
            granted: STREAM_WINDOW,
            headers: None,
            body,
        }
    }

    /// Queues one DATA frame of `len` bytes of the body.
    pub(super) fn send(&mut self, id: u32, len: usize, out: &mut Outgoing) {
        self.unsent -= len;
        let flags = if self.unsent == 0 { frame::flag::END_STREAM } else { 0 };
        out.data(frame::Head { len, kind: frame::kind::DATA, flags, stream: id });
        let mut left = len;
        while left > 0 {
            let Some(chunk) = self.call.body.chunks().get(self.chunk) else { return };
            let n = left.min(chunk.len() - self.offset);
            if n > 0 {
                out.shared(chunk.slice(self.offset..self.offset + n));
            }
            left -= n;
            self.offset += n;
            if self.offset == chunk.len() {
                self.chunk += 1;
                self.offset = 0;
            }
        }
        self.queued_to = out.end();
    }

    /// Response headers arrived; `Some` when they already settle the call.
    pub(super) fn headers(&mut self, headers: Headers, limit: usize) -> Option<CallFailure> {
        if headers.is_interim() {
            return None;
        }
        let failure = match self.call.request {
            Request::Grpc { .. } => grpc_reply::refused(&headers),
            Request::Http { .. } => http_reply::refused(&headers, limit),
        };
        self.headers = Some(headers);
        failure
    }

    /// True when the first (non-informational) headers have arrived, so that the next are trailers.
    pub(super) fn has_headers(&self) -> bool {
        self.headers.is_some()
    }

    /// Part of the answer arrived.
    pub(super) fn data(&mut self, data: &[u8], limit: usize) -> Result<(), CallFailure> {
        if self.headers.is_none() {
            return Err(self.malformed("it sent data before headers"));
        }
        if self.body.len() + data.len() > limit + self.envelope() {
            return Err(CallFailure::TooLarge { limit });
        }
        self.body.extend(data)
    }

    /// Bytes of a body that are not the answer's own.
    fn envelope(&self) -> usize {
        match self.call.request {
            Request::Grpc { .. } => FRAME_HEAD,
            Request::Http { .. } => 0,
        }
    }

    /// The hook broke the rules of what we speak with it.
    pub(super) fn malformed(&self, what: &str) -> CallFailure {
        match self.call.request {
            Request::Grpc { .. } => CallFailure::NotGrpc(what.into()),
            Request::Http { .. } => CallFailure::NotHttp(what.into()),
        }
    }

    /// The hook has ended its side: what did it say? `trailers` where there were any.
    pub(super) fn end(self, trailers: Option<Headers>) -> (Call, Result<Reply, CallFailure>) {
        let headers = self.headers.unwrap_or_default();
        let result = match self.call.request {
            Request::Grpc { .. } => grpc_reply::judge(headers, trailers, self.body.finish()).map(Reply::Grpc),
            Request::Http { .. } => {
                let room = self.body.room();
                http_reply::judge(&headers, trailers.as_ref(), self.body.finish(), &room).map(Reply::Http)
            }
        };
        (self.call, result)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        hooks::{HttpReply, Inbox},
        model::{HttpForm, Rope},
    };

    const LIMIT: usize = 8;

    fn posted() -> Stream {
        let request = Request::Http { path: "/".into(), form: HttpForm::Legacy, timeout: Duration::ZERO };
        let inbox = Arc::new(Inbox::default());
        let (body, deadline) = (Rope::new([]), Instant::now());
        let call =
            Call { request, body, deadline, inbox, tag: 0, again: true, resends: 0, hops: crate::model::Hops::FIRST };
        Stream::new(call, 0, &AnswerRoom::unlimited())
    }

    fn headers(status: u16) -> Headers {
        Headers { status, ..Default::default() }
    }

    #[test]
    fn of_a_post_s_headers_only_the_final_ones_count() {
        let mut stream = posted();
        assert_eq!(stream.headers(headers(100), LIMIT), None);
        assert_eq!(stream.headers(headers(103), LIMIT), None);
        assert!(!stream.has_headers());
        assert_eq!(stream.headers(headers(409), LIMIT), None);
        assert_eq!(stream.data(b"no", LIMIT), Ok(()));
        let trailers = Headers { grpc_status: Some(13), ..headers(0) };
        let (_, result) = stream.end(Some(trailers));
        assert_eq!(result, Ok(Reply::Http(HttpReply::new(409, "no".into()))));
    }

    #[test]
    fn a_post_s_answer_needs_headers_and_has_a_limit() {
        let mut stream = posted();
        assert!(matches!(stream.data(b"x", LIMIT), Err(CallFailure::NotHttp(_))));
        stream.headers(headers(200), LIMIT);
        assert_eq!(stream.data(&[0; LIMIT], LIMIT), Ok(()));
        assert_eq!(stream.data(b"x", LIMIT), Err(CallFailure::TooLarge { limit: LIMIT }));
        assert!(matches!(posted().end(None).1, Err(CallFailure::NotHttp(_))));
    }
}
