//! Part: what one file says by itself, without a problem.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use super::{Pause, ReadFile, at::Report, check::Checked, document::Documents, used::Used};

/// What one file says by itself, without a problem.
pub(super) struct Part {
    said: Checked,
    /// Names that no other file may use.
    used: Used,
    /// The files that it refers to, and what they held.
    references: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Part {
    /// Never shows what the files hold: private keys are among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("references", &self.references.keys()).finish_non_exhaustive()
    }
}

impl Part {
    /// What this file says; `None` where anything is wrong with it.
    pub(super) fn of(file: &str, documents: &Documents, read: ReadFile<'_>, pause: Pause<'_>) -> Option<Self> {
        let (mut said, mut used, report) = (Checked::default(), Used::default(), Report::default());
        let references = RefCell::new(BTreeMap::new());
        let noted: ReadFile<'_> = &|path| {
            let content = read(path)?;
            references.borrow_mut().insert(path.to_owned(), content.clone());
            Ok(content)
        };
        said.add(file, documents, noted, &report, &mut used, pause);
        let references = references.into_inner();
        report.into_problems().is_empty().then_some(Self { said, used, references })
    }

    /// Do the files that it refers to still hold what they held?
    pub(super) fn refers_to_the_same(&self, read: ReadFile<'_>) -> bool {
        self.references.iter().all(|(path, before)| read(path).is_ok_and(|now| now == *before))
    }

    /// What all of them say; `None` where two use a name that only one may.
    pub(super) fn joined(parts: &[&Self]) -> Option<Checked> {
        if !Used::once(parts.iter().map(|part| &part.used)) {
            return None;
        }
        let mut all = Checked::default();
        parts.iter().for_each(|part| all.join(&part.said));
        Some(all)
    }
}
