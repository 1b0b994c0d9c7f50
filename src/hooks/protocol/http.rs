//! HTTP: writes the head of a POST over HTTP/2, and judges its response. `http1` does both for HTTP/1.1.

use std::{sync::Arc, time::Duration};

use super::request_head::{Field, INVALID_LENGTH, Media, RequestHeads, ResponseHead, entries, write_path};
use crate::hooks::{
    answer_buffer::AnswerBuffer,
    reply::{HttpReply, ReplyHead},
};
use gatepost_api::{CallFailure, ForwardedContext, HttpForm};
use gatepost_http2_client::hpack::{FieldName, literal, short_literal};

/// A POST.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Path, and query if there is one.
    pub path: Arc<str>,
    /// Form of the review: it decides the content type.
    pub form: HttpForm,
    /// Timeout in the path's query, as by kube-apiserver (`timeout=10s`, rounded up). It is that of the whole call,
    /// also if the request is sent again.
    pub timeout: Duration,
}

impl HttpRequest {
    /// Appends the header block of the request. Path and length differ from call to call, and are literals.
    pub(super) fn write_head(
        &self,
        forwarded: &ForwardedContext,
        len: usize,
        heads: &mut RequestHeads,
        out: &mut Vec<u8>,
    ) {
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
        heads.forwarded(forwarded, out);
        short_literal(FieldName::Static(entries::CONTENT_LENGTH), format_args!("{len}"), out);
    }
}

/// Returns the failure of a response that announces more than `limit` bytes.
pub(super) fn early_failure(head: &ResponseHead, limit: usize) -> Option<CallFailure> {
    let too_large = head.fields.content_length.is_some_and(|len| len > limit as u64 && len != INVALID_LENGTH);
    too_large.then_some(CallFailure::TooLarge { limit })
}

/// Returns the reply or the failure of a complete response. Its trailers do not matter.
pub(super) fn judge(head: &ResponseHead, body: AnswerBuffer) -> Result<HttpReply, CallFailure> {
    let ResponseHead { status, fields } = head;
    // RFC 9113 §8.1.1: these two may state the length of a body that they omit.
    let left_out = matches!(status, 204 | 304) && body.len() == 0;
    if fields.content_length.is_some_and(|len| len != body.len() as u64) && !left_out {
        return Err(CallFailure::NotHttp("its answer is not as long as its content-length says".into()));
    }
    let head = ReplyHead {
        status: *status,
        retry_after: fields.retry_after,
        readable_type: fields.readable_type.unwrap_or(true),
        gzipped: fields.gzip == Some(true),
    };
    Ok(HttpReply::received(head, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{answer_buffer::AnswerBudget, protocol::request_head::ResponseFields};

    fn head(status: u16, content_length: Option<u64>) -> ResponseHead {
        ResponseHead { status, fields: ResponseFields { content_length, ..Default::default() } }
    }

    #[test]
    fn a_response_must_have_the_announced_length() {
        let judge = |status, len, body: &'static [u8]| {
            let mut buffer = AnswerBuffer::new(&AnswerBudget::unlimited());
            buffer.extend(body).expect("room");
            judge(&head(status, len), buffer)
        };
        assert_eq!(judge(200, Some(2), b"{}"), Ok(HttpReply::new(200, "{}".into())));
        assert!(judge(200, None, b"{}").is_ok());
        assert!(judge(204, Some(7), b"").is_ok());
        for (status, len, body) in [(200, Some(3), &b"{}"[..]), (200, Some(1), b"{}"), (204, Some(7), b"x")] {
            assert!(matches!(judge(status, len, body), Err(CallFailure::NotHttp(_))), "{status} {len:?}");
        }
    }

    #[test]
    fn a_response_that_announces_too_much_is_refused() {
        assert_eq!(early_failure(&head(200, Some(10)), 10), None);
        assert_eq!(early_failure(&head(200, Some(11)), 10), Some(CallFailure::TooLarge { limit: 10 }));
        assert_eq!(early_failure(&head(200, Some(INVALID_LENGTH)), 10), None, "judged with the body");
    }
}
