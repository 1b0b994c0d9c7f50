//! Ends of the larger objects and arrays of a text.
//!
//! One pass records them. Children of any container are then found without scanning large containers again, however
//! deeply they nest.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    scan::{self, NestingObserver, brackets},
    text::{JsonError, JsonText, past_blanks},
};

/// Minimum length of a recorded container, in bytes. Smaller ones are numerous, and quick to scan again.
const MIN_CONTAINER_LEN: u32 = 256;

/// Minimum length of a container in a sparse recorder, in bytes. Most containers are never read.
const MIN_SPARSE_CONTAINER_LEN: u32 = 512;

/// Maximum length to which that minimum grows if there are many containers, in bytes. Each level of containers below it
/// is scanned again.
const MAX_SPARSE_CONTAINER_LEN: u32 = 4 << 10;

/// Maximum number of containers in a sparse recorder.
const MAX_SPARSE_CONTAINERS: usize = 64;

/// Bytes of text for each recorded container, which bounds the number of containers.
const BYTES_PER_CONTAINER: usize = 64;

/// Beginnings and ends of the large objects and arrays in an object, ascending, relative to its first byte.
pub type ContainerEnds = Arc<[(u32, u32)]>;

/// Ends of the larger containers of a text, in the order of their beginnings.
#[derive(Clone, Debug)]
pub struct Ends(ContainerEnds);

impl Ends {
    /// Records the container at `at` and those in it. The text must be valid JSON; otherwise the result is meaningless.
    ///
    /// # Errors
    /// [`JsonError`] if there is no such container.
    pub fn of(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut recorder = EndsRecorder::of(text);
        brackets(text, at, &mut recorder)?;
        Ok(Self(recorder.sorted().into()))
    }

    /// Like [`Ends::of`], but also checks the value at `at` in the same pass.
    ///
    /// # Errors
    /// [`JsonError`] if the value is not JSON.
    pub fn checking(text: &str, at: usize) -> Result<Self, JsonError> {
        let mut recorder = EndsRecorder::of(text);
        scan::observe(text, at, 0, &mut recorder)?;
        Ok(Self(recorder.sorted().into()))
    }

    /// Wraps ends that a recorder collected in an earlier pass, relative to the beginning of the text.
    pub fn recorded(ends: ContainerEnds) -> Self {
        Self(ends)
    }

    /// Returns the recorded end of the container at `at`; `None` for a small one.
    pub fn end_of(&self, at: usize) -> Option<usize> {
        let found = self.0.binary_search_by_key(&at, |(begin, _)| *begin as usize).ok()?;
        Some(self.0[found].1 as usize)
    }

    /// Calls `each` for every key of the object at `at`, as [`members`](crate::members) does.
    ///
    /// # Errors
    /// [`JsonError`] if there is no object.
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

    /// Calls `each` for every item of the array at `at`, as [`items`](crate::items) does.
    ///
    /// # Errors
    /// [`JsonError`] if there is no array.
    pub fn items(&self, text: &str, at: usize, mut each: impl FnMut(usize)) -> Result<usize, JsonError> {
        self.children(text, at, b']', |begins| {
            each(begins);
            Ok(begins)
        })
    }

