//! Rotated: the files of one audit log, that which is written and those that were moved aside, oldest first.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use super::{
    lines::{Found, Lines},
    record::Record,
};

/// Bytes read for a file's first record, and between two places where one is looked for.
const LOOKED_AT: u64 = 1 << 20;

/// One file of an audit log. It stays open, as a rotation may move it meanwhile.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    file: File,
    /// Device and number: by which a file is known under two names.
    pub(super) id: (u64, u64),
    /// Time of its first record; without one, of the last write.
    pub(super) begins: u64,
    gzip: bool,
}

impl Part {
    /// The regular file at `path`; `None` where it holds nothing.
    fn open(path: PathBuf) -> io::Result<Option<Self>> {
        let file = File::open(&path)?;
        let found = file.metadata()?;
        if found.len() == 0 {
            return Ok(None);
        }
        let mut magic = [0; 2];
        let gzip = (&file).read(&mut magic)? == 2 && magic == [0x1f, 0x8b];
        let written = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let mut part = Self { path, file, id: (found.dev(), found.ino()), begins: written.as_micros() as u64, gzip };
        if let Some(first) = part.first()? {
            part.begins = first;
        }
        Ok(Some(part))
    }

    /// Time of the first record near the beginning.
    fn first(&self) -> io::Result<Option<u64>> {
        (&self.file).rewind()?;
        let (mut lines, mut left) = (Lines::of(self.file.try_clone()?)?, LOOKED_AT);
        // A broken line here is reported when it is read.
        while let Ok(Found::Line(line, _)) = lines.next() {
            if let Some(record) = Record::parse(line) {
                return Ok(Some(record.time()));
            }
            left = left.saturating_sub(line.len() as u64 + 1);
            if left == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Its lines; without many of those that were written before `since`, where they can be skipped.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn lines(self, since: u64) -> io::Result<Lines> {
        let at = if self.gzip { 0 } else { self.seek(since)? };
        (&self.file).seek(SeekFrom::Start(at))?;
        if at > 0 {
            // The place is somewhere in a line. Byte by byte, as what was read ahead would be lost.
            let mut rest = BufReader::with_capacity(1 << 10, &self.file);
            let skipped = rest.skip_until(b'\n')? as u64;
            (&self.file).seek(SeekFrom::Start(at + skipped))?;
        }
        Lines::of(self.file)
    }

    /// A place before which no record is as late as `since`: found by halving, as a file is in order of time.
    fn seek(&self, since: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.file.metadata()?.len());
        while high - low > LOOKED_AT {
            let middle = low + (high - low) / 2;
            match self.time_after(middle, high)? {
                Some(time) if time < since => low = middle,
                Some(_) => high = middle,
                None => break,
            }
        }
        Ok(low)
    }

    /// Time of the first whole record behind that place, if there is one before `end` and not far away.
    fn time_after(&self, place: u64, end: u64) -> io::Result<Option<u64>> {
        (&self.file).seek(SeekFrom::Start(place))?;
        let mut reader = BufReader::new((&self.file).take((end - place).min(LOOKED_AT)));
        reader.skip_until(b'\n')?;
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some(record) = Record::parse(&line) {
                return Ok(Some(record.time()));
            }
            line.clear();
        }
        Ok(None)
    }
}

/// The files of the log at `path`, oldest first, and what could not be opened of them.
///
/// # Errors
/// A sentence: there is nothing at all, or it is a folder.
pub(super) fn parts(path: &Path) -> Result<(Vec<Part>, Vec<String>), String> {
    let shown = path.display();
    let mut names = siblings(path);
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(format!("{shown} is a folder: name the audit log in it")),
        Ok(_) => names.push(path.to_owned()),
        // Between a rotation and the signal after it there may be none.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !names.is_empty() => {}
        Err(error) => return Err(format!("cannot read {shown}: {error}; {}", fix(&error))),
    }
    let (mut parts, mut faults) = (Vec::new(), Vec::new());
    for name in names {
        let shown = name.display().to_string();
        match Part::open(name) {
            Ok(part) => parts.extend(part),
            // It was moved on while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => faults.push(format!("cannot read {shown}: {error}; {}", fix(&error))),
        }
    }
    parts.sort_by_key(|part| part.begins);
    Ok((parts, faults))
}

/// A way to have it read.
fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as the user that serve runs as, or as root: its mode is 0600",
        io::ErrorKind::NotFound => "give the path that serve has as --audit-log",
        _ => "check the file and its disk; what the other files hold is shown",
    }
}

/// Rotated files beside that one. Of a file that is just being compressed there are two: the plain one is whole.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let Some(base) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_one = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| is_rotated(base, name));
    let found = entries.flatten().filter(|entry| is_one(entry) && entry.path().is_file());
    let is_alone = |file: &PathBuf| {
        let plain = file.with_extension("");
        file.extension().is_none_or(|ext| ext != "gz") || plain == *path || !plain.exists()
    };
    found.map(|entry| folder.join(entry.file_name())).filter(is_alone).collect()
}

/// Is that the name of a file that once had the name `base`? As logrotate names them: `base.1`, `base.2.gz`,
/// `base-20260101`, and with its `extension`, `audit-20260101.jsonl.gz` for `audit.jsonl`.
fn is_rotated(base: &str, name: &str) -> bool {
    const COMPRESSED: [&str; 4] = [".gz", ".xz", ".zst", ".bz2"];
    let plain = COMPRESSED.iter().find_map(|ending| name.strip_suffix(ending));
    let name = plain.unwrap_or(name);
    let mark = |mark: &str| {
        let digits = mark.bytes().filter(u8::is_ascii_digit).count();
        let is_number = mark.strip_prefix('.').is_some_and(|number| number.len() == digits);
        let is_date = mark.starts_with(['-', '.', '_'])
            && mark.bytes().all(|byte| byte.is_ascii_digit() || b"-._:TZ".contains(&byte))
            && digits >= 6;
        digits > 0 && (is_number || is_date)
    };
    let kept = || {
        let (stem, extension) = base.rsplit_once('.')?;
        name.strip_prefix(stem)?.strip_suffix(extension)?.strip_suffix('.')
    };
    match name.strip_prefix(base) {
        Some("") => plain.is_some(),
        Some(end) => mark(end),
        None => kept().is_some_and(mark),
    }
}

#[cfg(test)]
#[path = "rotated/tests.rs"]
mod tests;
