//! A reader of JSON of a known type, field by field, in the order of the text.

use std::{borrow::Cow, ops::Range, str::FromStr};

use crate::{
    scan::{self, NestingObserver},
    text::{self, JsonError, JsonText, past_blanks},
};

/// The reason why a text cannot be read as the wanted type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonReadError {
    /// The text is not JSON.
    #[error("not JSON at {0}")]
    Json(#[from] JsonError),
    /// A field has another type.
    #[error("{field} must be {wanted}")]
    Type {
        /// The path of the field.
        field: &'static str,
        /// The type that it must have.
        wanted: &'static str,
    },
}

/// A position in a text. Reading a value moves it behind that value. `null` counts as absent, as in Go's decoder.
///
/// The methods that read return an error if the text is not JSON, or if a value has another type.
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The end of the value last read, which white space may follow.
    behind: usize,
    depth: usize,
    /// True directly behind an opening bracket, where no comma is expected.
    fresh: bool,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor before the value of the text.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: past_blanks(text, 0), behind: 0, depth: 0, fresh: false }
    }

    /// Creates a cursor before members of an object or items of an array whose brackets are not in the text.
    pub fn inside(text: &'a str) -> Self {
        Self { text, at: past_blanks(text, 0), behind: 0, depth: 1, fresh: true }
    }

    /// Enters an object; false for `null`.
    pub fn object(&mut self, field: &'static str) -> Result<bool, JsonReadError> {
        self.enter(b'{', field, "an object")
    }

    /// Enters an array; false for `null`.
    pub fn array(&mut self, field: &'static str) -> Result<bool, JsonReadError> {
        self.enter(b'[', field, "an array")
    }

    /// Returns the next key of the object, whose value is to be read next; `None` at the end of the object.
    pub fn key(&mut self) -> Result<Option<JsonText<'a>>, JsonReadError> {
        Ok(self.key_with_range()?.map(|(_, key)| key))
    }

    /// Like [`Cursor::key`], with the range of the key, including its quotes.
    pub fn key_with_range(&mut self) -> Result<Option<(Range<usize>, JsonText<'a>)>, JsonReadError> {
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

    /// Returns true before the next item of the array, false at its end.
    pub fn item(&mut self) -> Result<bool, JsonReadError> {
        self.more(b']', "expected `,` or `]`")
    }

    /// Reads an object: calls `read` with each key, whose value it must read or skip. Returns false for `null`.
    pub fn read_object<E: From<JsonReadError>>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut Self, &str) -> Result<(), E>,
    ) -> Result<bool, E> {
        let entered = self.object(field)?;
        while entered && let Some(key) = self.key()? {
            read(self, &key.plain())?;
        }
        Ok(entered)
    }

    /// Reads an array: calls `read` before each item, which it must read or skip. Returns false for `null`.
    pub fn read_array<E: From<JsonReadError>>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<bool, E> {
        let entered = self.array(field)?;
        while entered && self.item()? {
            read(self)?;
        }
        Ok(entered)
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
        let end = text::scalar(self.text.as_bytes(), self.at)?;
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
        let end = text::scalar(self.text.as_bytes(), self.at)?;
        let value = self.text[self.at..end].parse().map_err(|_| JsonReadError::Type { field, wanted })?;
        self.go_to(end);
        Ok(Some(value))
    }

    /// Returns true if the next value is an array.
    pub fn is_at_array(&self) -> bool {
        self.peek() == Some(b'[')
    }

    /// Skips an object and returns its range.
    pub fn object_range(&mut self, field: &'static str) -> Result<Option<Range<usize>>, JsonReadError> {
        if self.peek() == Some(b'{') { self.value_range().map(Some) } else { self.null_or(field, "an object") }
    }

    /// Like [`Cursor::object_range`]; `nesting` observes the object and the containers in it.
    pub fn object_range_recorded(
        &mut self,
        field: &'static str,
        nesting: &mut impl NestingObserver,
    ) -> Result<Option<Range<usize>>, JsonReadError> {
        if self.peek() != Some(b'{') {
            return self.null_or(field, "an object");
        }
        let start = self.at;
        self.skip_recorded(nesting)?;
        Ok(Some(start..self.behind))
    }

    /// Skips a value of any type.
    pub fn skip(&mut self) -> Result<(), JsonReadError> {
        self.value_range().map(|_| ())
    }

    /// Like [`Cursor::skip`]; `nesting` observes the objects and arrays in the value.
    pub fn skip_recorded(&mut self, nesting: &mut impl NestingObserver) -> Result<(), JsonReadError> {
        let end = scan::observe(self.text, self.at, self.depth, nesting)?;
        self.go_to(end);
        Ok(())
    }

    /// Skips a value that is known to end at `end`.
    pub fn jump_to(&mut self, end: usize) {
        self.go_to(end);
    }

    /// Skips a value of any type and returns its range.
    pub fn value_range(&mut self) -> Result<Range<usize>, JsonReadError> {
        let start = self.at;
        let end = scan::within(self.text, start, self.depth)?;
        self.go_to(end);
        Ok(start..end)
    }

    /// Returns the offset of the next byte to be read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the end of the value last read.
    pub fn value_end(&self) -> usize {
        self.behind
    }

    /// Checks that nothing else follows.
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

    /// Returns true before a key or item, false behind the closing bracket.
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
            self.go_to(text::scalar(self.text.as_bytes(), self.at)?);
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

/// Calls `each` for every key of the object at `at`, in order, with the offset of the key, the key, and the offset of
/// its value. Returns the end of the object.
///
/// # Errors
/// [`JsonError`] if there is no valid object.
pub fn members<'a>(
    text: &'a str,
    at: usize,
    mut each: impl FnMut(usize, Cow<'a, str>, usize),
) -> Result<usize, JsonError> {
    let mut cursor = Cursor::new(&text[at..]);
    with_offset(at, || {
        if cursor.object("it")? {
            loop {
                let before = at + cursor.at();
                let Some(key) = cursor.key()? else { break };
                // A comma and white space may precede it.
                let begins = before + text[before..].bytes().take_while(|byte| *byte != b'"').count();
                each(begins, key.plain(), at + cursor.value_range()?.start);
            }
        }
        Ok(at + cursor.value_end())
    })
}

/// Calls `each` for every item of the array at `at`, in order, with the item's offset. Returns the end of the array.
///
/// # Errors
/// [`JsonError`] if there is no valid array.
pub fn items(text: &str, at: usize, mut each: impl FnMut(usize)) -> Result<usize, JsonError> {
    let mut cursor = Cursor::new(&text[at..]);
    with_offset(at, || {
        cursor.read_array("it", |cursor| cursor.value_range().map(|item| each(at + item.start)))?;
        Ok(at + cursor.value_end())
    })
}

/// Returns the string whose opening quote is at `at`.
///
/// # Errors
/// [`JsonError`] if there is no valid string.
pub fn string(text: &str, at: usize) -> Result<Cow<'_, str>, JsonError> {
    JsonText::read(text, at).map(|(string, _)| string.plain())
}

/// Returns the number or word at `at`.
///
/// # Errors
/// [`JsonError`] if there is none.
pub fn scalar(text: &str, at: usize) -> Result<&str, JsonError> {
    text::scalar(text.as_bytes(), at).map(|end| &text[at..end])
}

fn with_offset(at: usize, read: impl FnOnce() -> Result<usize, JsonReadError>) -> Result<usize, JsonError> {
    read().map_err(|error| match error {
        JsonReadError::Json(error) => JsonError { at: at + error.at, ..error },
        JsonReadError::Type { .. } => JsonError::new(at, "this is no container"),
    })
}
