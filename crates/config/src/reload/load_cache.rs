//! LoadCache: results of the last load. Reading and checking files is most of the cost of a change, and most changes
//! touch one file.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{
    arbitration::{ArbitratedDocument, Newest, arbitrate},
    checked_file::{CheckedFile, FaultyFile, HeldBackDocument, LastGoodDocuments},
};
use crate::{
    Pause, Problem, ReadFile, Snapshot, SourceFile,
    check::{self, break_glass},
    document::Documents,
    matcher::PreviousIndex,
};
use gatepost_api::BreakGlass;

/// Files of the last load. An unchanged file is not parsed again, and is checked again only if it had problems or a
/// file that it refers to has changed. It keeps its hooks. The cache needs several times as much memory as the files.
#[derive(Debug, Default)]
pub struct LoadCache {
    files: Vec<CachedFile>,
    former: PreviousIndex,
}

#[derive(Debug)]
struct CachedFile {
    file: SourceFile,
    documents: Documents,
    /// Content or problems; `None` before the check.
    part: Option<Result<Arc<CheckedFile>, Box<FaultyFile>>>,
}

impl CachedFile {
    fn read(file: &SourceFile, pause: Pause<'_>) -> Self {
        Self { file: file.clone(), documents: Documents::read(file, pause), part: None }
    }

    fn sound(&self) -> Option<&Arc<CheckedFile>> {
        self.part.as_ref()?.as_ref().ok()
    }
}

/// Result of a load in which some files are perhaps not in their newest state.
#[derive(Debug)]
pub struct LoadResult {
    /// The compiled configuration.
    pub snapshot: Snapshot,
    /// State of each document in the snapshot.
    pub kept: LastGoodDocuments,
    /// Documents whose newest state is not in the snapshot.
    pub held: Vec<HeldBackDocument>,
}

/// Files that are valid by themselves but cannot be served, and the reasons.
pub type RefusedFiles = BTreeMap<String, Vec<Problem>>;

impl LoadCache {
    /// Loads files as [`load`](crate::load) does, but reuses the results of the last load. Pauses while it reads a
    /// file, and after each file and each configuration.
    ///
    /// # Errors
    /// Every problem, in the order of the files and of their content.
    pub fn load(
        &mut self,
        files: &[SourceFile],
        read: ReadFile<'_>,
        pause: Pause<'_>,
    ) -> Result<Snapshot, Vec<Problem>> {
        self.load_whole(files, read, pause).map(|loaded| loaded.snapshot)
    }

    /// Loads files as [`LoadCache::load`] does, and also returns the state of each document.
    ///
    /// # Errors
    /// As [`LoadCache::load`].
    pub fn load_whole(
        &mut self,
        files: &[SourceFile],
        read: ReadFile<'_>,
        pause: Pause<'_>,
    ) -> Result<LoadResult, Vec<Problem>> {
        self.read(files, read, pause);
        match self.whole(pause) {
            Some(loaded) => Ok(loaded),
            None => Err(self.problems(read)),
        }
    }

    /// Loads files so that a faulty file does not stop the others. A file that is faulty, in `refused`, or in conflict
    /// with another file about a unique name (see the module `arbitration`) falls back to its state in `kept`. It is
    /// left out if `kept` does not have it. A removed file stays if its unique names may have moved to such a file.
    ///
    /// # Errors
    /// Every problem, if two files have the same name.
    pub fn load_around(
        &mut self,
        files: &[SourceFile],
        read: ReadFile<'_>,
        (kept, refused): (&LastGoodDocuments, &RefusedFiles),
        pause: Pause<'_>,
    ) -> Result<LoadResult, Vec<Problem>> {
        self.read(files, read, pause);
        if refused.is_empty()
            && let Some(loaded) = self.whole(pause)
        {
            return Ok(loaded);
        }
        let in_force = kept.by_name();
        let names: HashSet<_> = self.files.iter().map(|known| &*known.file.name).collect();
        if names.len() < self.files.len() {
            return Err(self.problems(read));
        }
        let mut documents: Vec<_> = self
            .files
            .iter()
            .filter_map(|known| {
                let file = &*known.file.name;
                let newest = match known.part.as_ref()? {
                    Err(faulty) => Newest::Faulty(faulty),
                    Ok(part) => {
                        refused.get(file).map_or(Newest::Sound(part), |problems| Newest::Refused(part, problems))
                    }
                };
                Some(ArbitratedDocument { file, newest, kept: in_force.get(file).copied() })
            })
            .collect();
        let gone = kept.parts().filter(|part| !names.contains(&*part.file().name));
        documents.extend(gone.map(|part| ArbitratedDocument {
            file: &part.file().name,
            newest: Newest::Gone,
            kept: Some(part),
        }));
        let problems = arbitrate(&documents);
        pause();
        let (mut parts, mut held) = (Vec::new(), Vec::new());
        for (document, problems) in documents.iter().zip(problems) {
            match (document.newest, problems.is_empty()) {
                (Newest::Sound(part), true) => parts.push(Arc::clone(part)),
                (_, true) => {}
                (_, false) => {
                    parts.extend(document.kept.cloned());
                    held.push(HeldBackDocument {
                        file: document.file.to_owned(),
                        keeps: document.kept.is_some(),
                        problems,
                    });
                }
            }
        }
        match self.compiled(parts, pause) {
            Some((snapshot, kept)) => Ok(LoadResult { snapshot, kept, held }),
            None => Err(self.problems(read)),
        }
    }

