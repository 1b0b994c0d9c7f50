//! Testing: an exchange that records its end.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    exchange::{Exchange, ExchangeFailure, FieldError, HeaderFields, RequestHead},
    frame::{self, FrameHead, HEAD, PREFACE},
};
use crate::hpack::{FieldName, HeaderName, HeaderText, entry, literal};

/// End of an exchange: its tag, and the answer's status and body or what the failure says.
pub(super) type End = (u32, Result<(u16, Vec<u8>), String>);

/// Ends of exchanges, in the order they came.
pub(super) type Ends = Rc<RefCell<Vec<End>>>;

/// Exchange that records its end.
#[derive(Debug)]
pub(super) struct TestExchange {
    pub(super) tag: u32,
    pub(super) deadline: Instant,
    pub(super) body: Bytes,
    pub(super) abandoned: Rc<RefCell<bool>>,
    status: u16,
    answer: Vec<u8>,
    ends: Ends,
}

/// An answer may be no larger.
pub(super) const LIMIT: usize = 100_000;

impl TestExchange {
    /// One with that tag, and an hour's time.
    pub(super) fn of(tag: u32) -> Self {
        Self::with(tag, b"request", &Ends::default())
    }

    /// One with that body, whose end is recorded in `ends`.
    pub(super) fn with(tag: u32, body: &'static [u8], ends: &Ends) -> Self {
        Self {
            tag,
            deadline: Instant::now() + Duration::from_secs(3600),
            body: body.into(),
            abandoned: Rc::default(),
            status: 0,
            answer: Vec::new(),
            ends: Rc::clone(ends),
        }
    }
}

impl Exchange for TestExchange {
    type Fields = NoFields;
    type Head = PlainHeads;
    type Error = &'static str;

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        *self.abandoned.borrow()
    }

    fn body(&self) -> &[Bytes] {
        std::slice::from_ref(&self.body)
    }

    fn head(&mut self, status: u16, _: NoFields) -> Result<(), &'static str> {
        assert_eq!(self.status, 0, "it comes once");
        self.status = status;
        if status == 500 { Err("not wanted") } else { Ok(()) }
    }

    fn data(&mut self, part: &[u8]) -> Result<(), &'static str> {
        assert!(self.status >= 200, "data before the head, or behind an interim one");
        self.answer.extend_from_slice(part);
        if self.answer.len() > LIMIT { Err("too large") } else { Ok(()) }
    }

    fn complete(self, _: Option<NoFields>) {
        assert!(self.status >= 200, "complete without a head");
        self.ends.borrow_mut().push((self.tag, Ok((self.status, self.answer))));
    }

    fn fail(self, failure: ExchangeFailure<'_, &'static str>) {
        let message = match failure {
            ExchangeFailure::Lost(why) => format!("lost: {why}"),
            ExchangeFailure::Reset(code) => format!("reset: {code}"),
            ExchangeFailure::Malformed(what) => format!("malformed: {what}"),
            ExchangeFailure::AnswerRejected(why) => format!("refused: {why}"),
        };
        self.ends.borrow_mut().push((self.tag, Err(message)));
    }
}

/// Fields of which none matters.
#[derive(Debug, Default)]
pub(super) struct NoFields;

impl HeaderFields for NoFields {
    fn field(&mut self, _: HeaderName<'_>, _: HeaderText<'_>, _: &mut Vec<u8>) -> Result<bool, FieldError> {
        Ok(false)
    }
}

/// Heads without a table: POST and the tag as path.
#[derive(Debug, Default)]
pub(super) struct PlainHeads;

impl RequestHead<TestExchange> for PlainHeads {
    fn table_size(&mut self, _: u32) {}

    fn write(&mut self, exchange: &TestExchange, _: Duration, out: &mut Vec<u8>) -> bool {
        entry(3, out);
        literal(FieldName::Static(4), exchange.tag.to_string().as_bytes(), out);
        false
    }
}

/// A frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, kind, flags, stream, payload);
    out
}

/// The frames in what a client has sent, with or without its preface.
pub(super) fn frames(sent: &[u8]) -> Vec<(FrameHead, Vec<u8>)> {
    let (mut rest, mut frames) = (sent.strip_prefix(PREFACE).unwrap_or(sent), Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
        let head = FrameHead::read(head);
        let (payload, behind) = behind.split_at(head.len);
        frames.push((head, payload.to_vec()));
        rest = behind;
    }
    assert!(rest.is_empty(), "{rest:?}");
    frames
}
