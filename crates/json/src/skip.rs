//! Skip: past one whole value, checked on the way.
//!
//! Blocks of 64 bytes become bit masks: which bytes are quotes, which lie in strings, where tokens begin. A small state
//! machine then steps from token to token, and never looks at the bytes between. The masks are those of simdjson's
//! first stage (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", §3.1).

use super::{
    JsonError,
    block::{self, Quoting, Signs},
    nesting::Nesting,
    number, past_blanks,
    text::{self, JsonText},
    tokens::Tokens,
};

/// End of the value that begins at or after `at`, white space before it passed by.
///
/// # Errors
/// [`JsonError`]: there is no valid value.
pub fn skip(text: &str, at: usize) -> Result<usize, JsonError> {
    within(text, past_blanks(text, at), 0)
}

/// End of the value that begins at `at`, so many objects and arrays deep already.
pub(super) fn within(text: &str, at: usize, depth: usize) -> Result<usize, JsonError> {
    noting(text, at, depth, &mut ())
}

/// The same; `nesting` sees the objects and arrays on the way.
pub(super) fn noting(text: &str, at: usize, depth: usize, nesting: &mut impl Nesting) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'"') => JsonText::read(text, at).map(|(_, end)| end),
        Some(b'{' | b'[') => nested(bytes, at, depth, nesting),
        Some(_) => number::scalar(bytes, at),
        None => Err(JsonError::new(at, "the text ends where a value is expected")),
    }
}

fn nested(bytes: &[u8], at: usize, depth: usize, nesting: &mut impl Nesting) -> Result<usize, JsonError> {
    let mut scan = Scan { bytes, strings: Strings::default(), after_scalar: 0, tokens: Tokens::at(depth) };
    let (blocks, tail) = bytes[at..].as_chunks::<{ block::LEN }>();
    let mut start = at;
    for block in blocks {
        if let Some(end) = scan.block(block, start, nesting)? {
            return Ok(end);
        }
        start += block::LEN;
    }
    let mut last = [b' '; block::LEN];
    last[..tail.len()].copy_from_slice(tail);
    match scan.block(&last, start, nesting)? {
        Some(end) => Ok(end),
        None => Err(JsonError::new(bytes.len(), "the text ends inside a value")),
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    strings: Strings,
    /// 1 where the last byte of the block before belongs to a number or word.
    after_scalar: u64,
    tokens: Tokens,
}

impl Scan<'_> {
    /// Reads one block, which begins at `start`; says where the value ends, where that is in it.
    #[inline]
    fn block(
        &mut self,
        block: &[u8; block::LEN],
        start: usize,
        nesting: &mut impl Nesting,
    ) -> Result<Option<usize>, JsonError> {
        let quoting = block::quoting(block);
        let Quoted { quotes, escaped, inside } = self.strings.block(&quoting);
        let mut end = None;
        if inside == u64::MAX && quotes == 0 {
            self.after_scalar = 0;
        } else {
            let Signs { signs, blanks } = block::signs(block);
            let scalars = !(signs | blanks);
            let in_scalar = scalars & !quotes;
            let begins = scalars & !(in_scalar << 1 | self.after_scalar);
            self.after_scalar = in_scalar >> 63;
            // An opening quote is inside, a closing one is not: what is left are opening quotes and all outside.
            let tokens = (signs | begins) & !(inside ^ quotes);
            end = self.tokens.block(self.bytes, block, tokens, start, nesting)?;
        }
        let ours = end.map_or(u64::MAX, |end| u64::MAX >> (63 - (end - 1)));
        let controls = quoting.controls & inside & ours;
        if controls != 0 {
            return Err(text::control(start + controls.trailing_zeros() as usize));
        }
        let mut escaped = escaped & ours;
        while escaped != 0 {
            text::past_escape(self.bytes, start + escaped.trailing_zeros() as usize)?;
            escaped &= escaped - 1;
        }
        Ok(end.map(|end| start + end))
    }
}

/// State of strings, from block to block.
#[derive(Default)]
pub(super) struct Strings {
    /// 1 where the first byte of the next block is escaped.
    escaping: u64,
    /// All ones where the next block begins in a string.
    inside: u64,
}

pub(super) struct Quoted {
    /// Quotes that begin or end a string.
    quotes: u64,
    /// Bytes behind a backslash that escapes them.
    escaped: u64,
    /// From opening quotes to before the closing ones.
    pub(super) inside: u64,
}

impl Strings {
    #[inline]
    pub(super) fn block(&mut self, quoting: &Quoting) -> Quoted {
        let escaped = self.escaped(quoting.backslashes);
        let quotes = quoting.quotes & !escaped;
        // Each bit becomes the parity of the quotes up to it.
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        inside ^= self.inside;
        self.inside = 0_u64.wrapping_sub(inside >> 63);
        Quoted { quotes, escaped, inside }
    }

    /// Which bytes are escaped: those behind an odd run of backslashes, and every second backslash of a run.
    #[inline]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        if backslashes == 0 {
            return std::mem::take(&mut self.escaping);
        }
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let backslashes = backslashes & !self.escaping;
        let follows = backslashes << 1 | self.escaping;
        let odd_starts = backslashes & !EVEN & !follows;
        let (even_runs, overflow) = odd_starts.overflowing_add(backslashes);
        self.escaping = u64::from(overflow);
        (EVEN ^ (even_runs << 1)) & follows
    }
}
