//! Strings and lists of an answer, as Go's decoder fills them.

use crate::json::{Cursor, JsonReadError};

/// A list as Go's decoder fills it: over the elements of an earlier list with the same key, including those past its
/// end. An empty list or `null` discards them.
#[derive(Debug)]
pub(super) struct Slice<T> {
    elements: Vec<T>,
    len: usize,
}

impl<T> Default for Slice<T> {
    fn default() -> Self {
        Self { elements: Vec::new(), len: 0 }
    }
}

impl<T: Default> Slice<T> {
    /// Creates a list of these elements.
    pub(super) fn of(elements: Vec<T>) -> Self {
        let len = elements.len();
        Self { elements, len }
    }

    /// Reads the array or `null` at the cursor, each element over the earlier one at its index.
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        field: &'static str,
        mut element: impl FnMut(&mut Cursor<'_>, &mut T) -> Result<(), JsonReadError>,
    ) -> Result<(), JsonReadError> {
        self.len = 0;
        if cursor.array(field)? {
            while cursor.item()? {
                match self.elements.get_mut(self.len) {
                    Some(former) => element(cursor, former)?,
                    None => {
                        let mut new = T::default();
                        element(cursor, &mut new)?;
                        self.elements.push(new);
                    }
                }
                self.len += 1;
            }
        }
        if self.len == 0 {
            self.elements.clear();
        }
        Ok(())
    }

    /// Returns the elements up to the end of the list.
    pub(super) fn into_vec(mut self) -> Vec<T> {
        self.elements.truncate(self.len);
        self.elements
    }
}

/// Passes the string at the cursor to `put`; `null` leaves the field unchanged.
pub(super) fn set(cursor: &mut Cursor<'_>, field: &'static str, put: impl FnOnce(String)) -> Result<(), JsonReadError> {
    if let Some(text) = string(cursor, field)? {
        put(text);
    }
    Ok(())
}

/// Reads the string at the cursor; `None` for `null`.
pub(super) fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<String>, JsonReadError> {
    Ok(cursor.string(field)?.map(|text| text.plain().into_owned()))
}
