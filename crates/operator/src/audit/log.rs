//! Log: the records of one audit log, from the current file and the rotated ones, oldest first, in bounded memory.

use std::{
    collections::{HashSet, VecDeque},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use flate2::bufread::MultiGzDecoder;

use super::{
    counted,
    filter::Filter,
    record::{Record, is_adoption, time},
};

/// Maximum number of bytes read in search of a record, and the precision of the search by time, in bytes.
const PROBE_BYTES: u64 = 1 << 20;

/// One file of an audit log. It stays open, as a rotation may move it.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    file: File,
    /// Device and inode, which identify a file that has two names.
    pub(super) id: (u64, u64),
    /// Time of the first record or, without a record, of the last write.
    pub(super) begins: u64,
    gzip: bool,
}

impl LogFile {
    /// Opens the regular file at `path`; `None` if it is empty.
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

    /// Returns the time of the first record, if it is near the beginning.
    fn first(&self) -> io::Result<Option<u64>> {
        (&self.file).rewind()?;
        let (mut lines, mut read) = (Lines::of(self.file.try_clone()?)?, 0);
        // Errors are reported by the later read of the file.
        while read < PROBE_BYTES
            && let Ok(LineRead::Line(line, _)) = lines.next()
        {
            if let Some(record) = Record::parse(line) {
                return Ok(Some(record.time_us));
            }
            read += line.len() as u64 + 1;
        }
        Ok(None)
    }

    /// Returns the lines. Skips most lines before `since`, if the file is not compressed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn lines(self, since: u64) -> io::Result<Lines> {
        let at = if self.gzip { 0 } else { self.seek(since)? };
        (&self.file).seek(SeekFrom::Start(at))?;
        if at > 0 {
            // The position is within a line: skip to the next line, and seek back over what was read ahead.
            let mut rest = BufReader::with_capacity(1 << 10, &self.file);
            let skipped = rest.skip_until(b'\n')? as u64;
            (&self.file).seek(SeekFrom::Start(at + skipped))?;
        }
        Lines::of(self.file)
    }

    /// Returns a position before which all records are earlier than `since`, by binary search.
    fn seek(&self, since: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.file.metadata()?.len());
        while high - low > PROBE_BYTES {
            let middle = low + (high - low) / 2;
            match self.time_after(middle, high)? {
                Some(time) if time < since => low = middle,
                Some(_) => high = middle,
                None => break,
            }
        }
        Ok(low)
    }

    /// Returns the time of the first whole record after `place`, if it is before `end` and within [`PROBE_BYTES`].
    fn time_after(&self, place: u64, end: u64) -> io::Result<Option<u64>> {
        (&self.file).seek(SeekFrom::Start(place))?;
        let mut reader = BufReader::new((&self.file).take((end - place).min(PROBE_BYTES)));
        reader.skip_until(b'\n')?;
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some(record) = Record::parse(&line) {
                return Ok(Some(record.time_us));
            }
            line.clear();
        }
        Ok(None)
    }
}

/// Returns the files of the log at `path`, oldest first, and messages about those that could not be opened.
///
/// # Errors
/// A message, if there is no file or the path is a folder.
pub(super) fn parts(path: &Path) -> Result<(Vec<LogFile>, Vec<String>), String> {
    let shown = path.display();
    let mut names = siblings(path);
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(format!("{shown} is a folder: name the audit log in it")),
        Ok(_) => names.push(path.to_owned()),
        // Between a rotation and the signal after it, the current file might not exist.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !names.is_empty() => {}
        Err(error) => return Err(format!("cannot read {shown}: {error}; {}", fix(&error))),
    }
    let (mut parts, mut faults) = (Vec::new(), Vec::new());
    for name in names {
        let shown = name.display().to_string();
        match LogFile::open(name) {
            Ok(part) => parts.extend(part),
            // The file was rotated meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => faults.push(format!("cannot read {shown}: {error}; {}", fix(&error))),
        }
    }
    parts.sort_by_key(|part| part.begins);
    Ok((parts, faults))
}

/// Returns advice for this error.
fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as the user that serve runs as, or as root: its mode is 0600",
        io::ErrorKind::NotFound => "give the path that serve has as --audit-log",
        _ => "check the file and its disk; what the other files hold is shown",
    }
}

/// Returns the rotated files beside `path`. Skips a compressed file whose plain one still exists, as it may be partial.
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

/// Returns true if `name` is that of a rotated file of `base`. As logrotate names them: `base.1`, `base.2.gz`,
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

/// Maximum length of a line, in bytes: the names in a review may be as long as its caller likes, but no longer than a
/// review.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Other compressions, by their magic bytes and the program that decompresses them.
const OTHER_COMPRESSIONS: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xz -dc"), (b"\x28\xb5\x2f\xfd", "zstd -dc"), (b"BZh", "bzip2 -dc")];

/// Lines of one file.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    /// The last line read, without its line break.
    line: Vec<u8>,
}

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineRead<'a> {
    /// A line, and whether it ends with a line break.
    Line(&'a [u8], bool),
    /// A line longer than [`MAX_LINE_BYTES`].
    TooLong,
    /// The end of the file.
    End,
}

