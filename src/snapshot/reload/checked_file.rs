//! CheckedFile: content of one file, without a problem.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::snapshot::{
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
    pub(crate) problems: Vec<Problem>,
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
    pub(crate) fn is(&self, other: &Self) -> bool {
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
