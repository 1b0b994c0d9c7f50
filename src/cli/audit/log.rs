//! Log: the records of one audit log that are asked for, one after the other.

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    io,
    path::Path,
};

use super::{
    counted,
    filter::Filter,
    lines::{Found, Lines},
    record::{self, Record},
    rotated::{self, Part},
    show,
};

/// Longest time by which a record may be later than one behind it, in microseconds: workers write at once, and clocks
/// are set.
const DISORDER: u64 = 60_000_000;

/// Records and files met on the way, to explain an empty result.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// Records that were read, of whatever review.
    pub(super) records: u64,
    /// Lines that are no record.
    pub(super) rubbish: u64,
    /// Times of the first and the last of the records.
    pub(super) times: Option<(u64, u64)>,
    /// Files that could not be read, or not to their end: a sentence each.
    pub(super) faults: Vec<String>,
}

impl Met {
    fn record(&mut self, time: u64) {
        self.records += 1;
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }

    /// In one line.
    pub(super) fn summary(&self) -> String {
        let of = match self.times {
            Some((first, last)) => format!(", from {} to {}", show::time(first), show::time(last)),
            None => String::new(),
        };
        format!("read: {}{of}", counted(self.records as usize, "review"))
    }
}

/// One audit log that is being read: a file with those that were rotated, oldest first, or a stream.
pub(super) struct Log {
    parts: VecDeque<Part>,
    reading: Option<(String, Lines)>,
    /// Time of the record whose line is [`Log::line`].
    time: u64,
}

impl Log {
    /// The log at `path`; `-` is standard input. Files in `read` are left out, and those that are not join it.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn open(
        path: &Path,
        filter: &Filter,
        read: &mut HashSet<(u64, u64)>,
        met: &mut Met,
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
        let (parts, faults) = rotated::parts(path)?;
        met.faults.extend(faults);
        let mut parts: VecDeque<_> = parts.into_iter().filter(|part| read.insert(part.id)).collect();
        // A file that ends before the time that is asked for, or begins after it, need not be read.
        while parts.get(1).is_some_and(|next| next.begins.saturating_add(DISORDER) < filter.since) {
            parts.pop_front();
        }
        if let Some(until) = filter.until {
            parts.retain(|part| part.begins <= until.saturating_add(DISORDER));
        }
        Ok(Self { parts, reading: None, time: 0 })
    }

    /// Time of the record that was read last.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    /// Its line.
    pub(super) fn line(&self) -> &[u8] {
        self.reading.as_ref().map_or(&[], |(_, lines)| lines.last())
    }

    /// Reads on to the next record that is asked for; false at the end.
    pub(super) fn advance(&mut self, filter: &Filter, met: &mut Met) -> bool {
        loop {
            let Some((_, lines)) = &mut self.reading else {
                match self.parts.pop_front() {
                    Some(part) => self.begin(part, filter, met),
                    None => return false,
                }
                continue;
            };
            match lines.next() {
                Ok(Found::Line(line, whole)) => match Record::parse(line) {
                    Some(record) => {
                        met.record(record.time());
                        if filter.takes(&record) {
                            self.time = record.time();
                            return true;
                        }
                        if filter.until.is_some_and(|until| record.time() > until.saturating_add(DISORDER)) {
                            self.reading = None;
                        }
                    }
                    None if record::is_adoption(line) => {}
                    // The last line may still be written.
                    None => met.rubbish += u64::from(whole && !line.is_empty()),
                },
                Ok(Found::TooLong) => met.rubbish += 1,
                Ok(Found::End) => self.reading = None,
                Err(error) => {
                    if let Some((name, _)) = self.reading.take() {
                        met.faults.push(format!("{name} cannot be read to its end: {error}"));
                    }
                }
            }
        }
    }

    fn begin(&mut self, part: Part, filter: &Filter, met: &mut Met) {
        let name = part.path.display().to_string();
        match part.lines(filter.since.saturating_sub(DISORDER)) {
            Ok(lines) => self.reading = Some((name, lines)),
            Err(error) => met.faults.push(format!("cannot read {name}: {error}")),
        }
    }
}
