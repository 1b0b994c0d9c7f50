//! Scans over one whole value, checked or not.
//!
//! Blocks of 64 bytes become bit masks: which bytes are quotes, which are in strings, where tokens begin. A small state
//! machine then steps from token to token, without reading the bytes between.

use crate::{
    block::{self, Quoting, Signs},
    text::{self, JsonError, JsonText, MAX_DEPTH, past_blanks},
};

/// An observer of objects and arrays, in the order of their brackets.
pub trait NestingObserver {
    /// Called when a container opens at this byte.
    fn opens(&mut self, at: usize);
    /// Called when the innermost open container closes before this byte.
    fn closes(&mut self, end: usize);
}

/// Ignores all containers.
impl NestingObserver for () {
    #[inline]
    fn opens(&mut self, _: usize) {}

    #[inline]
    fn closes(&mut self, _: usize) {}
}

/// Checks that the bytes are one JSON object and white space, within [`MAX_DEPTH`] if nested in `around` objects.
///
/// # Errors
/// [`JsonError`], including if the bytes are not UTF-8.
pub fn object(bytes: &[u8], around: usize) -> Result<(), JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::new(error.valid_up_to(), "this is not UTF-8"))?;
    let start = past_blanks(text, 0);
    if text.as_bytes().get(start) != Some(&b'{') {
        return Err(JsonError::new(start, "this is not a JSON object"));
    }
    let end = past_blanks(text, within(text, start, around)?);
    if end < text.len() {
        return Err(JsonError::new(end, "there is more after the object"));
    }
    Ok(())
}

/// Checks that the bytes are one JSON value and white space.
///
/// # Errors
/// [`JsonError`], including if the bytes are not UTF-8.
pub fn value(bytes: &[u8]) -> Result<(), JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::new(error.valid_up_to(), "this is not UTF-8"))?;
    let end = past_blanks(text, skip(text, 0)?);
    if end < text.len() {
        return Err(JsonError::new(end, "there is more after the value"));
    }
    Ok(())
}

/// Returns true if the text begins like a JSON object.
pub fn is_object(text: &str) -> bool {
    text.as_bytes().get(past_blanks(text, 0)) == Some(&b'{')
}

/// Returns the end of the value at `at`, which white space may precede.
///
/// # Errors
/// [`JsonError`] if there is no valid value.
pub fn skip(text: &str, at: usize) -> Result<usize, JsonError> {
    within(text, past_blanks(text, at), 0)
}

/// Returns the end of the value at `at`, which lies in `depth` objects and arrays.
pub(super) fn within(text: &str, at: usize, depth: usize) -> Result<usize, JsonError> {
    observe(text, at, depth, &mut ())
}

/// Like [`within`]; `nesting` observes the objects and arrays on the way.
pub(super) fn observe(
    text: &str,
    at: usize,
    depth: usize,
    nesting: &mut impl NestingObserver,
) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'"') => JsonText::read(text, at).map(|(_, end)| end),
        Some(b'{' | b'[') => container(bytes, at, depth, nesting),
        Some(_) => text::scalar(bytes, at),
        None => Err(JsonError::new(at, "the text ends where a value is expected")),
    }
}

fn container(bytes: &[u8], at: usize, depth: usize, nesting: &mut impl NestingObserver) -> Result<usize, JsonError> {
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
    /// 1 if the last byte of the previous block belongs to a number or word.
    after_scalar: u64,
    tokens: Tokens,
}

