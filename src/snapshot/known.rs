//! Known: documents that were read before. Reading is most of what a change costs, and most changes touch one file.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{Problem, ReadFile, Snapshot, SourceFile, break_glass, check, document::Documents};
use crate::model::BreakGlass;

/// The documents of the files that were loaded last: a file that comes again with the same content is not read again.
/// Needs some times as much memory as the files.
#[derive(Debug, Default)]
pub struct Known(HashMap<String, (Bytes, Arc<Documents>)>);

impl Known {
    /// As [`load`](super::load), and sooner where these files, or some of them, were loaded last.
    ///
    /// # Errors
    /// Every problem that there is, in the order of the files and of what is written in them.
    pub fn load(&mut self, files: &[SourceFile], read: ReadFile<'_>) -> Result<Snapshot, Vec<Problem>> {
        let mut former = std::mem::take(&mut self.0);
        let documents: Vec<_> = files
            .iter()
            .map(|file| match former.remove(&file.name) {
                Some((bytes, documents)) if bytes == file.bytes => documents,
                _ => Arc::new(Documents::read(file)),
            })
            .collect();
        let known = files.iter().zip(&documents);
        self.0 = known.map(|(file, read)| (file.name.clone(), (file.bytes.clone(), Arc::clone(read)))).collect();
        let named = files.iter().map(|file| &*file.name).zip(documents.iter().map(|documents| &**documents));
        check::check(named, read).map(Snapshot::compile)
    }

    /// Every sound `BreakGlass` document of what was loaded last, whatever else was wrong with it.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        let mut files: Vec<_> = self.0.iter().collect();
        files.sort_by_key(|(name, _)| *name);
        files.into_iter().flat_map(|(name, (_, documents))| break_glass::sound(name, documents)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, hook: &str) -> SourceFile {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: {name}}}\n\
             externalAdmissionHooks: [{{name: {hook}, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: []}}]\n"
        );
        SourceFile { name: format!("{name}.yaml"), bytes: text.into() }
    }

    #[test]
    fn what_is_known_says_the_same_as_what_is_read_anew() {
        let mut known = Known::default();
        let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let told = |outcome: Result<Snapshot, Vec<Problem>>| match outcome {
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
            assert_eq!(told(known.load(&files, no_file)), told(super::super::load(&files, no_file)), "{files:?}");
            assert_eq!(known.0.len(), files.len(), "nothing is kept that has gone");
        }
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let mut known = Known::default();
        let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let read = |known: &Known, name: &str| Arc::as_ptr(&known.0[name].1);
        known.load(&[file("a", "one"), file("b", "two")], no_file).unwrap();
        let before = [read(&known, "a.yaml"), read(&known, "b.yaml")];
        known.load(&[file("a", "one"), file("b", "three")], no_file).unwrap();
        assert_eq!(read(&known, "a.yaml"), before[0]);
    }
}
