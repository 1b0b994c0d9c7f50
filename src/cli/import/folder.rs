//! Folder: files written whole or not at all, and never over somebody's edits.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

/// What became of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    New,
    Replaced,
    Unchanged,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error(
        "{} to overwrite, which differ from what is in the cluster, and nothing was written: {}; compare them (import into another \
         folder and diff), then say --force to replace them",
        if paths.len() == 1 { "a file would" } else { "files would" },
        list(paths)
    )]
    Differs { paths: Vec<PathBuf> },
    #[error("cannot {what} {}: {cause}", path.display())]
    Failed { what: &'static str, path: PathBuf, cause: io::Error },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes files, each by rename, into a folder that is made if need be. Unless `force` is given, one file that exists
/// and differs keeps all of them from being written.
pub(super) fn write(folder: &Path, files: &[(String, String)], force: bool) -> Result<Vec<Written>, FolderError> {
    fs::create_dir_all(folder).map_err(|cause| failed("make the folder", folder, cause))?;
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
    if !differing.is_empty() && !force {
        return Err(FolderError::Differs { paths: differing });
    }
    for ((name, text), _) in files.iter().zip(&fates).filter(|(_, fate)| **fate != Written::Unchanged) {
        let path = folder.join(name);
        replace(&path, text.as_bytes()).map_err(|cause| failed("write", &path, cause))?;
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

    fn files(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    #[test]
    fn a_differing_file_keeps_everything_as_it_is() {
        let there = tempfile::tempdir().unwrap();
        let folder = there.path().join("made/for/it");
        assert_eq!(write(&folder, &files(&[("b.yaml", "1")]), false).unwrap(), [Written::New]);
        let changed = files(&[("a.yaml", "1"), ("b.yaml", "2")]);
        let error = write(&folder, &changed, false).unwrap_err().to_string();
        assert!(error.contains("b.yaml") && error.contains("--force"), "{error}");
        assert!(!folder.join("a.yaml").exists());
        assert_eq!(write(&folder, &changed, true).unwrap(), [Written::New, Written::Replaced]);
        assert_eq!(write(&folder, &changed, false).unwrap(), [Written::Unchanged; 2]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no draft is left behind");
    }

    #[test]
    fn what_cannot_be_written_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a.yaml")).unwrap();
        assert!(write(folder.path(), &files(&[("a.yaml", "1")]), true).is_err());
        assert!(replace(&folder.path().join("a.yaml"), b"1").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
