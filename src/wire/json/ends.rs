//! Ends: the larger objects and arrays of a text that is known to be JSON, and where each of them ends.
//!
//! One pass that heeds strings and brackets alone. With its table, what stands in a container is found without going
//! through the large ones in it again, however deep one descends.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    JsonError, MAX_DEPTH, Text,
    block::{self, Quoting},
    nesting::Nesting,
    past_blanks,
    skip::{Quoted, Strings},
};

/// Smaller containers are gone through again: that is soon done, and there are many.
const LARGE: usize = 256;

/// Ends of the larger containers, by where they begin.
#[derive(Debug, Default)]
pub struct Ends(FxHashMap<u32, u32>);

impl Ends {
    /// Ends of the container that begins at `at`, and of all in it. The text must have been checked; for an unchecked
    /// one the result means nothing.
    ///
    /// # Errors
    /// [`JsonError`]: there is no such container.
    pub fn of(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut noted = Noted::default();
        brackets(text, at, &mut noted)?;
        Ok(Self(noted.ends))
    }

    /// As [`members`](super::members), of an object in the text that this is of.
    ///
    /// # Errors
    /// [`JsonError`]: there is no object.
    pub fn members<'a>(
        &self,
        text: &'a str,
        at: usize,
        mut each: impl FnMut(usize, Cow<'a, str>, usize),
    ) -> Result<usize, JsonError> {
        self.children(text, at, b'}', |begins| {
            let (key, end) = Text::read(text, begins)?;
            let value = past_blanks(text, past(text, past_blanks(text, end), b':')?);
            each(begins, key.plain(), value);
            Ok(value)
        })
    }

    /// As [`items`](super::items), of an array in the text that this is of.
    ///
    /// # Errors
    /// [`JsonError`]: there is no array.
    pub fn items(&self, text: &str, at: usize, mut each: impl FnMut(usize)) -> Result<usize, JsonError> {
        self.children(text, at, b']', |begins| {
            each(begins);
            Ok(begins)
        })
    }

    /// Goes from child to child; `value` says where the value of one begins.
    fn children(
        &self,
        text: &str,
        at: usize,
        close: u8,
        mut value: impl FnMut(usize) -> Result<usize, JsonError>,
    ) -> Result<usize, JsonError> {
        let bytes = text.as_bytes();
        let mut child = past_blanks(text, at + 1);
        if bytes.get(child) == Some(&close) {
            return Ok(child + 1);
        }
        loop {
            let behind = past_blanks(text, self.behind(text, value(child)?)?);
            if bytes.get(behind) == Some(&close) {
                return Ok(behind + 1);
            }
            child = past_blanks(text, past(text, behind, b',')?);
        }
    }

    /// End of the value that begins at `at`.
    fn behind(&self, text: &str, at: usize) -> Result<usize, JsonError> {
        let bytes = text.as_bytes();
        match bytes.get(at) {
            Some(b'{' | b'[') => match u32::try_from(at).ok().and_then(|at| self.0.get(&at)) {
                Some(end) => Ok(*end as usize),
                None => brackets(text, at, &mut ()),
            },
            Some(b'"') => Text::read(text, at).map(|(_, end)| end),
            _ => {
                let of_scalar = |byte: &&u8| !matches!(**byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                match bytes.iter().skip(at).take_while(of_scalar).count() {
                    0 => Err(JsonError::new(at, "there is no value")),
                    len => Ok(at + len),
                }
            }
        }
    }
}

/// Behind this byte, which must stand at `at`.
fn past(text: &str, at: usize, byte: u8) -> Result<usize, JsonError> {
    match text.as_bytes().get(at) {
        Some(found) if *found == byte => Ok(at + 1),
        _ => Err(JsonError::new(at, "this is not JSON")),
    }
}

/// Containers that are open, and the larger ones that were.
#[derive(Default)]
struct Noted {
    open: SmallVec<[u32; 32]>,
    ends: FxHashMap<u32, u32>,
}

impl Nesting for Noted {
    fn opens(&mut self, at: usize) {
        // It fits: the text is shorter than that.
        self.open.push(at as u32);
    }

    fn closes(&mut self, end: usize) {
        if let Some(begin) = self.open.pop()
            && end - begin as usize >= LARGE
        {
            self.ends.insert(begin, end as u32);
        }
    }
}

/// End of the container that begins at `at`, in a text that is known to be JSON: strings and brackets alone are looked
/// at. `nesting` sees it, and all containers in it.
///
/// # Errors
/// [`JsonError`]: there is no such container.
pub(crate) fn brackets(text: &str, at: usize, nesting: &mut impl Nesting) -> Result<usize, JsonError> {
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
            // `{` and `[` have this bit, `}` and `]` have not.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::wire::json;

    fn value() -> impl Strategy<Value = Value> {
        let text = "[a-c\"\\\\\\[\\]{},: é\n]{0,90}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 80, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..8).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Every container of the text is gone through in both ways.
    fn agrees(text: &str, ends: &Ends, at: usize) {
        let mut inner = Vec::new();
        if text.as_bytes()[at] == b'{' {
            let (mut ours, mut checked) = (Vec::new(), Vec::new());
            let end = ends.members(text, at, |key_at, key, at| ours.push((key_at, key, at)));
            assert_eq!(end, json::members(text, at, |key_at, key, at| checked.push((key_at, key, at))), "{text}");
            assert_eq!(ours, checked, "{text}");
            inner.extend(ours.into_iter().map(|(_, _, at)| at));
        } else {
            let mut checked = Vec::new();
            let end = ends.items(text, at, |at| inner.push(at));
            assert_eq!(end, json::items(text, at, |at| checked.push(at)), "{text}");
            assert_eq!(inner, checked, "{text}");
        }
        inner.into_iter().filter(|at| b"{[".contains(&text.as_bytes()[*at])).for_each(|at| agrees(text, ends, at));
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_check_finds(value in value(), pretty in any::<bool>()) {
            let object = serde_json::json!({"it": value, "more": [value]});
            let text = match pretty {
                true => serde_json::to_string_pretty(&object).unwrap(),
                false => object.to_string(),
            };
            agrees(&text, &Ends::of(&text, 0).unwrap(), 0);
        }

        #[test]
        fn rubbish_ends_with_an_error_or_within_the_text(text in "[\\[\\]{}\",:a1 ]{0,200}") {
            if let Ok(ends) = Ends::of(&text, 0) {
                for read in [ends.members(&text, 0, |_, _, _| ()), ends.items(&text, 0, |_| ())] {
                    prop_assert!(read.is_err() || read.is_ok_and(|end| end <= text.len()));
                }
            }
        }
    }

    #[test]
    fn large_containers_are_noted_and_small_ones_are_not() {
        let text = format!(r#"{{"a":[1,2],"b":{{"c":"{}","d":{{}}}}}}"#, "x".repeat(300));
        let ends = Ends::of(&text, 0).unwrap();
        assert_eq!(ends.0.len(), 2);
        assert!(Ends::of(&"[".repeat(20_000), 0).is_err() && Ends::of("1", 0).is_err() && Ends::of("", 0).is_err());
    }
}
