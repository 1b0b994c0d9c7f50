//! Skip: past one whole value, checked on the way.
//!
//! Blocks of 64 bytes become bit masks: which bytes are quotes, which lie in strings, where tokens begin. A small state
//! machine then steps from token to token, and never looks at the bytes between. The masks are those of simdjson's first
//! stage (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", §3.1).

use super::{
    JsonError, MAX_DEPTH,
    block::{self, Quoting, Signs},
    number, past_blanks,
    text::{self, Text},
};

/// Where the value ends that begins at or after `at`, white space before it passed by.
///
/// # Errors
/// [`JsonError`]: there is no valid value.
pub fn skip(text: &str, at: usize) -> Result<usize, JsonError> {
    within(text, past_blanks(text, at), 0)
}

/// Where the value ends that begins at `at`, so many objects and arrays deep already.
pub(super) fn within(text: &str, at: usize, depth: usize) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'"') => Text::read(text, at).map(|(_, end)| end),
        Some(b'{' | b'[') => nested(bytes, at, depth),
        Some(_) => number::scalar(bytes, at),
        None => Err(JsonError::new(at, "the text ends where a value is expected")),
    }
}

fn nested(bytes: &[u8], at: usize, depth: usize) -> Result<usize, JsonError> {
    let mut scan = Scan { bytes, strings: Strings::default(), after_scalar: 0, walk: Walk::at(depth) };
    let (blocks, tail) = bytes[at..].as_chunks::<{ block::LEN }>();
    let mut start = at;
    for block in blocks {
        if let Some(end) = scan.block(block, start)? {
            return Ok(end);
        }
        start += block::LEN;
    }
    let mut last = [b' '; block::LEN];
    last[..tail.len()].copy_from_slice(tail);
    match scan.block(&last, start)? {
        Some(end) => Ok(end),
        None => Err(JsonError::new(bytes.len(), "the text ends inside a value")),
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    strings: Strings,
    /// 1 where the last byte of the block before belongs to a number or word.
    after_scalar: u64,
    walk: Walk,
}

impl Scan<'_> {
    /// Reads one block, which begins at `start`; says where the value ends, where that is in it.
    #[inline]
    fn block(&mut self, block: &[u8; block::LEN], start: usize) -> Result<Option<usize>, JsonError> {
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
            end = self.walk.tokens(self.bytes, block, tokens, start)?;
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

/// Where strings are, from block to block.
#[derive(Default)]
struct Strings {
    /// 1 where the first byte of the next block is escaped.
    escaping: u64,
    /// All ones where the next block begins in a string.
    inside: u64,
}

struct Quoted {
    /// Quotes that begin or end a string.
    quotes: u64,
    /// Bytes behind a backslash that escapes them.
    escaped: u64,
    /// From opening quotes to before the closing ones.
    inside: u64,
}

impl Strings {
    #[inline]
    fn block(&mut self, quoting: &Quoting) -> Quoted {
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

/// What may come next.
type Expect = u8;
const FIRST_KEY: Expect = 0;
const KEY: Expect = 1;
const COLON: Expect = 2;
const VALUE: Expect = 3;
const AFTER_VALUE: Expect = 4;
const FIRST_ITEM: Expect = 5;
const ITEM: Expect = 6;
const AFTER_ITEM: Expect = 7;

/// For errors, by [`Expect`].
const EXPECTED: [&str; 8] = [
    "expected a key or `}`",
    "expected a key",
    "expected `:`",
    "expected a value",
    "expected `,` or `}`",
    "expected a value or `]`",
    "expected a value",
    "expected `,` or `]`",
];

// What a token does: becomes one of the above, or one of these.
const OPEN: u8 = 8;
const CLOSE: u8 = 9;
const SCALAR: u8 = 10;
const REFUSE: u8 = 11;

/// What each token's first byte does, by [`Expect`] and [`class`].
const MOVES: [[u8; 8]; 8] = {
    let mut moves = [[REFUSE; 8]; 8];
    moves[FIRST_KEY as usize][class(b'"')] = COLON;
    moves[FIRST_KEY as usize][class(b'}')] = CLOSE;
    moves[KEY as usize][class(b'"')] = COLON;
    moves[COLON as usize][class(b':')] = VALUE;
    moves[AFTER_VALUE as usize][class(b',')] = KEY;
    moves[AFTER_VALUE as usize][class(b'}')] = CLOSE;
    moves[FIRST_ITEM as usize][class(b']')] = CLOSE;
    moves[AFTER_ITEM as usize][class(b',')] = ITEM;
    moves[AFTER_ITEM as usize][class(b']')] = CLOSE;
    let before = [VALUE, FIRST_ITEM, ITEM];
    let after = [AFTER_VALUE, AFTER_ITEM, AFTER_ITEM];
    let mut at = 0;
    while at < before.len() {
        let moves = &mut moves[before[at] as usize];
        moves[class(b'"')] = after[at];
        moves[class(b'{')] = OPEN;
        moves[class(b'1')] = SCALAR;
        at += 1;
    }
    moves
};

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = class(byte as u8) as u8;
        byte += 1;
    }
    classes
};

const fn class(byte: u8) -> usize {
    match byte {
        b'"' => 1,
        b':' => 2,
        b',' => 3,
        b'{' | b'[' => 4,
        b'}' => 5,
        b']' => 6,
        // Whether it is a number or word at all is seen when it is read.
        _ => 7,
    }
}

/// The state machine.
struct Walk {
    expect: Expect,
    /// Objects and arrays open, those around the value included.
    depth: usize,
    /// Of those, how many were open before the value.
    outer: usize,
    /// The innermost 64 that are open, 1 for an object, and the ones around them.
    kinds: u64,
    more_kinds: Vec<u64>,
}

impl Walk {
    fn at(depth: usize) -> Self {
        Self { expect: ITEM, depth, outer: depth, kinds: 0, more_kinds: Vec::new() }
    }

    /// Steps over the tokens of a block; says behind which of its bytes the value ends, where it does.
    #[inline]
    fn tokens(
        &mut self,
        bytes: &[u8],
        block: &[u8; block::LEN],
        mut tokens: u64,
        start: usize,
    ) -> Result<Option<usize>, JsonError> {
        let mut expect = self.expect;
        while tokens != 0 {
            let at = tokens.trailing_zeros() as usize % block::LEN;
            tokens &= tokens - 1;
            let byte = block[at];
            expect = match MOVES[usize::from(expect) % 8][usize::from(CLASSES[usize::from(byte)]) % 8] {
                next @ FIRST_KEY..=AFTER_ITEM => next,
                OPEN => self.open(byte == b'{', start + at)?,
                CLOSE => match self.close() {
                    Some(next) => next,
                    None => return Ok(Some(at + 1)),
                },
                SCALAR => {
                    number::scalar(bytes, start + at)?;
                    if expect == VALUE { AFTER_VALUE } else { AFTER_ITEM }
                }
                _ => return Err(JsonError::new(start + at, EXPECTED[usize::from(expect) % 8])),
            };
        }
        self.expect = expect;
        Ok(None)
    }

    fn open(&mut self, object: bool, at: usize) -> Result<Expect, JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(JsonError::new(at, "objects and arrays nest deeper than 10000"));
        }
        let inner = self.depth - self.outer;
        if inner > 0 && inner.is_multiple_of(64) {
            self.more_kinds.push(self.kinds);
        }
        self.depth += 1;
        self.kinds = self.kinds << 1 | u64::from(object);
        Ok(if object { FIRST_KEY } else { FIRST_ITEM })
    }

    /// What is expected after the innermost object or array; `None` where that was the value itself.
    fn close(&mut self) -> Option<Expect> {
        self.depth -= 1;
        self.kinds >>= 1;
        let inner = self.depth - self.outer;
        if inner == 0 {
            return None;
        }
        if inner.is_multiple_of(64) {
            self.kinds = self.more_kinds.pop()?;
        }
        Some(if self.kinds & 1 == 1 { AFTER_VALUE } else { AFTER_ITEM })
    }
}
