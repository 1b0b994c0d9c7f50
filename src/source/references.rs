//! References: the files of this machine that a configuration refers to.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::contents::{Contents, ReadError, Reference};
use gatepost_base::files;
use gatepost_config::{NO_PAUSE, Pause, SourceFile};

/// Maximum size in bytes of a configuration, and of a file that it refers to. Anything larger is the wrong file.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// Checks that `folder` is a folder, if there is one.
///
/// # Errors
/// Returns an error if it is anything else, or cannot be read.
pub(super) fn check(folder: Option<&Path>) -> Result<(), ReadError> {
    match folder.map(|folder| (folder, fs::metadata(folder))) {
        None => Ok(()),
        Some((_, Ok(there))) if there.is_dir() => Ok(()),
        Some((folder, Ok(_))) => Err(ReadError::unreadable(folder, &io::ErrorKind::NotADirectory.into())),
        Some((folder, Err(error))) => Err(ReadError::unreadable(folder, &error)),
    }
}

/// Returns contents of another machine with exactly the files below `folder` that they refer to.
///
/// Keys of the store must not name arbitrary files of this machine: only relative paths that stay in the folder are
/// read, and none without a folder. An unreadable file does not fail the read: its error is in the contents.
pub(super) fn follow(contents: Contents, folder: Option<&Path>) -> Contents {
    read_all(contents, &|written| within(folder, written))
}

/// Returns the contents with exactly the files that they refer to, each read by `read`.
pub(super) fn read_all(contents: Contents, read: &dyn Fn(&str) -> Reference) -> Contents {
    with_references(contents, &BTreeMap::new(), read, &mut gatepost_config::LoadCache::default(), NO_PAUSE)
}

/// Returns true if the files below `folder` that the contents refer to are unchanged. Reads all of them.
pub(super) fn unchanged(contents: &Contents, folder: Option<&Path>) -> bool {
    contents.references.iter().all(|(written, known)| within(folder, written) == *known)
}

/// Returns the contents with exactly the files that they refer to. Reads no file in `known` again, and parses no
/// document again that `documents` knows. Only parsing a document reveals its references.
pub(super) fn with_references(
    contents: Contents,
    known: &BTreeMap<String, Reference>,
    read: &dyn Fn(&str) -> Reference,
    documents: &mut gatepost_config::LoadCache,
    pause: Pause<'_>,
) -> Contents {
    // A check takes time: a policy is compiled for it. So only those files are checked that may refer to others.
    let referring: Vec<_> = contents.files.iter().filter(|file| may_refer(file)).cloned().collect();
    if contents.references.is_empty() && referring.is_empty() {
        return contents;
    }
    let followed = RefCell::new(BTreeMap::new());
    let read = |written: &str| {
        let reference = known.get(written).cloned().unwrap_or_else(|| read(written));
        followed.borrow_mut().insert(written.to_owned(), reference.clone());
        reference.map(Into::into).map_err(|(kind, cause)| io::Error::new(kind, cause))
    };
    // Only the references are needed here. The check of these contents finds the problems again, and reports them.
    let _ = documents.load(&referring, &read, pause);
    let mut found = Contents::new(contents.files, followed.into_inner());
    if !contents.notes.is_empty() {
        found = found.noted(contents.notes);
    }
    match contents.as_of {
        Some(as_of) => Contents { revision: contents.revision, as_of: Some(as_of), ..found },
        None => found,
    }
}

/// Returns true if the file may refer to others, as documents of our own kinds may. The keys for that end in `File`,
/// unless they contain an escape.
fn may_refer(file: &SourceFile) -> bool {
    let may = |text: &str| text.contains("gatepost.dev") && (text.contains("File") || text.contains('\\'));
    str::from_utf8(&file.bytes).map_or(true, may)
}

/// Reads the regular file at `path`.
pub(super) fn read(path: &Path) -> Reference {
    files::read(path, MAX_BYTES).map(Into::into).map_err(|error| (error.kind(), error.to_string()))
}

