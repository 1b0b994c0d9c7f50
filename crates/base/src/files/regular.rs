//! Regular file: opened without waiting, checked by its descriptor, read up to a limit.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// A pipe is opened although nobody writes to it, and gives nothing instead of keeping its reader; no terminal becomes
/// ours.
const NO_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);
/// Room that is made for what a file is said to hold before any of it has come.
const AHEAD: u64 = 1 << 20;

/// The regular file at `path` and the metadata of its open descriptor. The path is checked first, as the opening of
/// some devices is a deed; but another file may take its place meanwhile, so that only the descriptor counts.
///
/// # Errors
/// Error of the system; `InvalidInput` where it is no regular file, `IsADirectory` where it is a folder.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    check(&fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(NO_WAIT.bits() as i32).open(path)?;
    let opened = file.metadata()?;
    check(&opened)?;
    Ok((file, opened))
}

/// Contents of the file at `path`, at most `limit` bytes of it.
///
/// # Errors
/// As [`open`]; `FileTooLarge` beyond the limit; `WouldBlock` where a file of the system itself would have us wait.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, opened) = open(path)?;
    read_opened(file, opened.len(), limit)
}

/// Contents of an open file of that length, at most `limit` bytes of it. It may have grown, and files of the system
/// itself hold more than they say.
///
/// # Errors
/// As [`read`].
pub fn read_opened(file: File, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes"));
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(length.min(AHEAD) as usize);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

fn check(what: &Metadata) -> io::Result<()> {
    match what {
        file if file.is_file() => Ok(()),
        folder if folder.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file but a pipe or a device; name a file, which is read again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        process::Command,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "held").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"held");
        assert_eq!(read(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(folder.path(), 4).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("absent"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(Path::new("/dev/null"), 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_that_says_it_is_empty_is_read_to_the_limit_and_no_further() {
        let content = read(Path::new("/proc/self/status"), 1 << 20).unwrap();
        assert!(content.starts_with(b"Name:"), "its length is said to be 0");
        assert_eq!(read(Path::new("/proc/self/status"), 16).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    /// The check by name sees the file, the opening meets the pipe: without the check by descriptor and the flag,
    /// sooner or later one read waits for a writer who never comes.
    #[test]
    fn a_pipe_that_is_swapped_in_between_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let [path, file, pipe] = ["path", "file", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "held").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(&file, &path).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (stop, link) = (Arc::clone(&done), path.clone());
        let swapping = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for target in [&pipe, &file] {
                    let new = link.with_extension("new");
                    symlink(target, &new).unwrap();
                    fs::rename(&new, &link).unwrap();
                }
            }
        });
        let (mut held, mut refused) = (0, 0);
        while held < 200 || refused < 200 {
            match read(&path, 4) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"held");
                    held += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
                    refused += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
    }
}
