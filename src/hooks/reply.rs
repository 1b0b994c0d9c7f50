//! Reply: the complete reply of a hook, and its unpacked body.

use std::{
    io::Read,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::answer_buffer::{AnswerBudget, AnswerBuffer, AnswerMemory};
use gatepost_api::CallFailure;

/// Maximum size of a hook's answer, in bytes: that of the largest review, which some hooks send back.
pub(super) const MAX_ANSWER: usize = 16 << 20;
/// Number of bytes of JSON that take as long as one byte of YAML (`benches/worst_cases.rs`).
const YAML_COST: usize = 16;
/// Maximum number of bytes that one byte of gzip stands for, rounded up.
const MAX_GZIP_RATIO: usize = 1040;
/// Number of bytes that one step unpacks.
const UNPACK_CHUNK: usize = 16 << 10;

/// Complete reply of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The one message of a gRPC call that ended with OK.
    Grpc(Bytes),
    /// An HTTP response with any status.
    Http(HttpReply),
}

impl Reply {
    /// Returns the maximum number of bytes to process in order to decode it, in bytes of JSON.
    pub fn cost(&self) -> usize {
        match self {
            Self::Grpc(message) => message.len(),
            // The contents are unpacked, and then decoded.
            Self::Http(reply) if reply.gzipped.is_some() => reply.body.len().saturating_mul(2 * MAX_GZIP_RATIO),
            // JSON or the protobuf envelope. JSON behind blanks counts as YAML, which does no harm.
            Self::Http(reply) if matches!(reply.body.first(), None | Some(b'{' | b'k')) => reply.body.len(),
            Self::Http(reply) => reply.body.len().saturating_mul(YAML_COST),
        }
    }

    /// Returns a guard for the memory that is reserved for the reply, including memory reserved later to decompress it.
    pub fn memory_guard(&self) -> AnswerMemoryGuard {
        match self {
            // Fields that are decoded from it are mostly slices of it.
            Self::Grpc(message) => AnswerMemoryGuard { _message: message.clone(), ..AnswerMemoryGuard::default() },
            Self::Http(HttpReply { memory, gzipped, .. }) => AnswerMemoryGuard {
                _body: memory.clone(),
                _unpacked: gzipped.as_ref().map(|gzipped| Arc::clone(&gzipped.memory)),
                ..AnswerMemoryGuard::default()
            },
        }
    }
}

/// Keeps the memory of an answer reserved, until the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct AnswerMemoryGuard {
    _message: Bytes,
    _body: AnswerMemory,
    _unpacked: Option<Arc<OnceLock<AnswerMemory>>>,
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct HttpReply {
    /// Its status.
    pub status: u16,
    /// `retry-after` in seconds; client-go reads nothing else.
    pub retry_after: Option<Duration>,
    /// True if its `content-type` can be parsed, or there is none.
    pub readable_type: bool,
    /// The whole body as it arrived.
    pub(super) body: Bytes,
    pub(super) memory: AnswerMemory,
    pub(super) gzipped: Option<Gzipped>,
}

/// Memory for the contents of a body in gzip.
#[derive(Clone, Debug)]
pub(super) struct Gzipped {
    budget: Arc<AnswerBudget>,
    /// Memory that the contents hold, once they are unpacked.
    memory: Arc<OnceLock<AnswerMemory>>,
}

impl PartialEq for HttpReply {
    fn eq(&self, other: &Self) -> bool {
        let parts = |reply: &Self| (reply.status, reply.retry_after, reply.readable_type, reply.gzipped.is_some());
        parts(self) == parts(other) && self.body == other.body
    }
}

impl Eq for HttpReply {}

impl HttpReply {
    /// Creates a reply of that status with this body.
    pub fn new(status: u16, body: Bytes) -> Self {
        let memory = AnswerMemory::default();
        Self { status, retry_after: None, readable_type: true, body, memory, gzipped: None }
    }

    /// Creates a reply of that status whose body has arrived in that buffer, in gzip or not.
    pub(super) fn received(status: u16, gzipped: bool, body: AnswerBuffer) -> Self {
        let gzipped = gzipped.then(|| Gzipped { budget: Arc::clone(&body.budget), memory: Arc::default() });
        Self { memory: body.memory(), gzipped, ..Self::new(status, body.finish()) }
    }

    /// Returns the body, unpacked if it arrived in gzip. [`Reply::cost`] returns the amount of work.
    ///
    /// # Errors
    /// `TooLarge`, `Overloaded`: the contents have the limits of any answer. `Undecodable`: the body is not gzip.
    pub fn body(self) -> Result<Bytes, CallFailure> {
        match self.gzipped {
            None => Ok(self.body),
            Some(Gzipped { budget, memory }) => {
                let (body, held) = unpack(&self.body, &budget, MAX_ANSWER)?;
                let _ = memory.set(held);
                Ok(body)
            }
        }
    }
}

