//! HTTP: a POST of a review, and what its response comes to.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    Protocol, ResponseHead,
    fields::{NO_LENGTH, ResponseFields},
    request_head::{Field, RequestHeads, entries},
};
use crate::{
    hooks::{
        answer_room::AnswerRoom,
        collected::Collected,
        post::{Media, write_path},
        reply::{HttpReply, Reply},
    },
    hpack::{FieldName, literal, short_literal},
    model::{CallFailure, Hops, HttpForm},
};

/// A POST.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Path, and query where there is one.
    pub path: Arc<str>,
    /// Decides content type and what is accepted.
    pub form: HttpForm,
    /// Timeout that the hook is sent, in the path's query as by kube-apiserver (`timeout=10s`, rounded up): that of
    /// the whole call, also where it is made anew.
    pub timeout: Duration,
}

impl Protocol for HttpRequest {
    /// Path and length differ from call to call, and are spelled out.
    fn write_head(&self, hops: Hops, len: usize, _: Duration, heads: &mut RequestHeads, out: &mut Vec<u8>) {
        let media = Media::of(self.form);
        heads.begin(out);
        heads.path.clear();
        write_path(&self.path, self.timeout, &mut heads.path);
        literal(FieldName::Static(entries::PATH), &heads.path, out);
        for field in
            [Field::Authority, Field::ContentType(media), Field::Accept(media), Field::AcceptEncoding, Field::UserAgent]
        {
            heads.field(field, out);
        }
        heads.hops(hops, out);
        short_literal(FieldName::Static(entries::CONTENT_LENGTH), format_args!("{len}"), out);
    }

    fn refuses(&self, head: &ResponseHead, limit: usize) -> Option<CallFailure> {
        let too_large = head.fields.content_length.is_some_and(|len| len > limit as u64 && len != NO_LENGTH);
        too_large.then_some(CallFailure::TooLarge { limit })
    }

    fn envelope(&self) -> usize {
        0
    }

    fn malformed(&self, what: &str) -> CallFailure {
        CallFailure::NotHttp(what.into())
    }

    /// Trailers say nothing about a review.
    fn judge(&self, head: ResponseHead, _: Option<ResponseFields>, body: Collected) -> Result<Reply, CallFailure> {
        let (room, hold) = (body.room(), body.hold());
        judge(&head, body.finish(), &room).map(|reply| Reply::Http(HttpReply { hold, ..reply }))
    }
}

/// Judges a response that has ended. Unpacked bytes are held in `room`.
fn judge(head: &ResponseHead, body: Bytes, room: &Arc<AnswerRoom>) -> Result<HttpReply, CallFailure> {
    let ResponseHead { status, fields } = head;
    // RFC 9113 §8.1.1: these two may state the length of what they leave out.
    let left_out = matches!(status, 204 | 304) && body.is_empty();
    if fields.content_length.is_some_and(|len| len != body.len() as u64) && !left_out {
        return Err(CallFailure::NotHttp("its answer is not as long as its content-length says".into()));
    }
    let reply = HttpReply {
        retry_after: fields.retry_after,
        readable_type: fields.readable_type.unwrap_or(true),
        ..HttpReply::new(*status, body)
    };
    Ok(if fields.gzip == Some(true) { reply.gzipped(room) } else { reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, content_length: Option<u64>) -> ResponseHead {
        ResponseHead { status, fields: ResponseFields { content_length, ..Default::default() } }
    }

    #[test]
    fn the_length_must_be_what_was_announced() {
        let room = AnswerRoom::unlimited();
        let judge = |status, len, body: &'static [u8]| judge(&head(status, len), Bytes::from_static(body), &room);
        assert_eq!(judge(200, Some(2), b"{}"), Ok(HttpReply::new(200, "{}".into())));
        assert!(judge(200, None, b"{}").is_ok());
        assert!(judge(204, Some(7), b"").is_ok());
        for (status, len, body) in [(200, Some(3), &b"{}"[..]), (200, Some(1), b"{}"), (204, Some(7), b"x")] {
            assert!(matches!(judge(status, len, body), Err(CallFailure::NotHttp(_))), "{status} {len:?}");
        }
    }

    #[test]
    fn what_announces_too_much_is_not_heard() {
        let request = HttpRequest { path: "/".into(), form: HttpForm::Legacy, timeout: Duration::ZERO };
        assert_eq!(request.refuses(&head(200, Some(10)), 10), None);
        assert_eq!(request.refuses(&head(200, Some(11)), 10), Some(CallFailure::TooLarge { limit: 10 }));
        assert_eq!(request.refuses(&head(200, Some(NO_LENGTH)), 10), None, "judged with the body");
    }
}
