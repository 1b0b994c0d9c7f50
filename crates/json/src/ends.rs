//! Ends: the larger objects and arrays of a text that is known to be JSON, and where each of them ends.
//!
//! One pass that heeds strings and brackets alone. With its table, what stands in a container is found without going
//! through the large ones in it again, however deep one descends.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use super::{
    JsonError, JsonText, MAX_DEPTH,
    block::{self, Quoting},
    nesting::Nesting,
    past_blanks,
    skip::{self, Quoted, Strings},
};

/// Smaller containers are gone through again: that is soon done, and there are many.
const LARGE: u32 = 256;

/// The same while a review is read: few, as most are never looked into.
const LARGE_OF_A_REVIEW: u32 = 4 << 10;

/// The most that are noted while a review is read.
const MOST_OF_A_REVIEW: usize = 64;

/// Bytes of text for each container that is noted.
const BYTES_EACH: usize = 64;

/// Beginning and end of the large objects and arrays in an object, ascending, counted from its first byte.
pub type ContainerEnds = Arc<[(u32, u32)]>;

/// Ends of the larger containers, in the order in which they begin.
#[derive(Clone, Debug)]
pub struct Ends(ContainerEnds);

impl Ends {
    /// Ends of the container that begins at `at`, and of all in it. The text must have been checked; for an unchecked
    /// one the result means nothing.
    ///
    /// # Errors
    /// [`JsonError`]: there is no such container.
    pub fn of(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut noted = Noted::of(text);
        brackets(text, at, &mut noted)?;
        Ok(Self(noted.sorted().into()))
    }

    /// The same of a text that is checked meanwhile, as far as the end of the value that begins at `at`.
    ///
    /// # Errors
    /// [`JsonError`]: it is no JSON.
    pub fn checking(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut noted = Noted::of(text);
        skip::noting(text, at, 0, &mut noted)?;
        Ok(Self(noted.sorted().into()))
    }

    /// Ends that were noted while a review was read: of its object, counted from where it begins.
    pub fn noted(ends: ContainerEnds) -> Self {
        Self(ends)
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
            let (key, end) = JsonText::read(text, begins)?;
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
        let mut ends = &self.0[..];
        let mut child = past_blanks(text, at + 1);
        if bytes.get(child) == Some(&close) {
            return Ok(child + 1);
        }
        loop {
            let behind = past_blanks(text, behind(text, value(child)?, &mut ends)?);
            if bytes.get(behind) == Some(&close) {
                return Ok(behind + 1);
            }
            child = past_blanks(text, past(text, behind, b',')?);
        }
    }
}

