//! Labels of one object while they are read, in any encoding.

use gatepost_api::Labels;

/// Maximum number of labels of one object, and their maximum total size. No object that can be stored exceeds them.
pub(super) const MAX_LABELS: usize = 1 << 16;
pub(super) const MAX_LABEL_BYTES: usize = 2 << 20;

/// Labels of one object while they are read.
#[derive(Default)]
pub(super) struct LabelsBuilder {
    pairs: Vec<(String, String)>,
    bytes: usize,
}

impl LabelsBuilder {
    /// Description of what an object may have.
    pub(super) const LIMIT: &str = "at most 65,536 labels of 2 MiB together";

    /// Adds a label, which replaces an equal one. Returns false if there are too many.
    pub(super) fn add(&mut self, key: String, value: String) -> bool {
        self.bytes += key.len() + value.len();
        let fits = self.pairs.len() < MAX_LABELS && self.bytes <= MAX_LABEL_BYTES;
        if fits {
            self.pairs.push((key, value));
        }
        fits
    }

    pub(super) fn labels(self) -> Labels {
        self.pairs.into_iter().collect()
    }
}
