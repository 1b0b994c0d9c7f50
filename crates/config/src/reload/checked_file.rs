//! CheckedFile: one file, checked by itself. LastGoodDocuments: the state of every document that is in force.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    Pause, Problem, ReadFile, SourceFile,
    check::CheckedContent,
    document::{Documents, node::ProblemReport, unique_names::UniqueNames},
};

/// Content of one file without problems: a state of the file that can be in force.
pub struct CheckedFile {
    file: SourceFile,
    checked: CheckedContent,
    /// Names that no other file may use.
    used: UniqueNames,
    /// Files that it refers to, and their content.
    references: BTreeMap<String, Bytes>,
}

/// Problems of one file, and the names in it.
#[derive(Debug)]
pub(crate) struct FaultyFile {
    pub problems: Vec<Problem>,
    pub(crate) used: UniqueNames,
}

impl fmt::Debug for CheckedFile {
    /// Omits the content of the files, which include private keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let references = self.references.keys();
        f.debug_struct("CheckedFile")
            .field("file", &self.file.name)
            .field("references", &references)
            .finish_non_exhaustive()
    }
}

impl CheckedFile {
    /// Checks the documents of this file.
    ///
    /// # Errors
    /// Every problem of the file.
    pub(crate) fn of(
        file: &SourceFile,
        documents: &Documents,
        read: ReadFile<'_>,
        pause: Pause<'_>,
    ) -> Result<Self, Box<FaultyFile>> {
        let (mut checked, mut used, report) =
            (CheckedContent::default(), UniqueNames::default(), ProblemReport::default());
        let references = RefCell::new(BTreeMap::new());
        let noted: ReadFile<'_> = &|path| {
            let content = read(path)?;
            references.borrow_mut().insert(path.to_owned(), Bytes::from(content.clone()));
            Ok(content)
        };
        checked.add(&file.name, documents, noted, &report, &mut used, pause);
        let references = references.into_inner();
        match report.into_problems() {
            none if none.is_empty() => Ok(Self { file: file.clone(), checked, used, references }),
            problems => Err(Box::new(FaultyFile { problems, used })),
        }
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn checked(file: &SourceFile, read: ReadFile<'_>, pause: Pause<'_>) -> Result<Self, Vec<Problem>> {
        Self::of(file, &Documents::read(file, pause), read, pause).map_err(|faulty| faulty.problems)
    }

    /// Returns the file.
    pub fn file(&self) -> &SourceFile {
        &self.file
    }

    /// Returns the files that it refers to, by their paths as written, with their content. They include private keys.
    pub fn references(&self) -> &BTreeMap<String, Bytes> {
        &self.references
    }

    pub(crate) fn used(&self) -> &UniqueNames {
        &self.used
    }

    /// Returns true if both are the same state of the same file.
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.file == other.file && self.references == other.references
    }

    /// Returns true if the files that it refers to are unchanged.
    pub(crate) fn refers_to_the_same(&self, read: ReadFile<'_>) -> bool {
        self.references.iter().all(|(path, before)| read(path).is_ok_and(|now| now == *before))
    }

    /// Joins the content of all files; `None` if two use the same unique name.
    pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Option<CheckedContent> {
        if !UniqueNames::are_disjoint(parts.clone().map(|part| &part.used)) {
            return None;
        }
        let mut all = CheckedContent::default();
        parts.for_each(|part| all.join(&part.checked));
        Some(all)
    }
}

/// The state of every document that is in force: the newest state, or the last good one if the newest has problems.
#[derive(Clone, Debug, Default)]
pub struct LastGoodDocuments(Arc<[Arc<CheckedFile>]>);

impl LastGoodDocuments {
    pub(crate) fn new(parts: Vec<Arc<CheckedFile>>) -> Self {
        Self(parts.into())
    }

    /// Returns true if no document is in force.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the state of each document.
    pub fn parts(&self) -> impl Iterator<Item = &Arc<CheckedFile>> {
        self.0.iter()
    }

    pub(crate) fn by_name(&self) -> HashMap<&str, &Arc<CheckedFile>> {
        self.0.iter().map(|part| (&*part.file().name, part)).collect()
    }

    /// Returns true if both have the same states of the same documents.
    pub fn is(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let others = other.by_name();
        self.0.len() == others.len()
            && self.0.iter().all(|part| others.get(&*part.file().name).is_some_and(|other| part.is(other)))
    }

    /// Returns the files whose state differs from that in `other`.
    pub fn new_since(&self, other: &Self) -> HashSet<&str> {
        let others = other.by_name();
        let same = |part: &CheckedFile| others.get(&*part.file().name).is_some_and(|other| part.is(other));
        self.0.iter().filter(|part| !same(part)).map(|part| &*part.file().name).collect()
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBackDocument {
    /// Name of the file in the source.
    pub file: String,
    /// True if its last good state is in force; false if it has none and is omitted.
    pub keeps: bool,
    /// Problems of the newest state.
    pub problems: Vec<Problem>,
}