/// End of the value that begins at `at`. Of `ends` those before it are dropped.
fn behind(text: &str, at: usize, ends: &mut &[(u32, u32)]) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'{' | b'[') => {
            if ends.first().is_some_and(|(begin, _)| (*begin as usize) < at) {
                *ends = &ends[ends.partition_point(|(begin, _)| (*begin as usize) < at)..];
            }
            match ends.first() {
                // Only an end within the text is one; whoever gave these may have had another text.
                Some((begin, end)) if *begin as usize == at && bytes.get(at..*end as usize).is_some() => {
                    Ok(*end as usize)
                }
                _ => brackets(text, at, &mut ()),
            }
        }
        Some(b'"') => JsonText::read(text, at).map(|(_, end)| end),
        _ => {
            let of_scalar = |byte: &&u8| !matches!(**byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
            match bytes.iter().skip(at).take_while(of_scalar).count() {
                0 => Err(JsonError::new(at, "there is no value")),
                len => Ok(at + len),
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

/// Containers that are open, and the larger ones that were. Where these become too many, the smaller of them are
/// forgotten, and none of their size is noted any more.
pub struct Noted {
    open: SmallVec<[u32; 32]>,
    ends: Vec<(u32, u32)>,
    /// Containers below so many bytes are not noted.
    least: u32,
    most: usize,
}

impl Noted {
    fn of(text: &str) -> Self {
        Self { open: SmallVec::new(), ends: Vec::new(), least: LARGE, most: text.len() / BYTES_EACH }
    }

    /// None yet, of an object in a review that is being read.
    pub fn for_a_review() -> Self {
        Self { open: SmallVec::new(), ends: Vec::new(), least: LARGE_OF_A_REVIEW, most: MOST_OF_A_REVIEW }
    }

    /// Noted ends, counted from `start`; `None` where there are none, or where some were forgotten.
    pub fn counted_from(self, start: usize) -> Option<ContainerEnds> {
        let start = u32::try_from(start).ok()?;
        let is_whole = self.least == LARGE_OF_A_REVIEW;
        let ends = self.sorted();
        let counted = |(begin, end): &(u32, u32)| Some((begin.checked_sub(start)?, end.checked_sub(start)?));
        (is_whole && !ends.is_empty()).then(|| ends.iter().filter_map(counted).collect())
    }

    fn sorted(mut self) -> Vec<(u32, u32)> {
        self.ends.sort_unstable();
        self.ends
    }

    #[cold]
    fn note(&mut self, begin: u32, end: u32) {
        while self.ends.len() >= self.most {
            self.least = self.least.saturating_mul(2);
            if end - begin < self.least {
                return;
            }
            let least = self.least;
            self.ends.retain(|(begin, end)| end - begin >= least);
        }
        self.ends.push((begin, end));
    }
}

impl Nesting for Noted {
    #[inline]
    fn opens(&mut self, at: usize) {
        // It fits: the text is shorter than that.
        self.open.push(at as u32);
    }

    #[inline]
    fn closes(&mut self, end: usize) {
        if let Some(begin) = self.open.pop()
            && end as u32 - begin >= self.least
        {
            self.note(begin, end as u32);
        }
    }
}

/// End of the container that begins at `at`, in a text that is known to be JSON: strings and brackets alone are looked
/// at. `nesting` sees it, and all containers in it.
///
/// # Errors
/// [`JsonError`]: there is no such container.
pub fn brackets(text: &str, at: usize, nesting: &mut impl Nesting) -> Result<usize, JsonError> {
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
    use crate as json;

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
            let ends = Ends::of(&text, 0).unwrap();
            agrees(&text, &ends, 0);
            prop_assert_eq!(&Ends::checking(&text, 0).unwrap().0, &ends.0);
            // Any few of all ends say nothing that is wrong.
            for most in [0, 1, 5, usize::MAX] {
                let mut noted = Noted { least: 1, most, ..Noted::of(&text) };
                skip::noting(&text, 0, 0, &mut noted).unwrap();
                let ends = noted.sorted();
                prop_assert!(ends.len() <= most);
                agrees(&text, &Ends(ends.into()), 0);
            }
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

    fn of_a_review(text: &str, at: usize) -> Option<ContainerEnds> {
        let mut noted = Noted::for_a_review();
        skip::noting(text, at, 0, &mut noted).unwrap();
        noted.counted_from(at)
    }

    #[test]
    fn a_review_is_read_with_the_few_ends_that_matter() {
        let large = format!("[\"{}\"]", "]".repeat(5_000));
        let text = format!(r#"   {{"a":{large},"b":[1,2],"c":{{"d":{large}}}}}"#);
        let length = large.len() as u32;
        let wanted: &[(u32, u32)] = &[
            (0, 2 * length + 27),
            (5, 5 + length),
            (5 + length + 15, 2 * length + 26),
            (length + 25, 2 * length + 25),
        ];
        assert_eq!(of_a_review(&text, 3).as_deref(), Some(wanted));
        assert_eq!(of_a_review("{\"a\":[1,2]}", 0), None, "nothing is large");
        let most = format!("[{}]", vec![&*large; MOST_OF_A_REVIEW - 1].join(","));
        assert_eq!(of_a_review(&most, 0).map(|ends| ends.len()), Some(MOST_OF_A_REVIEW));
        let more = format!("[{}]", vec![&*large; MOST_OF_A_REVIEW].join(","));
        assert_eq!(of_a_review(&more, 0), None, "not all of them");
        let deep = format!("{}{large}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(of_a_review(&deep, 0), None, "not all of them");
        let ends = Ends::of(&deep, 0).unwrap();
        assert!(ends.0.len() <= deep.len() / BYTES_EACH);
        agrees(&deep, &ends, 0);
    }

    #[test]
    fn ends_of_another_text_do_no_harm() {
        let text = r#"{"a":[1],"b":2}"#;
        for ends in [[(5, 4_000)], [(5, 2)], [(0, 0)], [(5, 9)]] {
            if let Ok(end) = Ends(ends.into()).members(text, 0, |_, _, _| ()) {
                assert!(end <= text.len());
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
