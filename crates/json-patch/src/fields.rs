//! The places of an object that a patch reads or writes, and whether two patches overlap.

use std::collections::BTreeSet;

use gatepost_json::pointer;

use crate::{operation::OperationKind, patch::Patch};

/// Maximum number of steps of a path. A longer path counts as the whole object.
const MAX_STEPS: usize = 64;
/// Maximum number of places, and of bytes in them. More count as the whole object. Comparing two sets of this size
/// takes less than 5 ms, whatever their paths are.
const MAX_PLACES: usize = 500;
const MAX_PLACE_BYTES: usize = 16 << 10;
/// Separator of steps. A path that contains it counts as the whole object.
const SEPARATOR: char = '\0';

/// The places that a patch reads or writes, each including everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedFields(BTreeSet<String>);

impl Patch {
    /// Returns the places that the patch touches. An operation that may shift items of a list, or counts from its end,
    /// touches the whole list.
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
    /// Returns the set, or that of the whole object if there are too many places.
    fn bounded(self) -> Self {
        if self.0.len() <= MAX_PLACES && self.0.iter().map(String::len).sum::<usize>() <= MAX_PLACE_BYTES {
            return self;
        }
        Self(BTreeSet::from([String::new()]))
    }

    /// Returns true if both sets have the same place, or one has a place around or below one of the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|place| many.has_around(place) || many.has_below(place))
    }

    /// Adds the places of another set.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
        *self = std::mem::take(self).bounded();
    }

    /// Returns true if the set has this place, or one around it.
    fn has_around(&self, place: &str) -> bool {
        let ends = place.match_indices(SEPARATOR).map(|(at, _)| at).chain([place.len()]);
        ends.into_iter().any(|end| place.get(..end).is_some_and(|part| self.0.contains(part)))
    }

    /// Returns true if the set has a place below this one.
    fn has_below(&self, place: &str) -> bool {
        let first = self.0.range::<str, _>((std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded)).next();
        first.is_some_and(|other| other.strip_prefix(place).is_some_and(|rest| rest.starts_with(SEPARATOR)))
    }
}

/// Returns the place of a path: each step after a [`SEPARATOR`]. The place of the whole object is empty.
fn place(path: &str, shifts: bool) -> String {
    let Some(steps) = path.strip_prefix('/') else { return String::new() };
    if path.contains(SEPARATOR) || steps.split('/').nth(MAX_STEPS).is_some() {
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
        place.push(SEPARATOR);
        place.push_str(&pointer::unescaped(step));
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
    fn touched_fields_overlap_around_and_below_a_place() {
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
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (meet, meet), "{one:?} {other:?}");
        }
        assert!(!TouchedFields::default().overlaps(&fields(&[("replace", "")])), "an empty set overlaps nothing");
    }

    #[test]
    fn too_many_touched_fields_count_as_the_whole_object() {
        let places = |prefix: &str, count: usize, step: usize| {
            let paths: Vec<_> = (0..count).map(|n| format!("/{prefix}{n}{}", "/s".repeat(step))).collect();
            fields(&paths.iter().map(|path| ("add", &**path)).collect::<Vec<_>>())
        };
        let whole = TouchedFields(BTreeSet::from([String::new()]));
        assert_eq!((places("a", MAX_PLACES, 1).0.len(), places("a", MAX_PLACES + 1, 1)), (MAX_PLACES, whole.clone()));
        assert_eq!(places("a", MAX_PLACES, 20), whole);
        let mut touched = places("a", MAX_PLACES, 1);
        assert!(!touched.overlaps(&places("b", MAX_PLACES, 1)));
        touched.join(places("b", MAX_PLACES, 1));
        assert_eq!(touched, whole, "also of several patches together");
    }

    #[test]
    fn long_path_counts_as_the_whole_object() {
        let deep = "/a".repeat(100_000);
        assert!(fields(&[("add", &deep)]).overlaps(&fields(&[("add", "/x")])));
    }
}
