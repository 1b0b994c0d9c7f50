//! What people write, every problem in it, and the compiled Snapshot. (In the making on its own branch.)
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{Hook, Labels, Review};

/// Indices of hooks, ascending, without repeats.
pub type HookSet = smallvec::SmallVec<[u32; 32]>;
/// Reads a file the configuration refers to, the path as written.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> std::io::Result<Vec<u8>>;
/// One file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Name relative to the source.
    pub name: String,
    /// Content.
    pub bytes: Bytes,
}
/// One thing wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The place in the file.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// How to mend it.
    pub fix: String,
}
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}; {}", self.file, self.path, self.what, self.fix)
    }
}
/// A configuration, checked and compiled.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every hook.
    pub hooks: Vec<Arc<Hook>>,
}
impl Snapshot {
    /// No hooks.
    pub fn empty() -> Self {
        Self::default()
    }
    /// Which hooks see this request.
    pub fn matching(&self, review: &Review, out: &mut HookSet) {
        for (i, hook) in self.hooks.iter().enumerate() {
            if hook.rules.iter().any(|rule| rule.matches(review)) {
                out.push(i as u32);
            }
        }
    }
    /// Labels of a configured namespace.
    pub fn namespace_labels(&self, _namespace: &str) -> Option<&Labels> {
        None
    }
    /// For `/configz`.
    pub fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
/// All problems at once, or the snapshot.
pub fn load(_files: &[SourceFile], _read: ReadFile<'_>) -> Result<Snapshot, Vec<Problem>> {
    Ok(Snapshot::empty())
}
