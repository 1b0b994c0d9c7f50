//! What a POST came to.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    super::{answer_room::AnswerRoom, reply::HttpReply},
    header_read::Headers,
};
use crate::model::CallFailure;

/// Headers after which the rest need not be heard.
pub(super) fn refused(headers: &Headers, limit: usize) -> Option<CallFailure> {
    if headers.status < 200 {
        return Some(CallFailure::NotHttp("its answer has no status".into()));
    }
    let too_large = headers.content_length.is_some_and(|len| len > limit as u64 && len != u64::MAX);
    too_large.then_some(CallFailure::TooLarge { limit })
}

/// Judges a response that has ended. Trailers say nothing about a review, but may not contradict what was said.
/// What is unpacked of it is held in `room`.
pub(super) fn judge(
    headers: &Headers,
    trailers: Option<&Headers>,
    body: Bytes,
    room: &Arc<AnswerRoom>,
) -> Result<HttpReply, CallFailure> {
    if headers.status < 200 {
        return Err(CallFailure::NotHttp("it ended the call without an answer".into()));
    }
    if trailers.is_some_and(|trailers| trailers.status != 0) {
        return Err(CallFailure::NotHttp("its trailers have a status".into()));
    }
    // RFC 9113 §8.1.1: these two may state the length of what they leave out.
    let left_out = matches!(headers.status, 204 | 304) && body.is_empty();
    if headers.content_length.is_some_and(|len| len != body.len() as u64) && !left_out {
        return Err(CallFailure::NotHttp("its answer is not as long as its content-length says".into()));
    }
    let reply = HttpReply {
        retry_after: headers.retry_after,
        readable_type: headers.readable_type.unwrap_or(true),
        ..HttpReply::new(headers.status, body)
    };
    Ok(if headers.gzip == Some(true) { reply.gzipped(room) } else { reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(status: u16, content_length: Option<u64>) -> Headers {
        Headers { status, content_length, ..Default::default() }
    }

    #[test]
    fn the_length_must_be_what_was_announced() {
        let room = AnswerRoom::unlimited();
        let judge =
            |status, len, body: &'static [u8]| judge(&headers(status, len), None, Bytes::from_static(body), &room);
        assert_eq!(judge(200, Some(2), b"{}"), Ok(HttpReply::new(200, "{}".into())));
        assert!(judge(200, None, b"{}").is_ok());
        assert!(judge(204, Some(7), b"").is_ok());
        for (status, len, body) in
            [(200, Some(3), &b"{}"[..]), (200, Some(1), b"{}"), (204, Some(7), b"x"), (0, None, b"")]
        {
            assert!(matches!(judge(status, len, body), Err(CallFailure::NotHttp(_))), "{status} {len:?}");
        }
        let told = super::judge(&headers(200, None), Some(&headers(500, None)), Bytes::new(), &room);
        assert!(matches!(told, Err(CallFailure::NotHttp(_))), "a second status");
    }

    #[test]
    fn what_announces_too_much_is_not_heard() {
        assert_eq!(refused(&headers(200, Some(10)), 10), None);
        assert_eq!(refused(&headers(200, Some(11)), 10), Some(CallFailure::TooLarge { limit: 10 }));
        assert!(matches!(refused(&headers(0, None), 10), Some(CallFailure::NotHttp(_))));
    }
}
