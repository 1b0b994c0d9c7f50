//! Fields: the places of an object that a patch reads or writes, and whether two patches meet.

use std::collections::BTreeSet;

use crate::{operation::OperationKind, patch::Patch};

/// Steps of a path that are looked at; one with more is taken for the whole object.
const DEEPEST: usize = 64;
/// Most places that are distinguished, and their bytes; more count as the whole object. Comparing two sets of so many
/// takes a worker less than 5 ms, whatever their paths are.
const MOST: usize = 500;
const MOST_BYTES: usize = 16 << 10;
/// Between two steps. A name that has it is taken for the whole object.
const STEP: char = '\0';

/// The places that a patch touches, each with all that is below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedFields(BTreeSet<String>);

impl Patch {
    /// The places that it touches. Where that is not plain, such as by an item that is inserted into a list or counted
    /// from its end, the whole list, or the whole object.
    pub fn fields(&self) -> TouchedFields {
        let mut fields = BTreeSet::new();
        for operation in &self.operations {
            let shifts = |kind| {
                matches!(kind, OperationKind::Add | OperationKind::Remove | OperationKind::Move | OperationKind::Copy)
            };
            fields.insert(place(&operation.path, shifts(operation.kind)));
            if matches!(operation.kind, OperationKind::Move | OperationKind::Copy) {
                fields.insert(place(&operation.from, shifts(operation.kind)));
            }
        }
        TouchedFields(fields).bounded()
    }
}

impl TouchedFields {
    /// Its places, or the whole object where they are very many.
    fn bounded(self) -> Self {
        if self.0.len() <= MOST && self.0.iter().map(String::len).sum::<usize>() <= MOST_BYTES {
            return self;
        }
        Self(BTreeSet::from([String::new()]))
    }

    /// Does one touch what the other does, or something around or below it?
    pub fn meet(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|place| many.has_around(place) || many.has_below(place))
    }

    /// The places of another one as well.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
        *self = std::mem::take(self).bounded();
    }

    /// Is it there, or anything that it is a part of?
    fn has_around(&self, place: &str) -> bool {
        let ends = place.match_indices(STEP).map(|(at, _)| at).chain([place.len()]);
        ends.into_iter().any(|end| place.get(..end).is_some_and(|part| self.0.contains(part)))
    }

    /// Is a part of it there?
    fn has_below(&self, place: &str) -> bool {
        let first = self.0.range::<str, _>((std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded)).next();
        first.is_some_and(|other| other.strip_prefix(place).is_some_and(|rest| rest.starts_with(STEP)))
    }
}

/// The place at a path: each step behind a [`STEP`], the whole object is "".
fn place(path: &str, shifts: bool) -> String {
    let Some(steps) = path.strip_prefix('/') else { return String::new() };
    if path.contains(STEP) || steps.split('/').nth(DEEPEST).is_some() {
        return String::new();
    }
    let mut place = String::with_capacity(path.len());
    let mut steps = steps.split('/').peekable();
    while let Some(step) = steps.next() {
        let index = step.bytes().all(|byte| byte.is_ascii_digit());
        let odd = step.starts_with(['-', '+']) || index && step.len() > 1 && step.starts_with('0');
        if odd || index && shifts && steps.peek().is_none() {
            break;
        }
        place.push(STEP);
        place.push_str(&step.replace("~1", "/").replace("~0", "~"));
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(operations: &[(&str, &str)]) -> TouchedFields {
        let operations: Vec<_> = operations
            .iter()
            .map(|(op, path)| match path.split_once(" <- ") {
                Some((path, from)) => serde_json::json!({"op": op, "path": path, "from": from}),
                None => serde_json::json!({"op": op, "path": path, "value": 1}),
            })
            .collect();
        Patch::parse(serde_json::Value::from(operations).to_string().into()).unwrap().fields()
    }

    #[test]
    fn two_meet_where_one_touches_what_is_around_or_below_the_other() {
        for (one, other, meet) in [
            (("add", "/metadata/labels/a"), ("add", "/metadata/labels/b"), false),
            (("add", "/metadata/labels/a"), ("replace", "/metadata/labels/a"), true),
            (("add", "/metadata/labels"), ("add", "/metadata/labels/b"), true),
            (("add", "/metadata/labels"), ("add", "/metadata/labelsb"), false),
            (("add", "/metadata/labels/a"), ("add", "/metadata/labels/ab"), false),
            (("replace", "/spec/containers/0/image"), ("replace", "/spec/containers/1/image"), false),
            (("replace", "/spec/containers/0"), ("replace", "/spec/containers/1"), false),
            // A list that grows or shrinks has its items elsewhere.
            (("add", "/spec/containers/-"), ("replace", "/spec/containers/0/image"), true),
            (("add", "/spec/containers/1"), ("replace", "/spec/containers/0/image"), true),
            (("remove", "/spec/containers/0"), ("replace", "/spec/containers/1/image"), true),
            (("replace", "/spec/containers/-1/image"), ("replace", "/spec/containers/0/image"), true),
            (("replace", "/spec/containers/01/image"), ("replace", "/spec/containers/1/image"), true),
            (("test", "/spec/a"), ("replace", "/spec/a"), true),
            (("move", "/a <- /b/c"), ("replace", "/b"), true),
            (("copy", "/a <- /b/0"), ("replace", "/b/1"), true),
            (("add", "/a~1b"), ("add", "/a~1b/c"), true),
            (("add", "/a~1b"), ("add", "/a/b"), false),
            (("replace", ""), ("add", "/x"), true),
        ] {
            let (one, other) = (fields(&[one]), fields(&[("add", "/elsewhere"), other]));
            assert_eq!((one.meet(&other), other.meet(&one)), (meet, meet), "{one:?} {other:?}");
        }
        assert!(!TouchedFields::default().meet(&fields(&[("replace", "")])), "who touches nothing meets nobody");
    }

    #[test]
    fn very_many_places_are_taken_for_the_whole_object() {
        let places = |prefix: &str, count: usize, step: usize| {
            let paths: Vec<_> = (0..count).map(|n| format!("/{prefix}{n}{}", "/s".repeat(step))).collect();
            fields(&paths.iter().map(|path| ("add", &**path)).collect::<Vec<_>>())
        };
        let whole = TouchedFields(BTreeSet::from([String::new()]));
        assert_eq!((places("a", MOST, 1).0.len(), places("a", MOST + 1, 1)), (MOST, whole.clone()));
        assert_eq!(places("a", MOST, 20), whole);
        let mut touched = places("a", MOST, 1);
        assert!(!touched.meet(&places("b", MOST, 1)));
        touched.join(places("b", MOST, 1));
        assert_eq!(touched, whole, "also of several patches together");
    }

    #[test]
    fn a_long_path_is_taken_for_the_whole_object() {
        let deep = "/a".repeat(100_000);
        assert!(fields(&[("add", &deep)]).meet(&fields(&[("add", "/x")])));
    }
}