/// Reads a file below `folder`, by a path from another machine.
fn within(folder: Option<&Path>, written: &str) -> Reference {
    let refused = |why: &str| Err((io::ErrorKind::PermissionDenied, why.to_owned()));
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let path: PathBuf = written.into();
    if !path.components().all(plain) {
        return refused("what comes from another machine may name files by relative paths without \"..\" only");
    }
    let Some(folder) = folder else {
        return refused("what comes from another machine may name files below --files FOLDER only, and none is given");
    };
    read(&folder.join(path))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn naming(path: &str) -> Contents {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
             externalAdmissionHooks:\n- name: a.example.com\n  rules: []\n  \
             clientConfig: {{url: 'grpcs://a.example.com:1', caFile: {path:?}}}\n"
        );
        let file = SourceFile { name: "a.yaml".to_owned(), bytes: Bytes::from(text) };
        Contents::new(vec![file], BTreeMap::new()).with_revision(7)
    }

    #[test]
    fn the_folder_has_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(check(None).is_ok() && check(Some(folder.path())).is_ok());
        assert_eq!(
            check(Some(&file)).unwrap_err().to_string(),
            format!("cannot read {}: not a directory", file.display())
        );
        let absent = folder.path().join("absent");
        assert!(check(Some(&absent)).unwrap_err().to_string().starts_with("cannot read"));
    }

    #[test]
    fn only_files_below_the_folder_may_be_named_from_afar() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("inner");
        fs::create_dir(&folder).unwrap();
        fs::write(outer.path().join("outer.crt"), "secret").unwrap();
        fs::write(folder.join("ca.crt"), "ca").unwrap();
        let absolute = folder.join("ca.crt").display().to_string();
        let message = |path: &str, folder| match follow(naming(path), folder).references.remove(path) {
            Some(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Err((_, cause))) => cause,
            None => "no such reference".to_owned(),
        };
        assert_eq!(message("ca.crt", Some(&folder)), "ca");
        assert_eq!(message("./ca.crt", Some(&folder)), "ca");
        for path in ["../outer.crt", "x/../../outer.crt", &absolute, "/etc/passwd"] {
            assert!(
                message(path, Some(&folder)).contains("relative paths"),
                "{path}: {}",
                message(path, Some(&folder))
            );
        }
        assert!(message("ca.crt", None).contains("--files FOLDER"));
        assert!(message("absent.crt", Some(&folder)).contains("No such file"));
    }

    #[test]
    fn a_reference_is_found_however_its_key_is_spelt() {
        let text = |key: &str| {
            format!(
                "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
                     externalAdmissionHooks:\n- name: a.example.com\n  rules: []\n  \
                     clientConfig: {{url: 'grpcs://a.example.com:1', {key}: ca.pem}}\n"
            )
        };
        for key in ["caFile", r#""caFile""#, r#""ca\u0046ile""#, r#""ca\x46ile""#] {
            let file = SourceFile { name: "a.yaml".to_owned(), bytes: Bytes::from(text(key)) };
            let found = follow(Contents::new(vec![file], BTreeMap::new()), None).references;
            assert_eq!(found.keys().collect::<Vec<_>>(), ["ca.pem"], "{key}");
        }
    }

    #[test]
    fn a_policy_is_not_checked_for_references() {
        let file = |text: &str| SourceFile { name: "a.yaml".to_owned(), bytes: Bytes::from(text.to_owned()) };
        let policy = r"kind: ValidatingAdmissionPolicy
spec: {validations: [{expression: 'object.spec.tarFile.matches(''\\.tar$'')'}]}";
        assert!(!may_refer(&file(policy)));
        assert!(may_refer(&naming("ca.crt").files[0]));
    }

    #[test]
    fn digest_includes_references_and_revision_is_the_source_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        fs::write(&path, "one").unwrap();
        let one = follow(naming("ca.crt"), Some(folder.path()));
        assert_eq!((&one.revision, one.as_of), (&naming("ca.crt").revision, Some(7)));
        assert!(unchanged(&one, Some(folder.path())));
        fs::write(&path, "two").unwrap();
        assert!(!unchanged(&one, Some(folder.path())));
        assert_ne!(follow(naming("ca.crt"), Some(folder.path())).digest, one.digest);
    }
}
