//! Reply: whole reply of a hook.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;

use super::{answer_room::AnswerRoom, collected::Hold, gzip};
use crate::model::CallFailure;

/// The largest answer taken from a hook: as much as the largest review, which some hooks send back with it.
pub(super) const LARGEST_ANSWER: usize = 16 << 20;
/// A byte of YAML takes as long as so many of JSON (`benches/worst_cases.rs`).
const YAML: usize = 16;

/// Reply of a hook, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The one message of a gRPC call that ended with OK.
    Grpc(Bytes),
    /// An HTTP response, whatever its status.
    Http(HttpReply),
}

impl Reply {
    /// Bytes that have to be gone through to understand it, or as many as they may be; of YAML, as many bytes of JSON
    /// as take that long.
    pub fn cost(&self) -> usize {
        match self {
            Self::Grpc(message) => message.len(),
            Self::Http(reply) if reply.gzipped.is_some() => gzip::cost(reply.body.len()),
            // JSON, or the envelope. Of what looks like neither, one that is JSON behind blanks costs too much; no
            // harm.
            Self::Http(reply) if matches!(reply.body.first(), None | Some(b'{' | b'k')) => reply.body.len(),
            Self::Http(reply) => reply.body.len().saturating_mul(YAML),
        }
    }

    /// Share of the memory budget that it holds, or will when it is unpacked: until the last slice of it is dropped.
    pub fn hold(&self) -> AnswerHold {
        match self {
            // Fields that are read from it are mostly slices of it.
            Self::Grpc(message) => AnswerHold { _held: Held::Message { _bytes: message.clone() } },
            Self::Http(HttpReply { hold, gzipped, .. }) => {
                let _unpacked = gzipped.as_ref().map(|gzipped| Arc::clone(&gzipped.hold));
                AnswerHold { _held: Held::Body { _body: hold.clone(), _unpacked } }
            }
        }
    }
}

/// Share of the memory budget that an answer holds.
#[derive(Clone, Debug, Default)]
pub struct AnswerHold {
    _held: Held,
}

/// Owner of that share: it ends with the last clone.
#[derive(Clone, Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Message {
        _bytes: Bytes,
    },
    Body {
        _body: Hold,
        _unpacked: Option<Arc<OnceLock<Hold>>>,
    },
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct HttpReply {
    /// Its status.
    pub status: u16,
    /// `retry-after`, where it is a number of seconds; client-go reads nothing else.
    pub retry_after: Option<Duration>,
    /// Its `content-type` can be read, or there is none.
    pub readable_type: bool,
    /// The whole body, as it came.
    pub(super) body: Bytes,
    /// Share of the memory budget that the body holds.
    pub(super) hold: Hold,
    /// It came in gzip.
    pub(super) gzipped: Option<Gzipped>,
}

/// Room for what is in a body that came in gzip.
#[derive(Clone, Debug)]
pub(super) struct Gzipped {
    room: Arc<AnswerRoom>,
    /// Share of the memory budget that it holds, once it is unpacked.
    hold: Arc<OnceLock<Hold>>,
}

impl PartialEq for HttpReply {
    fn eq(&self, other: &Self) -> bool {
        let parts = |reply: &Self| (reply.status, reply.retry_after, reply.readable_type, reply.gzipped.is_some());
        parts(self) == parts(other) && self.body == other.body
    }
}

impl Eq for HttpReply {}

impl HttpReply {
    /// A reply of that status, and this body.
    pub fn new(status: u16, body: Bytes) -> Self {
        Self { status, retry_after: None, readable_type: true, body, hold: Hold::default(), gzipped: None }
    }

    /// Body in gzip. Unpacked bytes are held in `room`.
    pub(super) fn gzipped(self, room: &Arc<AnswerRoom>) -> Self {
        Self { gzipped: Some(Gzipped { room: Arc::clone(room), hold: Arc::default() }), ..self }
    }

    /// The body, unpacked where it came in gzip: work for [`Reply::cost`] bytes.
    ///
    /// # Errors
    /// `TooLarge`, `Overloaded`: what is in it is subject to the limits of any answer. `Undecodable`: it is no gzip.
    pub fn body(self) -> Result<Bytes, CallFailure> {
        match self.gzipped {
            None => Ok(self.body),
            Some(Gzipped { room, hold }) => {
                let (body, held) = gzip::unpack(&self.body, &room, LARGEST_ANSWER)?;
                let _ = hold.set(held);
                Ok(body)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::LARGE;

    #[test]
    fn a_body_in_gzip_costs_what_may_be_in_it() {
        let body = Bytes::from(vec![b'{'; 600]);
        let plain = HttpReply::new(200, body);
        let gzipped = plain.clone().gzipped(&AnswerRoom::unlimited());
        assert_eq!(Reply::Http(plain).cost(), 600);
        assert!(Reply::Http(gzipped).cost() > LARGE, "unpacked beside the worker");
    }

    #[test]
    fn yaml_leaves_the_worker_sooner_than_json() {
        let body = |first: &str| format!("{first}{}", " ".repeat((16 << 10) - first.len()));
        let cost = |first: &str| Reply::Http(HttpReply::new(200, body(first).into())).cost();
        assert!(cost("response: {}") >= LARGE);
        assert!(cost("{") < LARGE && cost("k8s\0") < LARGE);
        assert_eq!(Reply::Http(HttpReply::new(204, Bytes::new())).cost(), 0);
    }
}