    /// Compiles these checked files, which need not be those of the last load; `None` if two use the same unique name.
    pub fn compiled(
        &mut self,
        parts: Vec<Arc<CheckedFile>>,
        pause: Pause<'_>,
    ) -> Option<(Snapshot, LastGoodDocuments)> {
        let checked = CheckedFile::joined(parts.iter().map(|part| &**part))?;
        let snapshot = Snapshot::compile(checked, &self.former, pause);
        self.former = PreviousIndex { hooks: snapshot.hooks.clone(), matcher: snapshot.matcher.clone() };
        Some((snapshot, LastGoodDocuments::new(parts)))
    }

    /// Compiles all files in their newest state; `None` if there is a problem within a file or between two.
    fn whole(&mut self, pause: Pause<'_>) -> Option<LoadResult> {
        let parts: Option<Vec<_>> = self.files.iter().map(|known| known.sound().cloned()).collect();
        let (snapshot, kept) = self.compiled(parts?, pause)?;
        Some(LoadResult { snapshot, kept, held: Vec::new() })
    }

    /// Returns every problem within the files and between them, in order.
    fn problems(&self, read: ReadFile<'_>) -> Vec<Problem> {
        check::problems(self.files.iter().map(|known| (&*known.file.name, &known.documents)), read)
    }

    /// Reads and checks each file by itself.
    fn read(&mut self, files: &[SourceFile], read: ReadFile<'_>, pause: Pause<'_>) {
        let former = std::mem::take(&mut self.files).into_iter();
        let mut former: HashMap<_, _> = former.map(|known| (known.file.name.clone(), known)).collect();
        for file in files {
            let mut known = match former.remove(&file.name) {
                Some(known) if known.file.bytes == file.bytes => known,
                outdated => {
                    outdated.into_iter().for_each(|outdated| outdated.documents.discard(pause));
                    CachedFile::read(file, pause)
                }
            };
            known.part = Some(match known.part.take() {
                Some(Ok(part)) if part.refers_to_the_same(read) => Ok(part),
                _ => CheckedFile::of(file, &known.documents, read, pause).map(Arc::new),
            });
            self.files.push(known);
            pause();
        }
    }

    /// Returns every valid `BreakGlass` document of the last load, even if other documents have problems.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|known| &known.file.name);
        files.into_iter().flat_map(|known| break_glass::valid_documents(&known.file.name, &known.documents)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::NO_PAUSE;

    fn file(name: &str, hook: &str) -> SourceFile {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
             externalAdmissionHooks: [{{name: {hook}, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: []}}]\n"
        );
        SourceFile { name: format!("{name}.yaml"), bytes: text.into() }
    }