impl Lines {
    /// Returns the lines of `raw`, decompressed if it is gzip, whatever its name.
    ///
    /// # Errors
    /// `raw` cannot be read, or has another compression.
    pub(super) fn of(raw: impl Read + 'static) -> io::Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
        let begins = raw.fill_buf()?;
        if let Some((_, program)) = OTHER_COMPRESSIONS.iter().find(|(magic, _)| begins.starts_with(magic)) {
            let how = format!("it is compressed, and not by gzip: unpack it, `{program} FILE | gatepost audit -`");
            return Err(io::Error::new(io::ErrorKind::Unsupported, how));
        }
        let reader: Box<dyn BufRead> = match begins.starts_with(b"\x1f\x8b") {
            true => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw))),
            false => Box::new(raw),
        };
        Ok(Self { reader, line: Vec::new() })
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// The file cannot be read, or its gzip data ends prematurely.
    pub(super) fn next(&mut self) -> io::Result<LineRead<'_>> {
        self.line.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(LineRead::End);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            return Ok(LineRead::Line(&self.line, true));
        }
        if read as u64 == most {
            self.line = Vec::new();
            self.reader.skip_until(b'\n')?;
            return Ok(LineRead::TooLong);
        }
        Ok(LineRead::Line(&self.line, false))
    }
}

/// Maximum time by which a record may be later than the next one, in microseconds: workers write concurrently, and
/// clocks are set.
const MAX_DISORDER: u64 = 60_000_000;

/// Summary of the records and files that were read, to explain an empty result.
#[derive(Debug, Default)]
pub(super) struct ReadSummary {
    /// Number of records that were read, matching or not.
    pub(super) records: u64,
    /// Number of lines that are not records.
    pub(super) skipped: u64,
    /// Times of the earliest and the latest record.
    pub(super) times: Option<(u64, u64)>,
    /// Messages about files that could not be read, or not to their end.
    pub(super) faults: Vec<String>,
}

impl ReadSummary {
    fn record(&mut self, time: u64) {
        self.records += 1;
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }

    /// Formats the summary in one line.
    pub(super) fn summary(&self) -> String {
        let of = self.times.map(|(first, last)| format!(", from {} to {}", time(first), time(last)));
        let of = of.unwrap_or_default();
        format!("read: {}{of}", counted(self.records as usize, "review"))
    }
}

/// One audit log that is being read: a file with its rotated ones, oldest first, or a stream.
pub(super) struct Log {
    parts: VecDeque<LogFile>,
    reading: Option<(String, Lines)>,
    /// Time of the record whose line is [`Log::line`].
    pub(super) time: u64,
}

impl Log {
    /// Opens the log at `path`; `-` is standard input. Skips files in `read`, and adds the others to it.
    ///
    /// # Errors
    /// A message with the reason.
    pub(super) fn open(
        path: &Path,
        filter: &Filter,
        read: &mut HashSet<(u64, u64)>,
        summary: &mut ReadSummary,
    ) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let stream =
            |lines| Self { parts: VecDeque::new(), reading: Some((path.display().to_string(), lines)), time: 0 };
        if path == Path::new("-") {
            return Lines::of(io::stdin()).map(stream).map_err(cannot);
        }
        if path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return File::open(path).and_then(Lines::of).map(stream).map_err(cannot);
        }
        let (parts, faults) = parts(path)?;
        summary.faults.extend(faults);
        let mut parts: VecDeque<_> = parts.into_iter().filter(|part| read.insert(part.id)).collect();
        // Files that end before the requested time range, or begin after it, are not read.
        let since = filter.since.unwrap_or_default();
        while parts.get(1).is_some_and(|next| next.begins.saturating_add(MAX_DISORDER) < since) {
            parts.pop_front();
        }
        if let Some(until) = filter.until {
            parts.retain(|part| part.begins <= until.saturating_add(MAX_DISORDER));
        }
        Ok(Self { parts, reading: None, time: 0 })
    }

    /// Returns the line of the last record read.
    pub(super) fn line(&self) -> &[u8] {
        self.reading.as_ref().map_or(&[], |(_, lines)| &lines.line)
    }

    /// Reads up to the next matching record. Returns false at the end.
    pub(super) fn advance(&mut self, filter: &Filter, summary: &mut ReadSummary) -> bool {
        loop {
            let Some((_, lines)) = &mut self.reading else {
                match self.parts.pop_front() {
                    Some(part) => self.begin(part, filter, summary),
                    None => return false,
                }
                continue;
            };
            match lines.next() {
                Ok(LineRead::Line(line, whole)) => match Record::parse(line) {
                    Some(record) => {
                        summary.record(record.time_us);
                        if filter.matches(&record) {
                            self.time = record.time_us;
                            return true;
                        }
                        if filter.until.is_some_and(|until| record.time_us > until.saturating_add(MAX_DISORDER)) {
                            self.reading = None;
                        }
                    }
                    None if is_adoption(line) => {}
                    // The last line may be incomplete.
                    None => summary.skipped += u64::from(whole && !line.is_empty()),
                },
                Ok(LineRead::TooLong) => summary.skipped += 1,
                Ok(LineRead::End) => self.reading = None,
                Err(error) => {
                    if let Some((name, _)) = self.reading.take() {
                        summary.faults.push(format!("{name} cannot be read to its end: {error}"));
                    }
                }
            }
        }
    }

    fn begin(&mut self, part: LogFile, filter: &Filter, summary: &mut ReadSummary) {
        let name = part.path.display().to_string();
        match part.lines(filter.since.unwrap_or_default().saturating_sub(MAX_DISORDER)) {
            Ok(lines) => self.reading = Some((name, lines)),
            Err(error) => summary.faults.push(format!("cannot read {name}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
