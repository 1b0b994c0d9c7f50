//! Gzip: an answer's body unpacked, within the limits of any answer.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::{
    answer_room::AnswerRoom,
    collected::{Collected, Hold},
};
use crate::model::CallFailure;

/// The encoding that we take, and kube-apiserver (Go's `http.Transport`) does.
pub(super) const ENCODING: &str = "gzip";
/// Unpacked at once.
const PART: usize = 16 << 10;
/// The most bytes that one byte of gzip stands for, rounded up.
const MOST_FOR_ONE: usize = 1040;

/// Is that the value of a `content-encoding` which we unpack? Others are left as they are, as by Go.
pub(super) fn is_ours(encoding: &[u8]) -> bool {
    encoding.eq_ignore_ascii_case(ENCODING.as_bytes())
}

/// As many bytes as may have to be gone through: unpacked, and then read.
pub(super) fn cost(packed: usize) -> usize {
    packed.saturating_mul(2 * MOST_FOR_ONE)
}

/// Contents of a gzip body, of any number of members, and what they have taken of the room.
pub(super) fn unpack(packed: &[u8], room: &Arc<AnswerRoom>, limit: usize) -> Result<(Bytes, Hold), CallFailure> {
    // As Go's transport has it; without a body there is no gzip.
    if packed.is_empty() {
        return Ok((Bytes::new(), Hold::default()));
    }
    let (mut reader, mut part) = (MultiGzDecoder::new(packed), [0; PART]);
    let mut unpacked = Collected::new(room);
    loop {
        let read = reader.read(&mut part);
        let read = read.map_err(|_| CallFailure::Undecodable("its body is not the gzip that its head says".into()))?;
        if read == 0 {
            let hold = unpacked.hold();
            return Ok((unpacked.finish(), hold));
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
    use crate::memory::{MemoryBudget, Purpose};

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).expect("room");
        encoder.finish().expect("room")
    }

    fn unpacked(packed: &[u8]) -> Result<Bytes, CallFailure> {
        unpack(packed, &AnswerRoom::unlimited(), 1000).map(|(unpacked, _)| unpacked)
    }

    #[test]
    fn what_was_packed_comes_out_whole_or_not_at_all() {
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
    fn a_bomb_is_cut_at_the_limit_and_at_the_room_there_is() {
        let bomb = packed(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 70_000 && cost(bomb.len()) >= 2 * (64 << 20), "{}", bomb.len());
        assert_eq!(unpacked(&bomb), Err(CallFailure::TooLarge { limit: 1000 }));
        assert_eq!(unpacked(&packed(&[b' '; 1000])).map(|plain| plain.len()), Ok(1000));
        let budget = MemoryBudget::new(1 << 20);
        let room = AnswerRoom::of_one_hook(&budget);
        assert_eq!(unpack(&bomb, &room, 16 << 20).map(drop), Err(CallFailure::Overloaded));
        assert_eq!(budget.held(), 0);
        let (small, _) = unpack(&packed(&[b' '; 100_000]), &room, 16 << 20).expect("room");
        assert!(budget.held_for(Purpose::Answer) >= small.len(), "as long as it is held");
        drop(small);
        assert_eq!(budget.held(), 0);
    }
}
