//! Tokens: a small state machine that steps from token to token of a value.

use super::{JsonError, MAX_DEPTH, block, nesting::Nesting, number};

/// Tokens that may come next. The state follows from the two tokens before and from the container they stand in;
/// nothing is carried from token to token that the next one would have to wait for.
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
            (Self::FirstKey | Self::Key, QUOTE) | (Self::Colon, COLON) => FINE,
            (Self::AfterValue | Self::AfterItem, COMMA) => FINE,
            (Self::FirstKey | Self::AfterValue, CLOSE_OBJECT) | (Self::FirstItem | Self::AfterItem, CLOSE_ARRAY) => {
                CLOSE
            }
            (Self::FirstItem | Self::Value, QUOTE) => FINE,
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

// Class of a token, by its first byte; three bits.
const QUOTE: usize = 0;
const COLON: usize = 1;
const COMMA: usize = 2;
const OPEN_OBJECT: usize = 3;
const OPEN_ARRAY: usize = 4;
const CLOSE_OBJECT: usize = 5;
const CLOSE_ARRAY: usize = 6;
/// An invalid number or word is found when it is read.
const SCALAR: usize = 7;

// Action for a token.
const FINE: u8 = 0;
const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const READ: u8 = 3;
const REFUSE: u8 = 4;

/// Actions by the container (object or not, one bit), the two tokens before and the token itself.
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

/// State of a walk over the tokens of one value.
pub(super) struct Tokens {
    /// The last two tokens, three bits each.
    recent: usize,
    /// Objects and arrays open, those around the value included.
    depth: usize,
    /// Of those, how many were open before the value.
    outer: usize,
    /// The innermost 64 that are open, 1 for an object, and the ones around them.
    kinds: u64,
    more_kinds: Vec<u64>,
}

impl Tokens {
    pub(super) fn at(depth: usize) -> Self {
        // As if behind the comma of an array: a value is to come.
        Self { recent: COMMA, depth, outer: depth, kinds: 0, more_kinds: Vec::new() }
    }

    /// Steps over the tokens of a block; says behind which of its bytes the value ends, where it does.
    #[inline]
    pub(super) fn block(
        &mut self,
        bytes: &[u8],
        block: &[u8; block::LEN],
        mut tokens: u64,
        start: usize,
        nesting: &mut impl Nesting,
    ) -> Result<Option<usize>, JsonError> {
        let mut recent = self.recent;
        let mut object = (self.kinds & 1) as usize;
        while tokens != 0 {
            let at = tokens.trailing_zeros() as usize % block::LEN;
            tokens &= tokens - 1;
            let byte = block[at];
            let moved = (recent << 3 | usize::from(CLASSES[usize::from(byte)])) % 512;
            match MOVES[object << 9 | moved] {
                FINE => {}
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
                    number::scalar(bytes, start + at)?;
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

    /// True where the innermost object or array was the value itself.
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
