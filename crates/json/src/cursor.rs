//! Cursor: reads the JSON of a type that is known, field by field, in the order it stands there.

use std::{ops::Range, str::FromStr};

use super::{JsonError, JsonText, nesting::Nesting, number, past_blanks, skip};

/// Reason why a text cannot be read as the type wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonReadError {
    /// It is not JSON at all.
    #[error("not JSON at {0}")]
    Json(#[from] JsonError),
    /// A field has another type.
    #[error("{field} must be {wanted}")]
    Type {
        /// Path of the field.
        field: &'static str,
        /// Type that it must have.
        wanted: &'static str,
    },
}

/// A place in the text. Every reader of a value leaves it behind that value; `null` counts as not written, as in Go's
/// decoder.
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// End of the value last read, which white space may follow.
    behind: usize,
    depth: usize,
    /// True directly behind an opening bracket, where no comma is expected.
    fresh: bool,
}

impl<'a> Cursor<'a> {
    /// A cursor before the value that the text is.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: past_blanks(text, 0), behind: 0, depth: 0, fresh: false }
    }

    /// A cursor before the first of some members of an object, or items of an array, whose brackets are not there.
    pub fn inside(text: &'a str) -> Self {
        Self { text, at: past_blanks(text, 0), behind: 0, depth: 1, fresh: true }
    }

    /// Enters an object; false where there is `null`.
    pub fn object(&mut self, field: &'static str) -> Result<bool, JsonReadError> {
        self.enter(b'{', field, "an object")
    }

    /// Enters an array; false where there is `null`.
    pub fn array(&mut self, field: &'static str) -> Result<bool, JsonReadError> {
        self.enter(b'[', field, "an array")
    }

    /// The next key of the object entered, its value to be read next; `None` behind the object.
    pub fn key(&mut self) -> Result<Option<JsonText<'a>>, JsonReadError> {
        Ok(self.placed_key()?.map(|(_, key)| key))
    }

    /// As [`Cursor::key`], with where the key stands, quotes included.
    pub fn placed_key(&mut self) -> Result<Option<(Range<usize>, JsonText<'a>)>, JsonReadError> {
        if !self.more(b'}', "expected `,` or `}`")? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a key").into());
        }
        let start = self.at;
        let (key, end) = JsonText::read(self.text, start)?;
        self.go_to(end);
        if self.peek() != Some(b':') {
            return Err(self.error("expected `:`").into());
        }
        self.go_to(self.at + 1);
        Ok(Some((start..end, key)))
    }

    /// True before the next item of the array entered, false behind the array.
    pub fn item(&mut self) -> Result<bool, JsonReadError> {
        self.more(b']', "expected `,` or `]`")
    }

    /// Reads a string.
    pub fn string(&mut self, field: &'static str) -> Result<Option<JsonText<'a>>, JsonReadError> {
        if self.peek() != Some(b'"') {
            return self.null_or(field, "a string");
        }
        let (string, end) = JsonText::read(self.text, self.at)?;
        self.go_to(end);
        Ok(Some(string))
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, field: &'static str) -> Result<Option<bool>, JsonReadError> {
        let Some(b't' | b'f') = self.peek() else { return self.null_or(field, "a boolean") };
        let end = number::scalar(self.text.as_bytes(), self.at)?;
        let yes = self.peek() == Some(b't');
        self.go_to(end);
        Ok(Some(yes))
    }

    /// Reads an integer of 32 bits.
    pub fn integer(&mut self, field: &'static str) -> Result<Option<i32>, JsonReadError> {
        self.whole(field, "an integer of 32 bits")
    }

    /// Reads an integer of 64 bits.
    pub fn long_integer(&mut self, field: &'static str) -> Result<Option<i64>, JsonReadError> {
        self.whole(field, "an integer of 64 bits")
    }

    /// Reads an integer from 0 to 255.
    pub fn byte(&mut self, field: &'static str) -> Result<Option<u8>, JsonReadError> {
        self.whole(field, "integers from 0 to 255")
    }

    /// Reads a number without a fraction or an exponent.
    fn whole<T: FromStr>(&mut self, field: &'static str, wanted: &'static str) -> Result<Option<T>, JsonReadError> {
        let Some(b'-' | b'0'..=b'9') = self.peek() else { return self.null_or(field, wanted) };
        let end = number::scalar(self.text.as_bytes(), self.at)?;
        let value = self.text[self.at..end].parse().map_err(|_| JsonReadError::Type { field, wanted })?;
        self.go_to(end);
        Ok(Some(value))
    }

    /// Is the value that comes next an array?
    pub fn is_at_array(&self) -> bool {
        self.peek() == Some(b'[')
    }

    /// Range of the object that comes next; its inside is not read.
    pub fn place_of_object(&mut self, field: &'static str) -> Result<Option<Range<usize>>, JsonReadError> {
        if self.peek() == Some(b'{') { self.place().map(Some) } else { self.null_or(field, "an object") }
    }

    /// The same; `nesting` sees it, and the objects and arrays in it.
    pub fn place_of_object_noting(
        &mut self,
        field: &'static str,
        nesting: &mut impl Nesting,
    ) -> Result<Option<Range<usize>>, JsonReadError> {
        if self.peek() != Some(b'{') {
            return self.null_or(field, "an object");
        }
        let start = self.at;
        self.skip_noting(nesting)?;
        Ok(Some(start..self.behind))
    }

    /// Passes by a value of any type.
    pub fn skip(&mut self) -> Result<(), JsonReadError> {
        self.place().map(|_| ())
    }

    /// The same; `nesting` sees the objects and arrays on the way.
    pub fn skip_noting(&mut self, nesting: &mut impl Nesting) -> Result<(), JsonReadError> {
        let end = skip::noting(self.text, self.at, self.depth, nesting)?;
        self.go_to(end);
        Ok(())
    }

    /// Passes by a value that is known to end there.
    pub fn pass_to(&mut self, end: usize) {
        self.go_to(end);
    }

    /// Range of the next value, of any type; its inside is not read.
    pub fn place(&mut self) -> Result<Range<usize>, JsonReadError> {
        let start = self.at;
        let end = skip::within(self.text, start, self.depth)?;
        self.go_to(end);
        Ok(start..end)
    }

    /// Offset of the next byte to be read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Offset behind the value last read.
    pub fn behind(&self) -> usize {
        self.behind
    }

    /// Nothing else may follow.
    pub fn end(&self) -> Result<(), JsonReadError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("there is more after the value").into()),
        }
    }

    fn enter(&mut self, bracket: u8, field: &'static str, wanted: &'static str) -> Result<bool, JsonReadError> {
        if self.peek() != Some(bracket) {
            return self.null_or::<()>(field, wanted).map(|_| false);
        }
        self.at += 1;
        self.at = past_blanks(self.text, self.at);
        self.depth += 1;
        self.fresh = true;
        Ok(true)
    }

    /// True before a key or item, false behind the closing bracket.
    fn more(&mut self, bracket: u8, expected: &'static str) -> Result<bool, JsonReadError> {
        let fresh = std::mem::take(&mut self.fresh);
        match self.peek() {
            Some(byte) if byte == bracket => {
                self.depth -= 1;
                self.go_to(self.at + 1);
                Ok(false)
            }
            Some(_) if fresh => Ok(true),
            Some(b',') => {
                self.go_to(self.at + 1);
                Ok(true)
            }
            _ => Err(self.error(expected).into()),
        }
    }

    fn null_or<T>(&mut self, field: &'static str, wanted: &'static str) -> Result<Option<T>, JsonReadError> {
        if self.peek() == Some(b'n') {
            self.go_to(number::scalar(self.text.as_bytes(), self.at)?);
            return Ok(None);
        }
        // An error of syntax goes before one of type.
        self.skip()?;
        Err(JsonReadError::Type { field, wanted })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn go_to(&mut self, end: usize) {
        self.behind = end;
        self.at = past_blanks(self.text, end);
    }

    fn error(&self, what: &'static str) -> JsonError {
        let ends = self.at >= self.text.len();
        JsonError::new(self.at, if ends { "the text ends inside a value" } else { what })
    }
}
