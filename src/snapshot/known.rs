//! Known: files that were loaded before. Reading and checking them is most of what a change costs, and most changes
//! touch one file.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    Pause, Problem, ReadFile, Snapshot, SourceFile, break_glass, check, document::Documents, matcher::Former,
    part::Part,
};
use crate::model::BreakGlass;

/// What the files hold that were loaded last: one that comes again with the same content is not read again, nor
/// checked, and its hooks are the same ones. Needs some times as much memory as the files.
#[derive(Debug, Default)]
pub struct Known {
    files: Vec<KnownFile>,
    former: Former,
}

#[derive(Debug)]
struct KnownFile {
    name: String,
    bytes: Bytes,
    documents: Documents,
    /// What it says, where nothing in it is wrong.
    part: Option<Part>,
}

impl KnownFile {
    fn read(file: &SourceFile, pause: Pause<'_>) -> Self {
        let documents = Documents::read(file, pause);
        Self { name: file.name.clone(), bytes: file.bytes.clone(), documents, part: None }
    }
}

impl Known {
    /// As [`load`](super::load), and sooner where these files, or some of them, were loaded last. Pauses while it reads a
    /// file, and after each file and each configuration.
    ///
    /// # Errors
    /// Every problem that there is, in the order of the files and of what is written in them.
    pub fn load(
        &mut self,
        files: &[SourceFile],
        read: ReadFile<'_>,
        pause: Pause<'_>,
    ) -> Result<Snapshot, Vec<Problem>> {
        let former = std::mem::take(&mut self.files).into_iter();
        let mut former: HashMap<_, _> = former.map(|known| (known.name.clone(), known)).collect();
        for file in files {
            let mut known = match former.remove(&file.name) {
                Some(known) if known.bytes == file.bytes => known,
                outdated => {
                    outdated.into_iter().for_each(|outdated| outdated.documents.discard(pause));
                    KnownFile::read(file, pause)
                }
            };
            known.part = match known.part.take() {
                Some(part) if part.refers_to_the_same(read) => Some(part),
                _ => Part::of(&file.name, &known.documents, read, pause),
            };
            self.files.push(known);
            pause();
        }
        let parts: Option<Vec<_>> = self.files.iter().map(|known| known.part.as_ref()).collect();
        let checked = match parts.and_then(|parts| Part::joined(&parts)) {
            Some(checked) => checked,
            // Something is wrong, in a file or between two: everything that is, is told in one go and in order.
            None => check::check(self.files.iter().map(|known| (&*known.name, &known.documents)), read)?,
        };
        let snapshot = Snapshot::compile(checked, &self.former, pause);
        self.former = Former { hooks: snapshot.hooks.clone(), matcher: snapshot.matcher.clone() };
        Ok(snapshot)
    }

    /// Every sound `BreakGlass` document of what was loaded last, whatever else was wrong with it.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|known| &known.name);
        files.into_iter().flat_map(|known| break_glass::sound(&known.name, &known.documents)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use super::{super::NO_PAUSE, *};

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
            assert_eq!(
                told(known.load(&files, no_file, NO_PAUSE)),
                told(super::super::load(&files, no_file)),
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
        let mut known = Known::default();
        for _ in 0..2 {
            let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
            let snapshot = known.load(&files, no_file, NO_PAUSE).unwrap();
            assert_eq!(snapshot.hooks.len(), 2);
        }
    }

    #[test]
    fn a_pause_is_made_after_each_file_and_each_configuration() {
        let (pauses, mut known) = (Cell::new(0), Known::default());
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
        let (mut known, no_file): (_, ReadFile<'_>) = (Known::default(), &|_| Err(std::io::ErrorKind::NotFound.into()));
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
        let mut known = Known::default();
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
        let mut known = Known::default();
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
