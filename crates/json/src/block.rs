//! Classification of 64 bytes in parallel into bit masks; the first byte has the lowest bit.
//!
//! The compiler turns plain loops over arrays of a fixed length into the vector instructions of each target.

/// Number of bytes in a block.
pub(super) const LEN: usize = 64;

/// Bytes that delimit strings, and bytes that strings must not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoting {
    /// `"`
    pub(super) quotes: u64,
    /// `\`
    pub(super) backslashes: u64,
    /// Bytes below 0x20.
    pub(super) controls: u64,
}

/// Bytes with a meaning outside strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signs {
    /// `{ } [ ] : ,`
    pub(super) signs: u64,
    /// Space, tab, line feed, carriage return.
    pub(super) blanks: u64,
}

/// Classifies a block to find its strings.
#[inline]
pub(super) fn quoting(block: &[u8; LEN]) -> Quoting {
    let quotes = mask(block, |byte| byte == b'"');
    // Most blocks have neither. This test is faster than the two masks.
    if !holds(block, |byte| (byte == b'\\') | (byte < 0x20)) {
        return Quoting { quotes, backslashes: 0, controls: 0 };
    }
    Quoting { quotes, backslashes: mask(block, |byte| byte == b'\\'), controls: mask(block, |byte| byte < 0x20) }
}

/// Classifies a block to find the tokens outside strings.
#[inline]
pub(super) fn signs(block: &[u8; LEN]) -> Signs {
    let blank = |byte| (byte == b' ') | (byte == b'\t') | (byte == b'\n') | (byte == b'\r');
    Signs {
        // `[` and `{` differ in a single bit, and so do `]` and `}`.
        signs: mask(block, |byte| (byte | 0x20 == b'{') | (byte | 0x20 == b'}') | (byte == b':') | (byte == b',')),
        blanks: if holds(block, blank) { mask(block, blank) } else { 0 },
    }
}

/// Returns the places of `{ } [ ]`, including those in strings.
#[inline]
pub(super) fn brackets(block: &[u8; LEN]) -> u64 {
    mask(block, |byte| (byte | 0x20 == b'{') | (byte | 0x20 == b'}'))
}

/// Returns the offset behind the blocks from `at` on that contain only plain characters of a string.
pub(super) fn past_plain(bytes: &[u8], at: usize) -> usize {
    let (blocks, _) = bytes.get(at..).unwrap_or_default().as_chunks::<LEN>();
    let ends = |block: &[u8; LEN]| holds(block, |byte| (byte == b'"') | (byte == b'\\') | (byte < 0x20));
    at + LEN * blocks.iter().take_while(|block| !ends(block)).count()
}

#[inline]
fn holds(block: &[u8; LEN], is: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(0, |found, byte| found | u8::from(is(*byte))) != 0
}

/// Returns the mask of the bytes for which `is` returns true.
#[inline]
fn mask(block: &[u8; LEN], is: impl Fn(u8) -> bool) -> u64 {
    let mut found = [0_u8; LEN];
    for (found, byte) in found.iter_mut().zip(block) {
        *found = u8::from(is(*byte));
    }
    let (words, _) = found.as_chunks::<8>();
    let mut mask = 0;
    for (at, word) in words.iter().enumerate() {
        // The factor moves bit 8i to bit 56 + i.
        mask |= (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at);
    }
    mask
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(block: &[u8; LEN]) {
        let mask = |is: fn(u8) -> bool| (0..LEN).fold(0, |mask, at| mask | u64::from(is(block[at])) << at);
        let wanted = (
            Quoting {
                quotes: mask(|byte| byte == b'"'),
                backslashes: mask(|byte| byte == b'\\'),
                controls: mask(|byte| byte < 0x20),
            },
            Signs { signs: mask(|byte| b"{}[]:,".contains(&byte)), blanks: mask(|byte| b" \t\r\n".contains(&byte)) },
        );
        assert_eq!((quoting(block), signs(block)), wanted);
    }

    #[test]
    fn every_byte_is_classified_at_every_offset() {
        for byte in 0..=u8::MAX {
            for at in 0..LEN {
                let mut block = [b'x'; LEN];
                block[at] = byte;
                check(&block);
            }
            check(&[byte; LEN]);
        }
    }

    proptest! {
        #[test]
        fn blocks_are_classified(bytes in proptest::collection::vec(any::<u8>(), LEN)) {
            check(bytes.as_slice().try_into().unwrap());
        }
    }
}
