//! Folder: files written whole or not at all, and never over somebody's edits.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

/// Result of writing one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    New,
    Replaced,
    Unchanged,
}

/// Reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error(
        "nothing was written, because these files differ from the cluster: {}; compare them (import into another \
         folder and diff), then use --force to replace them",
        list(paths)
    )]
    Differs { paths: Vec<PathBuf> },
    #[error("cannot {what} {}: {cause}", path.display())]
    Failed { what: &'static str, path: PathBuf, cause: io::Error },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes files, each by rename, into a folder that is made if need be, and removes those that are `stale`. Unless
/// `force` is given, one file that exists and differs, or is stale, keeps all of this from being done.
pub(super) fn write(
    folder: &Path,
    files: &[(PathBuf, String)],
    stale: &[PathBuf],
    force: bool,
) -> Result<Vec<Written>, FolderError> {
    let mut fates = Vec::with_capacity(files.len());
    let mut differing = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        fates.push(match fs::read(&path) {
            Ok(there) if there == text.as_bytes() => Written::Unchanged,
            Ok(_) => {
                differing.push(path);
                Written::Replaced
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Written::New,
            Err(cause) => return Err(failed("read", &path, cause)),
        });
    }
    let stale: Vec<PathBuf> = stale.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
    differing.extend(stale.iter().cloned());
    if !differing.is_empty() && !force {
        return Err(FolderError::Differs { paths: differing });
    }
    for ((name, text), _) in files.iter().zip(&fates).filter(|(_, fate)| **fate != Written::Unchanged) {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|cause| failed("make the folder", parent, cause))?;
        }
        replace(&path, text.as_bytes()).map_err(|cause| failed("write", &path, cause))?;
    }
    // Last: for a moment an object stands in both places, and never in none.
    for path in stale {
        fs::remove_file(&path).map_err(|cause| failed("remove", &path, cause))?;
    }
    Ok(fates)
}

/// Writes a file so that whoever reads it meanwhile sees the old one or the new one.
pub(in crate::cli) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A dot in front: a folder that is being served is read without it.
    let draft = path.with_file_name(format!(".{name}.{}", process::id()));
    let written = || {
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    let written = written();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn failed(what: &'static str, path: &Path, cause: io::Error) -> FolderError {
    FolderError::Failed { what, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Vec<(PathBuf, String)> {
        all.iter().map(|&(name, text)| (name.into(), text.to_owned())).collect()
    }

    #[test]
    fn a_differing_file_keeps_everything_as_it_is() {
        let there = tempfile::tempdir().unwrap();
        let folder = there.path().join("made/for/it");
        assert_eq!(write(&folder, &files(&[("b.yaml", "1")]), &[], false).unwrap(), [Written::New]);
        let changed = files(&[("a.yaml", "1"), ("b.yaml", "2")]);
        let error = write(&folder, &changed, &[], false).unwrap_err().to_string();
        assert!(error.contains("b.yaml") && error.contains("--force"), "{error}");
        assert!(!folder.join("a.yaml").exists());
        assert_eq!(write(&folder, &changed, &[], true).unwrap(), [Written::New, Written::Replaced]);
        assert_eq!(write(&folder, &changed, &[], false).unwrap(), [Written::Unchanged; 2]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no draft is left behind");
    }

    #[test]
    fn what_is_no_longer_served_leaves_the_folder_only_where_that_is_forced() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a.yaml"), folder.path().join("not-served/a.yaml"));
        fs::write(&here, "1").unwrap();
        let (moved, stale) = (files(&[("not-served/a.yaml", "2")]), [PathBuf::from("a.yaml")]);
        let error = write(folder.path(), &moved, &stale, false).unwrap_err().to_string();
        assert!(error.contains("a.yaml") && here.exists() && !there.exists(), "{error}");
        assert_eq!(write(folder.path(), &moved, &stale, true).unwrap(), [Written::New]);
        assert!(!here.exists() && there.exists());
        assert_eq!(write(folder.path(), &moved, &stale, false).unwrap(), [Written::Unchanged]);
    }

    #[test]
    fn what_cannot_be_written_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.yaml")).unwrap();
        assert!(write(folder.path(), &files(&[("a.yaml", "1")]), &[], true).is_err());
        assert!(replace(&folder.path().join("a.yaml"), b"1").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