    /// Steps from child to child; `value` returns the beginning of a child's value.
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

/// Returns the end of the value at `at`. Removes the ends of containers before it from `ends`.
fn behind(text: &str, at: usize, ends: &mut &[(u32, u32)]) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'{' | b'[') => {
            if ends.first().is_some_and(|(begin, _)| (*begin as usize) < at) {
                *ends = &ends[ends.partition_point(|(begin, _)| (*begin as usize) < at)..];
            }
            match ends.first() {
                // The caller may have recorded another text: use an end only if it is within this one.
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

/// Returns the offset behind `byte`; an error if `byte` is not at `at`.
fn past(text: &str, at: usize, byte: u8) -> Result<usize, JsonError> {
    match text.as_bytes().get(at) {
        Some(found) if *found == byte => Ok(at + 1),
        _ => Err(JsonError::new(at, "this is not JSON")),
    }
}

/// Records the ends of the larger containers. If there are too many, it drops the smaller ones and records no more of
/// their size.
#[derive(Default)]
pub struct EndsRecorder {
    open: SmallVec<[u32; 32]>,
    ends: Vec<(u32, u32)>,
    /// Minimum length of a container that is still recorded.
    least: u32,
    most: usize,
}

impl EndsRecorder {
    fn of(text: &str) -> Self {
        Self { least: MIN_CONTAINER_LEN, most: text.len() / BYTES_PER_CONTAINER, ..Self::default() }
    }

    /// Creates a recorder of few and large containers, for a text that is only read in part.
    pub fn sparse() -> Self {
        Self { least: MIN_SPARSE_CONTAINER_LEN, most: MAX_SPARSE_CONTAINERS, ..Self::default() }
    }

    /// Returns the ends relative to `start`; `None` if there are none, or if some of large containers were dropped.
    pub fn relative_to(self, start: usize) -> Option<ContainerEnds> {
        let start = u32::try_from(start).ok()?;
        let is_whole = self.least <= MAX_SPARSE_CONTAINER_LEN;
        let ends = self.sorted();
        let counted = |(begin, end): &(u32, u32)| Some((begin.checked_sub(start)?, end.checked_sub(start)?));
        (is_whole && !ends.is_empty()).then(|| ends.iter().filter_map(counted).collect())
    }

    fn sorted(mut self) -> Vec<(u32, u32)> {
        self.ends.sort_unstable();
        self.ends
    }

    #[cold]
    fn record(&mut self, begin: u32, end: u32) {
        while self.ends.len() >= self.most && end - begin >= self.least {
            self.least = self.least.saturating_mul(2);
            let least = self.least;
            self.ends.retain(|(begin, end)| end - begin >= least);
        }
        if end - begin >= self.least {
            self.ends.push((begin, end));
        }
    }
}

impl NestingObserver for EndsRecorder {
    #[inline]
    fn opens(&mut self, at: usize) {
        // No overflow: texts are shorter than 4 GiB.
        self.open.push(at as u32);
    }

    #[inline]
    fn closes(&mut self, end: usize) {
        if let Some(begin) = self.open.pop()
            && end as u32 - begin >= self.least
        {
            self.record(begin, end as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate as json;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

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
        fn recorded_ends_find_the_same_children_as_a_checking_scan(value in value(), pretty in any::<bool>()) {
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
                let mut recorder = EndsRecorder { least: 1, most, ..EndsRecorder::of(&text) };
                scan::observe(&text, 0, 0, &mut recorder).unwrap();
                let ends = recorder.sorted();
                prop_assert!(ends.len() <= most);
                agrees(&text, &Ends(ends.into()), 0);
            }
        }

        #[test]
        fn invalid_text_ends_with_an_error_or_within_bounds(text in "[\\[\\]{}\",:a1 ]{0,200}") {
            if let Ok(ends) = Ends::of(&text, 0) {
                for read in [ends.members(&text, 0, |_, _, _| ()), ends.items(&text, 0, |_| ())] {
                    prop_assert!(read.is_err() || read.is_ok_and(|end| end <= text.len()));
                }
            }
        }
    }

    fn sparse(text: &str, at: usize) -> Option<ContainerEnds> {
        let mut recorder = EndsRecorder::sparse();
        scan::observe(text, at, 0, &mut recorder).unwrap();
        recorder.relative_to(at)
    }

    #[test]
    fn sparse_recorder_keeps_few_large_containers_or_none() {
        let large = format!("[\"{}\"]", "]".repeat(5_000));
        let text = format!(r#"   {{"a":{large},"b":[1,2],"c":{{"d":{large}}}}}"#);
        let length = large.len() as u32;
        let wanted: &[(u32, u32)] = &[
            (0, 2 * length + 27),
            (5, 5 + length),
            (5 + length + 15, 2 * length + 26),
            (length + 25, 2 * length + 25),
        ];
        assert_eq!(sparse(&text, 3).as_deref(), Some(wanted));
        assert_eq!(sparse("{\"a\":[1,2]}", 0), None, "nothing is large");
        let most = format!("[{}]", vec![&*large; MAX_SPARSE_CONTAINERS - 1].join(","));
        assert_eq!(sparse(&most, 0).map(|ends| ends.len()), Some(MAX_SPARSE_CONTAINERS));
        let more = format!("[{}]", vec![&*large; MAX_SPARSE_CONTAINERS].join(","));
        assert_eq!(sparse(&more, 0), None, "not all of them");
        let deep = format!("{}{large}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(sparse(&deep, 0), None, "not all of them");
        let ends = Ends::of(&deep, 0).unwrap();
        assert!(ends.0.len() <= deep.len() / BYTES_PER_CONTAINER);
        agrees(&deep, &ends, 0);
    }

    #[test]
    fn sparse_recorder_drops_the_smaller_containers_first() {
        let containers = |len: usize, many: usize| vec![format!("[\"{}\"]", "x".repeat(len - 4)); many].join(",");
        // 512 bytes, 1 KiB, 2 KiB and 4 KiB are the minimums at which containers are recorded.
        for (small, large, recorded) in [(511, 600, 11), (600, 1_100, 11), (1_100, 2_100, 11), (2_100, 4_100, 11)] {
            let text = format!("[{},{}]", containers(small, MAX_SPARSE_CONTAINERS + 6), containers(large, 10));
            let ends = sparse(&text, 0).expect("none of 4 KiB is dropped");
            assert_eq!(ends.len(), recorded, "{small} {large}");
            assert!(ends.iter().all(|(begin, end)| end - begin >= large as u32), "{small} {large}");
            agrees(&text, &Ends(ends), 0);
            let text = format!("[{},{}]", containers(large, 10), containers(small, MAX_SPARSE_CONTAINERS + 6));
            assert_eq!(sparse(&text, 0).map(|ends| ends.len()), Some(recorded), "{large} {small}");
        }
        let text = format!("[{}]", containers(4_100, MAX_SPARSE_CONTAINERS));
        assert_eq!(sparse(&text, 0), None, "some of 4 KiB are dropped");
    }

    #[test]
    fn ends_of_another_text_stay_within_bounds() {
        let text = r#"{"a":[1],"b":2}"#;
        for ends in [[(5, 4_000)], [(5, 2)], [(0, 0)], [(5, 9)]] {
            if let Ok(end) = Ends(ends.into()).members(text, 0, |_, _, _| ()) {
                assert!(end <= text.len());
            }
        }
    }

    #[test]
    fn only_large_containers_are_recorded() {
        let text = format!(r#"{{"a":[1,2],"b":{{"c":"{}","d":{{}}}}}}"#, "x".repeat(300));
        let ends = Ends::of(&text, 0).unwrap();
        assert_eq!(ends.0.len(), 2);
        assert!(Ends::of(&"[".repeat(20_000), 0).is_err() && Ends::of("1", 0).is_err() && Ends::of("", 0).is_err());
    }
}
