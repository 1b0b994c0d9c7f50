//! Integer: a number with a prefix of some bits, the rest in groups of seven. RFC 7541 §5.1.

use super::DecoderError;

/// Reads a number whose first byte holds a prefix of so many bits.
///
/// # Errors
/// The block ends inside it, or it is larger than any block.
pub(super) fn read(block: &mut &[u8], bits: u32) -> Result<usize, DecoderError> {
    const CUT: DecoderError = DecoderError("a header block ends inside a field");
    let (&first, rest) = block.split_first().ok_or(CUT)?;
    *block = rest;
    let mask = (1_usize << bits) - 1;
    let mut value = usize::from(first) & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = block.split_first().ok_or(CUT)?;
        *block = rest;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(DecoderError("a number in a header block is too large"))
}

/// Appends a number behind `flags`, the bits above a prefix of so many bits.
pub(super) fn write(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1_usize << bits) - 1;
    if value < mask {
        return out.push(flags | value as u8);
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfc_s_examples() {
        for (bits, value, coded) in
            [(5, 10, &[0b01010][..]), (5, 1337, &[0b11111, 0b1001_1010, 0b0000_1010]), (8, 42, &[42])]
        {
            let mut out = Vec::new();
            write(0, bits, value, &mut out);
            assert_eq!(out, coded);
            assert_eq!(read(&mut &coded[..], bits), Ok(value));
        }
    }

    #[test]
    fn every_number_survives_and_none_overflows() {
        for bits in 4..=7 {
            for value in (0..600).chain([16_383, 16_384, 1 << 20, (1 << 28) + (1 << bits) - 2]) {
                let mut out = Vec::new();
                write(0, bits, value, &mut out);
                let mut rest = &[&out[..], b"x"].concat()[..];
                assert_eq!((read(&mut rest, bits), rest), (Ok(value), &b"x"[..]), "{bits}");
                for cut in 0..out.len() {
                    assert!(read(&mut &out[..cut], bits).is_err());
                }
            }
        }
        assert!(read(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f][..], 7).is_err());
        assert_eq!(read(&mut &[0xff, 0x80, 0x80, 0x80, 0x00][..], 7), Ok(127), "zeroes that say nothing");
    }
}
