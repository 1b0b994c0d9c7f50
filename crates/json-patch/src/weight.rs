//! Weight: memory that an opened document takes besides its texts, counted as it grows.

use super::OperationFault;

/// Bytes taken so far, and the most that may be.
#[derive(Clone, Debug)]
pub(super) struct Weight {
    taken: usize,
    most: usize,
}

impl Weight {
    /// Nothing yet, and no bound.
    pub(super) fn unbounded() -> Self {
        Self { taken: 0, most: usize::MAX }
    }

    /// From now on, so many bytes more may be taken.
    pub(super) fn bound(&mut self, more: usize) {
        self.most = self.taken.saturating_add(more);
    }

    /// As many bytes as may still be taken.
    pub(super) fn left(&self) -> usize {
        self.most.saturating_sub(self.taken)
    }

    /// Counts what has been taken; it is little, and [`Weight::check`] finds it out.
    pub(super) fn add(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Counts what is about to be taken.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), OperationFault> {
        self.add(bytes);
        self.check()
    }

    /// Is no more taken than may be?
    pub(super) fn check(&self) -> Result<(), OperationFault> {
        if self.taken > self.most { Err(OperationFault::NoRoom) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use gatepost_json::Rope;

    use crate::{Document, Patch, PatchError, PatchLimits};

    fn document(text: &str) -> Document {
        Document::new(Rope::new([text.to_owned().into()])).unwrap()
    }

    fn patch(operations: &[String]) -> Patch {
        Patch::parse(format!("[{}]", operations.join(",")).into()).unwrap()
    }

    #[test]
    fn members_and_items_that_stand_alone_are_bounded() {
        let members = (0..20_000).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
        let items = "0,".repeat(20_000);
        for (object, value) in
            [(format!("{{{members}}}"), "{}".to_owned()), (format!("[{items}0]"), format!("[{items}1]"))]
        {
            let document = document(&format!("{{\"a\":{object}}}"));
            let patch = patch(&[format!(r#"{{"op":"test","path":"/a","value":{value}}}"#)]);
            let error = |held| document.patched(&patch, PatchLimits { held, ..PatchLimits::default() }).unwrap_err();
            assert_eq!(error(64 << 10), PatchError::NoRoom);
            assert!(matches!(error(8 << 20), PatchError::Operation { .. }), "it fails for what it says");
        }
    }

    #[test]
    fn copies_of_many_opened_parts_take_what_their_bytes_do() {
        const PARTS: usize = 2000;
        let object = format!("{{\"a\":[{}]}}", vec![r#"{"x":[]}"#; PARTS].join(","));
        let test = |n: usize| format!(r#"{{"op":"test","path":"/a/{n}/x","value":[]}}"#);
        let copy = |n: usize| format!(r#"{{"op":"copy","from":"/a","path":"/b{n}"}}"#);
        let operations: Vec<_> = (0..PARTS).map(test).chain((0..100).map(copy)).collect();
        let patched = document(&object).patched(&patch(&operations), PatchLimits::default()).unwrap();
        assert!(patched.held() < 4 << 20, "{}", patched.held());
        let object: serde_json::Value =
            serde_json::from_slice(&patched.rope().copy_of(0..patched.rope().len())).unwrap();
        assert!((0..100).all(|n| object[format!("b{n}")] == object["a"]));
    }

    #[test]
    fn an_object_in_pieces_is_held_once_more() {
        let whole = r#"{"a":"0123456789"}"#;
        let pieces: Vec<_> = whole.split_inclusive(':').map(|piece| piece.to_owned().into()).collect();
        let extra = Document::new(Rope::new(pieces)).unwrap().held() - document(whole).held();
        assert_eq!(extra, whole.len());
    }
}