impl Scan<'_> {
    /// Reads the block that begins at `start`. Returns the end of the value if it is in this block.
    #[inline]
    fn block(
        &mut self,
        block: &[u8; block::LEN],
        start: usize,
        nesting: &mut impl NestingObserver,
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
            // The opening quote is inside, the closing one is not. Opening quotes and all bytes outside strings remain.
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

/// The state of strings between blocks.
#[derive(Default)]
pub(super) struct Strings {
    /// 1 if the first byte of the next block is escaped.
    escaping: u64,
    /// All ones if the next block begins in a string.
    inside: u64,
}

pub(super) struct Quoted {
    /// Quotes that begin or end a string.
    quotes: u64,
    /// Bytes escaped by a backslash.
    escaped: u64,
    /// Bytes from opening quotes up to closing ones.
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

    /// Returns the escaped bytes: those behind an odd run of backslashes, and every second backslash of a run.
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

/// Tokens that may come next. They follow from the previous two tokens and the kind of container, so that no token has
/// to wait for a state computed from the previous token.
#[derive(Clone, Copy)]
enum Expect {
    FirstKey,
    Key,
    Colon,
    FirstItem,
    Value,
    AfterValue,
    AfterItem,
}

impl Expect {
    const fn after(object: bool, before: usize, last: usize) -> Self {
        match (last, object) {
            (OPEN_OBJECT, _) => Self::FirstKey,
            (OPEN_ARRAY, _) => Self::FirstItem,
            (COMMA, true) => Self::Key,
            (QUOTE, true) if before != COLON => Self::Colon,
            (COLON | COMMA, _) => Self::Value,
            (_, true) => Self::AfterValue,
            (_, false) => Self::AfterItem,
        }
    }

    const fn does(self, token: usize) -> u8 {
        match (self, token) {
            (Self::FirstKey | Self::Key, QUOTE) | (Self::Colon, COLON) => ACCEPT,
            (Self::AfterValue | Self::AfterItem, COMMA) => ACCEPT,
            (Self::FirstKey | Self::AfterValue, CLOSE_OBJECT) | (Self::FirstItem | Self::AfterItem, CLOSE_ARRAY) => {
                CLOSE
            }
            (Self::FirstItem | Self::Value, QUOTE) => ACCEPT,
            (Self::FirstItem | Self::Value, OPEN_OBJECT | OPEN_ARRAY) => OPEN,
            (Self::FirstItem | Self::Value, SCALAR) => READ,
            _ => REFUSE,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::FirstKey => "expected a key or `}`",
            Self::Key => "expected a key",
            Self::Colon => "expected `:`",
            Self::FirstItem => "expected a value or `]`",
            Self::Value => "expected a value",
            Self::AfterValue => "expected `,` or `}`",
            Self::AfterItem => "expected `,` or `]`",
        }
    }
}

// Classes of tokens by their first byte, in three bits.
const QUOTE: usize = 0;
const COLON: usize = 1;
const COMMA: usize = 2;
const OPEN_OBJECT: usize = 3;
const OPEN_ARRAY: usize = 4;
const CLOSE_OBJECT: usize = 5;
const CLOSE_ARRAY: usize = 6;
/// A number or word. An invalid one is detected when it is read.
const SCALAR: usize = 7;

// Actions for a token.
const ACCEPT: u8 = 0;
const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const READ: u8 = 3;
const REFUSE: u8 = 4;

/// Action for each kind of container (one bit: it is an object), previous two tokens and token.
const MOVES: [u8; 1024] = {
    let mut moves = [REFUSE; 1024];
    let mut at = 0;
    while at < moves.len() {
        moves[at] = Expect::after(at >> 9 == 1, at >> 6 & 7, at >> 3 & 7).does(at & 7);
        at += 1;
    }
    moves
};

const CLASSES: [u8; 256] = {
    let mut classes = [SCALAR as u8; 256];
    classes[b'"' as usize] = QUOTE as u8;
    classes[b':' as usize] = COLON as u8;
    classes[b',' as usize] = COMMA as u8;
    classes[b'{' as usize] = OPEN_OBJECT as u8;
    classes[b'[' as usize] = OPEN_ARRAY as u8;
    classes[b'}' as usize] = CLOSE_OBJECT as u8;
    classes[b']' as usize] = CLOSE_ARRAY as u8;
    classes
};

/// The state of a walk over the tokens of one value.
pub(super) struct Tokens {
    /// The last two tokens, three bits each.
    recent: usize,
    /// Open objects and arrays, including those around the value.
    depth: usize,
    /// Objects and arrays around the value.
    outer: usize,
    /// The innermost 64 open containers, 1 for an object; those around them are in `more_kinds`.
    kinds: u64,
    more_kinds: Vec<u64>,
}

impl Tokens {
    pub(super) fn at(depth: usize) -> Self {
        // Like the state behind the comma of an array: a value comes next.
        Self { recent: COMMA, depth, outer: depth, kinds: 0, more_kinds: Vec::new() }
    }

    /// Steps over the tokens of a block. Returns the offset in the block behind the value if it ends there.
    #[inline]
    pub(super) fn block(
        &mut self,
        bytes: &[u8],
        block: &[u8; block::LEN],
        mut tokens: u64,
        start: usize,
        nesting: &mut impl NestingObserver,
    ) -> Result<Option<usize>, JsonError> {
        let mut recent = self.recent;
        let mut object = (self.kinds & 1) as usize;
        while tokens != 0 {
            let at = tokens.trailing_zeros() as usize % block::LEN;
            tokens &= tokens - 1;
            let byte = block[at];
            let moved = (recent << 3 | usize::from(CLASSES[usize::from(byte)])) % 512;
            match MOVES[object << 9 | moved] {
                ACCEPT => {}
                OPEN => {
                    self.open(byte == b'{', start + at)?;
                    nesting.opens(start + at);
                    object = usize::from(byte == b'{');
                }
                CLOSE => {
                    nesting.closes(start + at + 1);
                    if self.close() {
                        return Ok(Some(at + 1));
                    }
                    object = (self.kinds & 1) as usize;
                }
                READ => {
                    text::scalar(bytes, start + at)?;
                }
                _ => {
                    let expect = Expect::after(object == 1, recent >> 3 & 7, recent & 7);
                    return Err(JsonError::new(start + at, expect.as_str()));
                }
            }
            recent = moved;
        }
        self.recent = recent;
        Ok(None)
    }

    fn open(&mut self, object: bool, at: usize) -> Result<(), JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(JsonError::new(at, "objects and arrays nest deeper than 10000"));
        }
        let inner = self.depth - self.outer;
        if inner > 0 && inner.is_multiple_of(64) {
            self.more_kinds.push(self.kinds);
        }
        self.depth += 1;
        self.kinds = self.kinds << 1 | u64::from(object);
        Ok(())
    }

    /// Closes the innermost container. Returns true if that was the value itself.
    fn close(&mut self) -> bool {
        self.depth -= 1;
        self.kinds >>= 1;
        let inner = self.depth - self.outer;
        if inner > 0 && inner.is_multiple_of(64) {
            self.kinds = self.more_kinds.pop().unwrap_or_default();
        }
        inner == 0
    }
}