    #[test]
    fn what_is_known_says_the_same_as_what_is_read_anew() {
        let mut known = LoadCache::default();
        let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let message = |outcome: Result<Snapshot, Vec<Problem>>| match outcome {
            Ok(snapshot) => snapshot.hooks.iter().map(|hook| hook.id.to_string()).collect::<Vec<_>>(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        for files in [
            vec![file("a", "one"), file("b", "two")],
            vec![file("a", "one"), file("b", "three")],
            vec![file("b", "three"), file("a", "one"), file("c", "one")],
            vec![file("b", "three"), file("a", "one"), file("c", "]")],
            vec![file("b", "three"), file("a", "one"), file("c", "]")],
            vec![file("a", "one")],
        ] {
            assert_eq!(
                message(known.load(&files, no_file, NO_PAUSE)),
                message(crate::load(&files, no_file)),
                "{files:?}"
            );
            assert_eq!(known.files.len(), files.len(), "nothing is kept that has gone");
        }
    }

    #[test]
    fn each_file_counts_whatever_it_is_called() {
        // Two names that are no UTF-8 may be shown as one.
        let named = |file: SourceFile| SourceFile { name: "?.yaml".into(), ..file };
        let none = SourceFile { name: String::new(), bytes: "{apiVersion: v1, kind: List, items: []}".into() };
        let files = [file("a", "one"), file("b", "two"), none].map(named);
        let mut known = LoadCache::default();
        for _ in 0..2 {
            let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
            let snapshot = known.load(&files, no_file, NO_PAUSE).unwrap();
            assert_eq!(snapshot.hooks.len(), 2);
        }
    }

    #[test]
    fn a_pause_is_made_after_each_file_and_each_configuration() {
        let (pauses, mut known) = (Cell::new(0), LoadCache::default());
        let pause = || pauses.set(pauses.get() + 1);
        let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        known.load(&[file("a", "one"), file("b", "two")], no_file, &pause).unwrap();
        assert!(pauses.get() >= 4, "{}", pauses.get());
    }

    #[test]
    fn namesakes_of_two_kinds_keep_ids_of_their_own() {
        let name = "a.b.c";
        let webhooks = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: a}}\n\
             webhooks: [{{name: {name}, clientConfig: {{url: 'https://h/'}}, sideEffects: None, \
             admissionReviewVersions: [v1]}}]\n"
        );
        let files = [file("a", name), SourceFile { name: "b.yaml".into(), bytes: webhooks.into() }];
        let (mut known, no_file): (_, ReadFile<'_>) =
            (LoadCache::default(), &|_| Err(std::io::ErrorKind::NotFound.into()));
        for _ in 0..2 {
            let snapshot = known.load(&files, no_file, NO_PAUSE).unwrap();
            let ids: Vec<_> = snapshot.hooks.iter().map(|hook| &*hook.id).collect();
            assert_eq!(ids, ["a/a.b.c/0", "a/a.b.c/1"]);
        }
        let alone = known.load(&files[1..], no_file, NO_PAUSE).unwrap();
        assert_eq!(&*alone.hooks[0].id, "a/a.b.c/0");
    }

    #[test]
    fn an_unchanged_file_is_not_checked_again_and_keeps_its_hooks() {
        let mut known = LoadCache::default();
        let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let before = known.load(&[file("a", "one"), file("b", "two")], no_file, NO_PAUSE).unwrap();
        let after = known.load(&[file("a", "one"), file("b", "three")], no_file, NO_PAUSE).unwrap();
        assert!(Arc::ptr_eq(&before.hooks[0], &after.hooks[0]));
        assert!(!Arc::ptr_eq(&before.hooks[1], &after.hooks[1]));
    }

    #[test]
    fn a_file_is_checked_anew_where_what_it_refers_to_has_changed() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                    externalAdmissionHooks: [{name: one, rules: [], clientConfig: {url: 'grpcs://127.0.0.1:1', caFile: ca.pem}}]\n";
        let files = [SourceFile { name: "a.yaml".into(), bytes: text.into() }];
        let mut known = LoadCache::default();
        let authority = |content: &str| {
            let content = content.as_bytes().to_vec();
            move |_: &str| Ok(content.clone())
        };
        let certificate = || rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap().cert.pem();
        let (one, other) = (certificate(), certificate());
        let used = |snapshot: &Snapshot| snapshot.hooks[0].endpoint.tls.as_ref().unwrap().ca_pem.clone().unwrap();
        let first = known.load(&files, &authority(&one), NO_PAUSE).unwrap();
        let again = known.load(&files, &authority(&one), NO_PAUSE).unwrap();
        assert!(Arc::ptr_eq(&first.hooks[0], &again.hooks[0]));
        let renewed = known.load(&files, &authority(&other), NO_PAUSE).unwrap();
        assert_eq!([&*used(&first), &*used(&renewed)], [one.as_bytes(), other.as_bytes()]);
        let problems = known.load(&files, &authority("no certificate"), NO_PAUSE).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let gone = known.load(&files, &|_| Err(std::io::ErrorKind::NotFound.into()), NO_PAUSE).unwrap_err();
        assert!(gone[0].what.contains("cannot be read"), "{gone:?}");
        assert_eq!(*used(&known.load(&files, &authority(&one), NO_PAUSE).unwrap()), *one.as_bytes());
    }
}
