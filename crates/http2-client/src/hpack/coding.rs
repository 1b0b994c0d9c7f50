//! Integers, the Huffman code of strings, and the static table, for both directions of HPACK. RFC 7541.
//!
//! The Huffman code is canonical: codes of one length are consecutive and in the order of their symbols. The lengths
//! alone determine the code, so the tables are computed from them at compile time.

/// Reason why a header block cannot be decoded. It ends the connection with COMPRESSION_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderError(pub &'static str);

/// Reads an integer whose prefix is the lowest `bits` bits of the first byte. RFC 7541 §5.1.
///
/// # Errors
/// The block ends inside the integer, or the integer has too many bytes.
pub(super) fn read_integer(block: &mut &[u8], bits: u32) -> Result<usize, DecoderError> {
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

/// Appends an integer with a prefix of `bits` bits. `flags` are the bits above the prefix.
pub(super) fn write_integer(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
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

/// Length of each symbol's code in bits. The last symbol is the end-of-string mark. RFC 7541 Appendix B.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Maximum length of a code in bits.
const MAX_CODE_LEN: usize = 30;
const END_OF_STRING: u16 = 256;

/// For each length: the first code of that length, the number of codes, and the index of their symbols in `symbols`.
struct Tables {
    first: [u32; MAX_CODE_LEN + 1],
    count: [u32; MAX_CODE_LEN + 1],
    start: [u32; MAX_CODE_LEN + 1],
    symbols: [u16; 257],
}

const TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        first: [0; MAX_CODE_LEN + 1],
        count: [0; MAX_CODE_LEN + 1],
        start: [0; MAX_CODE_LEN + 1],
        symbols: [0; 257],
    };
    let (mut len, mut code, mut filed) = (1, 0_u32, 0_u32);
    while len <= MAX_CODE_LEN {
        code <<= 1;
        tables.first[len] = code;
        tables.start[len] = filed;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == len {
                tables.symbols[filed as usize] = symbol as u16;
                tables.count[len] += 1;
                code += 1;
                filed += 1;
            }
            symbol += 1;
        }
        len += 1;
    }
    tables
}

/// Appends the decoded text of `coded`; `None` if the coding is invalid.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut code, mut len) = (0_u32, 0_usize);
    for &byte in coded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            len += 1;
            if len > MAX_CODE_LEN {
                return None;
            }
            let place = code.wrapping_sub(TABLES.first[len]);
            if code >= TABLES.first[len] && place < TABLES.count[len] {
                let symbol = TABLES.symbols[(TABLES.start[len] + place) as usize];
                if symbol == END_OF_STRING {
                    return None;
                }
                out.push(symbol as u8);
                (code, len) = (0, 0);
            }
        }
    }
    // The remaining bits must be the beginning of the end-of-string mark: at most seven bits, all ones.
    (len < 8 && code == (1 << len) - 1).then_some(())
}

/// Returns the Huffman coding of a text. A text has only one coding, so a known text is recognised without decoding.
/// `N` is [`coded_len`] of the text.
pub const fn encode<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut out = [0xff; N];
    let (mut bit, mut at) = (0, 0);
    while at < text.len() {
        let (code, len) = code_of(text[at]);
        let mut left = len;
        while left > 0 {
            left -= 1;
            if code >> left & 1 == 0 {
                out[bit / 8] &= !(0x80 >> (bit % 8));
            }
            bit += 1;
        }
        at += 1;
    }
    out
}

/// Returns the length of the Huffman coding of a text in bytes.
pub const fn coded_len(text: &[u8]) -> usize {
    let (mut bits, mut at) = (0, 0);
    while at < text.len() {
        bits += LENGTHS[text[at] as usize] as usize;
        at += 1;
    }
    bits.div_ceil(8)
}

/// Returns a symbol's code and the length of the code in bits.
const fn code_of(symbol: u8) -> (u32, usize) {
    let len = LENGTHS[symbol as usize] as usize;
    let start = TABLES.start[len];
    let mut place = 0;
    while TABLES.symbols[(start + place) as usize] != symbol as u16 {
        place += 1;
    }
    (TABLES.first[len] + place, len)
}

/// Number of entries of the static table. The first has index 1.
pub(super) const STATIC_LEN: usize = STATIC_TABLE.len();

/// Returns name and value of an entry of the static table.
pub(super) fn static_entry(index: usize) -> Option<(&'static str, &'static str)> {
    STATIC_TABLE.get(index.checked_sub(1)?).copied()
}

/// Static table. RFC 7541 Appendix A.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_coded_as_in_the_rfc() {
        for (bits, value, coded) in
            [(5, 10, &[0b01010][..]), (5, 1337, &[0b11111, 0b1001_1010, 0b0000_1010]), (8, 42, &[42])]
        {
            let mut out = Vec::new();
            write_integer(0, bits, value, &mut out);
            assert_eq!(out, coded);
            assert_eq!(read_integer(&mut &coded[..], bits), Ok(value));
        }
    }

    #[test]
    fn integers_survive_a_round_trip_and_do_not_overflow() {
        for bits in 4..=7 {
            for value in (0..600).chain([16_383, 16_384, 1 << 20, (1 << 28) + (1 << bits) - 2]) {
                let mut out = Vec::new();
                write_integer(0, bits, value, &mut out);
                let mut rest = &[&out[..], b"x"].concat()[..];
                assert_eq!((read_integer(&mut rest, bits), rest), (Ok(value), &b"x"[..]), "{bits}");
                for cut in 0..out.len() {
                    assert!(read_integer(&mut &out[..cut], bits).is_err());
                }
            }
        }
        assert!(read_integer(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f][..], 7).is_err());
        assert_eq!(read_integer(&mut &[0xff, 0x80, 0x80, 0x80, 0x00][..], 7), Ok(127), "zeroes that say nothing");
    }

    fn decoded(coded: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(coded, &mut out)?;
        String::from_utf8(out).ok()
    }

    /// RFC 7541 Appendix C.4 and C.6.
    #[test]
    fn huffman_codes_are_those_of_the_rfc() {
        let cases: [(&[u8], &str); 5] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf], "custom-value"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        ];
        for (coded, text) in cases {
            assert_eq!(decoded(coded).as_deref(), Some(text));
            assert_eq!(coded_len(text.as_bytes()), coded.len());
        }
        assert_eq!(encode::<12>(b"www.example.com"), cases[0].0);
        assert_eq!(encode::<9>(b"custom-value"), cases[2].0);
    }

    #[test]
    fn every_byte_survives_huffman_coding() {
        for byte in 0..=u8::MAX {
            let text = [byte, b'a', byte];
            let coded = encode::<12>(&text);
            let mut out = Vec::new();
            decode(&coded[..coded_len(&text)], &mut out).expect("valid");
            assert_eq!(out, text);
        }
    }

    #[test]
    fn invalid_huffman_codes_are_refused() {
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None, "the end-of-string mark may not occur");
        assert_eq!(decoded(&[0x64, 0x02, 0xff]), None, "eight bits of padding");
        assert_eq!(decoded(&[0xf0]), None, "padding of zeroes");
    }
}
