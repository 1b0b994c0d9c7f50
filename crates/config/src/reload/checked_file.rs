//! CheckedFile: one document by itself, checked; and the state of every document that is in force.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    Pause, Problem, ReadFile, SourceFile,
    check::Checked,
    document::{Documents, node::ProblemReport, unique_names::UniqueNames},
};

/// Content of one file without a problem: a state of it that can be in force.
pub struct CheckedFile {
    file: SourceFile,
    said: Checked,
    /// Names that no other file may use.
    used: UniqueNames,
    /// The files that it refers to, and what they held.
    references: BTreeMap<String, Bytes>,
}

/// Problems of one file, and the names in it all the same.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub problems: Vec<Problem>,
    pub(crate) used: UniqueNames,
}

impl fmt::Debug for CheckedFile {
    /// Never shows what the files hold: private keys are among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let references = self.references.keys();
        f.debug_struct("CheckedFile")
            .field("file", &self.file.name)
            .field("references", &references)
            .finish_non_exhaustive()
    }
}

impl CheckedFile {
    /// Content of this file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn of(
        file: &SourceFile,
        documents: &Documents,
        read: ReadFile<'_>,
        pause: Pause<'_>,
    ) -> Result<Self, Box<Faulty>> {
        let (mut said, mut used, report) = (Checked::default(), UniqueNames::default(), ProblemReport::default());
        let references = RefCell::new(BTreeMap::new());
        let noted: ReadFile<'_> = &|path| {
            let content = read(path)?;
            references.borrow_mut().insert(path.to_owned(), Bytes::from(content.clone()));
            Ok(content)
        };
        said.add(&file.name, documents, noted, &report, &mut used, pause);
        let references = references.into_inner();
        match report.into_problems() {
            none if none.is_empty() => Ok(Self { file: file.clone(), said, used, references }),
            problems => Err(Box::new(Faulty { problems, used })),
        }
    }

    /// The same, of a file that is read now.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn checked(file: &SourceFile, read: ReadFile<'_>, pause: Pause<'_>) -> Result<Self, Vec<Problem>> {
        Self::of(file, &Documents::read(file, pause), read, pause).map_err(|faulty| faulty.problems)
    }

    /// The file.
    pub fn file(&self) -> &SourceFile {
        &self.file
    }

    /// The files that it refers to by the paths as written, and what they held. Private keys are among them.
    pub fn references(&self) -> &BTreeMap<String, Bytes> {
        &self.references
    }

    pub(crate) fn used(&self) -> &UniqueNames {
        &self.used
    }

    /// Is it the same state of the same file?
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.file == other.file && self.references == other.references
    }

    /// Do the files that it refers to still hold what they held?
    pub(crate) fn refers_to_the_same(&self, read: ReadFile<'_>) -> bool {
        self.references.iter().all(|(path, before)| read(path).is_ok_and(|now| now == *before))
    }

    /// Content of all of them; `None` where two use a name that only one may.
    pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Option<Checked> {
        if !UniqueNames::once(parts.clone().map(|part| &part.used)) {
            return None;
        }
        let mut all = Checked::default();
        parts.for_each(|part| all.join(&part.said));
        Some(all)
    }
}

/// The state of every document that is in force: the last good state of those whose newest one is not sound.
#[derive(Clone, Debug, Default)]
pub struct LastGoodDocuments(Arc<[Arc<CheckedFile>]>);

impl LastGoodDocuments {
    pub(crate) fn new(parts: Vec<Arc<CheckedFile>>) -> Self {
        Self(parts.into())
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn parts(&self) -> impl Iterator<Item = &Arc<CheckedFile>> {
        self.0.iter()
    }

    pub(crate) fn by_name(&self) -> HashMap<&str, &Arc<CheckedFile>> {
        self.0.iter().map(|part| (&*part.file().name, part)).collect()
    }

    /// Are these the same states of the same documents?
    pub fn is(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let others = other.by_name();
        self.0.len() == others.len()
            && self.0.iter().all(|part| others.get(&*part.file().name).is_some_and(|other| part.is(other)))
    }

    /// The files whose state is another one than `other` has.
    pub fn new_since(&self, other: &Self) -> HashSet<&str> {
        let others = other.by_name();
        let same = |part: &CheckedFile| others.get(&*part.file().name).is_some_and(|other| part.is(other));
        self.0.iter().filter(|part| !same(part)).map(|part| &*part.file().name).collect()
    }
}

/// A document whose newest state is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBackDocument {
    /// Its file, named as the source names it.
    pub file: String,
    /// Its last good state is in force; otherwise it never had one, and is left out.
    pub keeps: bool,
    /// Problems of its newest state.
    pub problems: Vec<Problem>,
}