/// Returns the end of the container at `at` in a text that is known to be JSON. Reads only strings and brackets.
/// `nesting` observes the container and all containers in it.
///
/// # Errors
/// [`JsonError`] if there is no such container.
pub fn brackets(text: &str, at: usize, nesting: &mut impl NestingObserver) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    if u32::try_from(bytes.len()).is_err() {
        return Err(JsonError::new(at, "the text is too long"));
    }
    let mut open = 0_usize;
    let mut strings = Strings::default();
    let rest = bytes.get(at..).unwrap_or_default();
    let (blocks, tail) = rest.as_chunks::<{ block::LEN }>();
    let mut last = [b' '; block::LEN];
    last[..tail.len()].copy_from_slice(tail);
    let mut start = at;
    for block in blocks.iter().chain([&last]) {
        let quoting: Quoting = block::quoting(block);
        let Quoted { inside, .. } = strings.block(&quoting);
        let mut brackets = if inside == u64::MAX { 0 } else { block::brackets(block) & !inside };
        while brackets != 0 {
            let place = start + brackets.trailing_zeros() as usize;
            brackets &= brackets - 1;
            // `{` and `[` have this bit, `}` and `]` do not.
            if bytes.get(place).is_some_and(|bracket| bracket & 0b10 != 0) {
                if open > MAX_DEPTH {
                    return Err(JsonError::new(place, "this is nested too deep"));
                }
                open += 1;
                nesting.opens(place);
                continue;
            }
            let Some(around) = open.checked_sub(1) else { break };
            open = around;
            nesting.closes(place + 1);
            if open == 0 {
                return Ok(place + 1);
            }
        }
        start += block::LEN;
    }
    Err(JsonError::new(at, "there is no whole object or array"))
}