/// Returns the contents of a gzip body of any number of members, and the memory that they hold.
pub(super) fn unpack(
    packed: &[u8],
    budget: &Arc<AnswerBudget>,
    limit: usize,
) -> Result<(Bytes, AnswerMemory), CallFailure> {
    // An empty body is not gzip. As in Go's transport, its contents are empty.
    if packed.is_empty() {
        return Ok((Bytes::new(), AnswerMemory::default()));
    }
    let (mut reader, mut part) = (MultiGzDecoder::new(packed), [0; UNPACK_CHUNK]);
    let mut unpacked = AnswerBuffer::new(budget);
    loop {
        let read = reader.read(&mut part);
        let read = read.map_err(|_| CallFailure::Undecodable("its body is not the gzip that its head says".into()))?;
        if read == 0 {
            let memory = unpacked.memory();
            return Ok((unpacked.finish(), memory));
        }
        if unpacked.len() + read > limit {
            return Err(CallFailure::TooLarge { limit });
        }
        unpacked.extend(&part[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use gatepost_base::{
        memory::{MemoryBudget, Purpose},
        offload::OFFLOAD_THRESHOLD,
    };

    #[test]
    fn gzip_body_costs_its_maximum_decompressed_size() {
        let body = Bytes::from(vec![b'{'; 600]);
        let plain = HttpReply::new(200, body);
        let gzipped = HttpReply::received(200, true, AnswerBuffer::new(&AnswerBudget::unlimited()));
        let gzipped = HttpReply { body: plain.body.clone(), ..gzipped };
        assert_eq!(Reply::Http(plain).cost(), 600);
        assert!(Reply::Http(gzipped).cost() > OFFLOAD_THRESHOLD, "unpacked beside the worker");
    }

    #[test]
    fn yaml_leaves_the_worker_sooner_than_json() {
        let body = |first: &str| format!("{first}{}", " ".repeat((16 << 10) - first.len()));
        let cost = |first: &str| Reply::Http(HttpReply::new(200, body(first).into())).cost();
        assert!(cost("response: {}") >= OFFLOAD_THRESHOLD);
        assert!(cost("{") < OFFLOAD_THRESHOLD && cost("k8s\0") < OFFLOAD_THRESHOLD);
        assert_eq!(Reply::Http(HttpReply::new(204, Bytes::new())).cost(), 0);
    }

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).expect("room");
        encoder.finish().expect("room")
    }

    fn unpacked(packed: &[u8]) -> Result<Bytes, CallFailure> {
        unpack(packed, &AnswerBudget::unlimited(), 1000).map(|(unpacked, _)| unpacked)
    }

    #[test]
    fn gzip_bodies_are_unpacked_whole_or_refused() {
        let (one, two) = (packed(b"{\"a\":"), packed(b"1}"));
        assert_eq!(unpacked(&one).as_deref(), Ok(&b"{\"a\":"[..]));
        assert_eq!(
            unpacked(&[one.clone(), two].concat()).as_deref(),
            Ok(&b"{\"a\":1}"[..]),
            "two members are one body"
        );
        assert_eq!(unpacked(b"").as_deref(), Ok(&b""[..]));
        let mut flipped = one.clone();
        *flipped.last_mut().expect("bytes") ^= 1;
        for bad in [&one[..one.len() - 1], &[&one[..], b"x"].concat(), &flipped, b"{}", b"\x1f\x8b"] {
            assert!(matches!(unpacked(bad), Err(CallFailure::Undecodable(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_gzip_bomb_is_cut_at_the_limit_and_at_the_memory_budget() {
        let bomb = packed(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 70_000 && bomb.len() * MAX_GZIP_RATIO >= 64 << 20, "{}", bomb.len());
        assert_eq!(unpacked(&bomb), Err(CallFailure::TooLarge { limit: 1000 }));
        assert_eq!(unpacked(&packed(&[b' '; 1000])).map(|plain| plain.len()), Ok(1000));
        let budget = MemoryBudget::new(1 << 20);
        let answers = AnswerBudget::new(&budget);
        assert_eq!(unpack(&bomb, &answers, 16 << 20).map(drop), Err(CallFailure::Overloaded));
        assert_eq!(budget.held(), 0);
        let (small, _) = unpack(&packed(&[b' '; 100_000]), &answers, 16 << 20).expect("room");
        assert!(budget.held_for(Purpose::Answer) >= small.len(), "as long as it is held");
        drop(small);
        assert_eq!(budget.held(), 0);
    }
}
