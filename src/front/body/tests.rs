//! Payloads that are kept, and payloads that are joined.

use std::sync::Arc;

use bytes::BytesMut;

use super::*;

/// Pushes these payloads as a stream would; returns the sizes of the pieces and what was copied.
fn pieces(payloads: &[usize]) -> (Vec<usize>, u64) {
    let metrics = Arc::new(Metrics::default());
    let total: usize = payloads.iter().sum();
    let mut whole = BytesMut::from(&[0; FRAME_HEAD][..]);
    whole[1..].copy_from_slice(&((total - FRAME_HEAD) as u32).to_be_bytes());
    whole.extend((FRAME_HEAD..total).map(|n| n as u8));
    let whole = whole.freeze();
    let mut rest = whole.clone();
    let mut pieces = BodyPieces::default();
    for (n, len) in payloads.iter().enumerate() {
        pieces.push_framed(rest.split_to(*len), n + 1 == payloads.len(), &metrics);
    }
    let declared = message_length(*pieces.frame_head().expect("head")).expect("valid");
    assert_eq!(FRAME_HEAD + declared, total);
    assert!(pieces.held() >= total);
    let rope = pieces.into_rope();
    assert_eq!(rope.to_bytes(), whole, "not a byte changed");
    (rope.chunks().iter().map(Bytes::len).collect(), metrics.copied_bytes())
}

#[test]
fn message_keeps_large_frames_as_they_are() {
    assert_eq!(pieces(&[2048]), (vec![2048], 0));
    assert_eq!(pieces(&[16384, 4096, 5]), (vec![16384, 4096, 5], 0), "the last may be small");
    assert_eq!(pieces(&[5, 16384, 100]), (vec![5, 16384, 100], 0), "and so may the first");
    assert_eq!(pieces(&[300]), (vec![300], 0));
}

#[test]
fn message_joins_small_frames() {
    assert_eq!(pieces(&[1; 4000]), (vec![5, 3995], 3995));
    assert_eq!(pieces(&[4096, 10, 20, 4096, 30]), (vec![4096, 30, 4096, 30], 30));
    assert_eq!(pieces(&[4096, 4095, 4095, 4095]), (vec![4096, 12285], 12285));
}

#[test]
fn message_joins_a_frame_head_in_pieces() {
    assert_eq!(pieces(&[0, 3, 1, 5000, 0]), (vec![5, 4999], 0));
    assert_eq!(pieces(&[4, 2, 4200]), (vec![5, 1, 4200], 1));
}

/// As h2 reads: 8 KiB at a time, of which these bytes are a body's and the rest is somebody else's.
fn among_others(len: usize) -> Bytes {
    Bytes::from(vec![0; READ_BUFFER]).slice(..len)
}

#[test]
fn body_pieces_pin_at_most_twice_their_bytes() {
    let metrics = Metrics::new(1);
    for len in [1, 100, 1024, JOIN_THRESHOLD - 1, JOIN_THRESHOLD, JOIN_THRESHOLD + 1, READ_BUFFER] {
        let mut pieces = BodyPieces::default();
        (0..256).for_each(|_| pieces.push(among_others(len), false, &metrics));
        let held = pieces.held();
        assert!((len * 256..=len * 512 + READ_BUFFER).contains(&held), "{held} for 256 times {len}");
        let rope = pieces.into_rope();
        let pins = rope.chunks().iter().filter(|chunk| chunk.len() == len).count() * READ_BUFFER;
        assert!(rope.len() == len * 256 && pins <= 2 * rope.len() + READ_BUFFER, "{pins} for 256 times {len}");
    }
}
