//! Break-glass loop: checks the clocks and the local file at a regular interval, independently of the source.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::{self, MissedTickBehavior};

use super::READ_TIMEOUT;
use crate::live::break_glass::{BreakGlassDocuments, BreakGlassOrigin, ConfirmedDocuments};
use gatepost_api::BreakGlass;
use gatepost_base::{
    clock::now,
    files::{self, BlockingReads},
};
use gatepost_config::SourceFile;

/// Valid documents of the file, and the first problem.
type FileRead = (Vec<BreakGlass>, Option<String>);

/// Keeps the open documents current until dropped. `file` is the path of `--break-glass-file`.
pub async fn run_break_glass(break_glasses: Arc<BreakGlassDocuments>, file: Option<PathBuf>, every: Duration) {
    let (reads, mut confirmed) = (BlockingReads::default(), ConfirmedDocuments::default());
    let mut ticks = time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if let Some(path) = file.clone() {
            match reads.run(READ_TIMEOUT, move || read(&path)).await {
                Ok((documents, problem)) => apply_file(&break_glasses, (confirmed.apply(documents), problem)),
                // Documents that were read before stay open until their own end.
                Err(failure) => break_glasses.set_file_problem(Some(failure.to_string())),
            }
        }
        break_glasses.tick(now(), SystemTime::now());
    }
}

/// Reads the file once, at the start, and applies its documents. Blocks.
pub fn read_at_start(break_glasses: &BreakGlassDocuments, file: &Path) {
    apply_file(break_glasses, read(file));
}

fn apply_file(break_glasses: &BreakGlassDocuments, (documents, problem): FileRead) {
    break_glasses.set_file_problem(problem);
    break_glasses.set_documents(BreakGlassOrigin::File, documents, now(), SystemTime::now());
}

/// Reads the file. A file that another user may have written has no effect.
fn read(path: &Path) -> FileRead {
    let bytes = match read_guarded(path, effective_user()) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return (Vec::new(), None),
        Err(why) => return (Vec::new(), Some(why)),
    };
    let files = [SourceFile { name: path.display().to_string(), bytes }];
    let documents = gatepost_config::break_glass(&files);
    let no_file = |_: &str| Err(io::ErrorKind::NotFound.into());
    let problem =
        gatepost_config::load(&files, &no_file).err().and_then(|problems| Some(problems.first()?.to_string()));
    let empty = || Some(format!("{} holds no BreakGlass document", path.display()));
    let problem = problem.or_else(|| if documents.is_empty() { empty() } else { None });
    (documents, problem)
}

/// Maximum size in bytes. No break-glass document is this large.
const LIMIT: u64 = 64 << 10;

/// Returns the content of the file at `path`; `None` if it does not exist. Its owner must be root or the user with uid
/// `us`, and no other user may have write permission. The checks are on the opened file, which nobody can replace.
///
/// # Errors
/// Returns the reason why the file is not used, with advice.
fn read_guarded(path: &Path, us: u32) -> Result<Option<Bytes>, String> {
    let shown = path.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory | io::ErrorKind::FileTooLarge => {
            format!("{shown} is not a regular file of at most {LIMIT} bytes; write the document there, or remove it")
        }
        _ => format!("{shown} cannot be read: {error}; let the user that gatepost runs as read it"),
    };
    let (file, opened) = match files::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let owner = opened.uid();
    if owner != 0 && owner != us {
        return Err(format!(
            "{shown} belongs to user {owner}, who is neither root nor the user that gatepost runs as: chown it"
        ));
    }
    let mode = opened.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("{shown} has mode {mode:04o}, so that others may write it: chmod go-w it"));
    }
    let bytes = files::read_opened(file, opened.len(), LIMIT).map_err(failed)?;
    Ok(Some(bytes.into()))
}

/// Returns the effective uid of this process.
pub(super) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn file_that_others_can_write_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("break-glass.yaml");
        let us = effective_user();
        assert_eq!(read_guarded(&path, us), Ok(None));
        fs::write(&path, "kind: x").unwrap();
        for (mode, heeded) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match read_guarded(&path, us) {
                Ok(bytes) => assert!(heeded && bytes.is_some(), "{mode:o}"),
                Err(error) => assert!(!heeded && error.contains("so that others may write it"), "{mode:o}: {error}"),
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let somebody_else = us + 1;
        match read_guarded(&path, somebody_else) {
            // Root's files are heeded whoever we are.
            Ok(read) => assert!(us == 0 && read.is_some()),
            Err(error) => assert!(error.contains(&format!("belongs to user {us},")), "{error}"),
        }
    }

    /// Needs the right to give files away, which only root has.
    #[test]
    fn file_of_another_user_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("break-glass.yaml");
        fs::write(&path, "kind: x").unwrap();
        let owner = fs::metadata(&path).unwrap().uid();
        if owner == 0 {
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
        }
        let owner = fs::metadata(&path).unwrap().uid();
        let error = read_guarded(&path, owner + 1).unwrap_err();
        assert!(error.contains(&format!("belongs to user {owner},")), "{error}");
    }

    /// An unreadable path may well be there.
    #[test]
    fn only_a_file_that_is_not_there_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let (file, ring) = (folder.path().join("file"), folder.path().join("ring"));
        fs::write(&file, "kind: x").unwrap();
        std::os::unix::fs::symlink(&ring, &ring).unwrap();
        for path in [file.join("below-a-file.yaml"), ring] {
            let error = read_guarded(&path, effective_user()).unwrap_err();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    #[test]
    fn guarded_read_refuses_large_and_special_files() {
        let folder = tempfile::tempdir().unwrap();
        let is_refused = |path: &Path| {
            let error = read_guarded(path, effective_user()).unwrap_err();
            error.contains("is not a regular file of at most")
        };
        assert!(is_refused(folder.path()));
        let large = folder.path().join("large");
        fs::write(&large, vec![b' '; LIMIT as usize + 1]).unwrap();
        assert!(is_refused(&large));
    }
}
