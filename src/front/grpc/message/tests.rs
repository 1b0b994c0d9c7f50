//! BodyPieces that are kept, and pieces that are joined.

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
    let mut message = MessageBuilder::default();
    for (n, len) in payloads.iter().enumerate() {
        message.push(rest.split_to(*len), n + 1 == payloads.len(), &metrics);
        if message.expected.is_none() {
            message.read_frame_head(usize::MAX).expect("head");
        }
    }
    assert_eq!(message.expected, Some(total));
    assert!(message.pieces.held() >= total);
    let rope = message.into_rope();
    assert_eq!(rope.copy_of(0..rope.len()), whole, "not a byte changed");
    (rope.chunks().iter().map(Bytes::len).collect(), metrics.copied_bytes())
}

#[test]
fn large_frames_are_kept_as_they_are() {
    assert_eq!(pieces(&[2048]), (vec![2048], 0));
    assert_eq!(pieces(&[16384, 4096, 5]), (vec![16384, 4096, 5], 0), "the last may be small");
    assert_eq!(pieces(&[5, 16384, 100]), (vec![5, 16384, 100], 0), "and so may the first");
    assert_eq!(pieces(&[300]), (vec![300], 0));
}

#[test]
fn small_frames_are_joined() {
    assert_eq!(pieces(&[1; 4000]), (vec![5, 3995], 3995));
    assert_eq!(pieces(&[4096, 10, 20, 4096, 30]), (vec![4096, 30, 4096, 30], 30));
    assert_eq!(pieces(&[4096, 4095, 4095, 4095]), (vec![4096, 12285], 12285));
}

#[test]
fn a_frame_head_in_pieces_is_put_together() {
    assert_eq!(pieces(&[0, 3, 1, 5000, 0]), (vec![5, 4999], 0));
    assert_eq!(pieces(&[4, 2, 4200]), (vec![5, 1, 4200], 1));
}
