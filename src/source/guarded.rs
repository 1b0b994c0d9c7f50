//! Read of a file that only root, or the user that we run as, can have written.

use std::{io, os::unix::fs::MetadataExt, path::Path};

use bytes::Bytes;

use gatepost_base::files;

/// Maximum size in bytes. No break-glass document is this large.
const LIMIT: u64 = 64 << 10;

/// Reason why a file is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {cause}; let the user that gatepost runs as read it")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        cause: String,
    },
    /// The path is no regular file, or the file is too large.
    #[error("{0} is not a regular file of at most {LIMIT} bytes; write the document there, or remove it")]
    NotAFile(String),
    /// Another user owns the file, and might have written it.
    #[error("{path} belongs to user {owner}, who is neither root nor the user that gatepost runs as: chown it")]
    Owner {
        /// Path of the file.
        path: String,
        /// Uid of the owner.
        owner: u32,
    },
    /// Other users can write the file.
    #[error("{path} has mode {mode:04o}, so that others may write it: chmod go-w it")]
    Writable {
        /// Path of the file.
        path: String,
        /// Permission bits of the file.
        mode: u32,
    },
}

/// Returns the content of the file at `path`; `None` if it does not exist. Its owner must be root or the user with uid
/// `us`, and no other user may have write permission. The checks are on the opened file, which nobody can replace.
///
/// # Errors
/// [`GuardError`]; the file is not used.
pub fn read(path: &Path, us: u32) -> Result<Option<Bytes>, GuardError> {
    let shown = || path.display().to_string();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory | io::ErrorKind::FileTooLarge => {
            GuardError::NotAFile(shown())
        }
        _ => GuardError::Unreadable { path: shown(), cause: error.to_string() },
    };
    let (file, opened) = match files::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if opened.uid() != 0 && opened.uid() != us {
        return Err(GuardError::Owner { path: shown(), owner: opened.uid() });
    }
    let mode = opened.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(GuardError::Writable { path: shown(), mode });
    }
    let bytes = files::read_opened(file, opened.len(), LIMIT).map_err(failed)?;
    Ok(Some(bytes.into()))
}

/// Returns the effective uid of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn only_what_nobody_else_can_have_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("break-glass.yaml");
        let us = effective_user();
        assert_eq!(read(&path, us), Ok(None));
        fs::write(&path, "kind: x").unwrap();
        for (mode, heeded) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match read(&path, us) {
                Ok(bytes) => assert!(heeded && bytes.is_some(), "{mode:o}"),
                Err(error) => assert!(!heeded && matches!(error, GuardError::Writable { .. }), "{mode:o}: {error}"),
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let somebody_else = us + 1;
        match read(&path, somebody_else) {
            // Root's files are heeded whoever we are.
            Ok(read) => assert!(us == 0 && read.is_some()),
            Err(error) => assert_eq!(error, GuardError::Owner { path: path.display().to_string(), owner: us }),
        }
    }

    /// Needs the right to give files away, which only root has.
    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("break-glass.yaml");
        fs::write(&path, "kind: x").unwrap();
        let owner = fs::metadata(&path).unwrap().uid();
        if owner == 0 {
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
        }
        let owner = fs::metadata(&path).unwrap().uid();
        assert_eq!(read(&path, owner + 1), Err(GuardError::Owner { path: path.display().to_string(), owner }));
    }

    /// An unreadable path may well be there.
    #[test]
    fn only_a_file_that_is_not_there_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let (file, ring) = (folder.path().join("file"), folder.path().join("ring"));
        fs::write(&file, "kind: x").unwrap();
        std::os::unix::fs::symlink(&ring, &ring).unwrap();
        for path in [file.join("below-a-file.yaml"), ring] {
            assert!(matches!(read(&path, effective_user()), Err(GuardError::Unreadable { .. })), "{}", path.display());
        }
    }

    #[test]
    fn guarded_read_refuses_large_and_special_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path(), effective_user()), Err(GuardError::NotAFile(_))));
        let large = folder.path().join("large");
        fs::write(&large, vec![b' '; LIMIT as usize + 1]).unwrap();
        assert!(matches!(read(&large, effective_user()), Err(GuardError::NotAFile(_))));
    }
}
