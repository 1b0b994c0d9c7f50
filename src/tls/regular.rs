//! Regular: what a file holds, where it is a file.

use std::{fs, io, path::Path};

/// What the file at `path` holds. A pipe by the name of a file would keep us waiting, and has nothing to give to whoever
/// reads it again.
///
/// # Errors
/// Why it cannot be read; `InvalidInput` where it is no regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)? {
        there if there.is_file() => fs::read(path),
        there if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a pipe or a device; name a file, which is read again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "held").unwrap();
        assert_eq!(read(&path).unwrap(), b"held");
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&folder.path().join("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(Path::new("/dev/null")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
