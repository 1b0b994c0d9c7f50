//! `audit`: shows the reviews in audit logs that match a filter, in order of time.

mod filter;
mod log;
mod record;

use std::{
    collections::{HashSet, VecDeque},
    io::{self, BufWriter, Write},
    num::NonZeroUsize,
    path::PathBuf,
};

use self::{
    filter::{Filter, ResourceName},
    log::{Log, ReadSummary},
    record::{HookCall, Record, paragraph},
};
use super::command::{CommandExit, complain, counted};

const EXAMPLES: &str = "\
Examples:
  gatepost audit --denied --since 1h --name shop/web-0
      Why it was denied within the last hour: the message, each hook that said no or failed, who asked.
  gatepost audit --failed --hook quota.example.com --since 2026-01-01T02:00:00Z --until 2026-01-01T03:00:00Z
      Each failed call of that hook in that hour, let through or not.
  gatepost audit a/audit.jsonl b/audit.jsonl --user system:serviceaccount:ci:deployer --limit 20
      The last 20 writes of that user, from the logs of two replicas.
  kubectl logs -n kube-system gatepost-0 | gatepost audit --denied -
      The records that went to stdout by --audit-log -.

Files:
  Each FILE is read with the files beside it that were rotated: FILE.1, FILE.2.gz, FILE-20260101 and the like, plain or
  gzip. Lines that are not records (half a line after a full disk, other text) are skipped and counted.
  The records of each log must be in order of time, to the minute.

Repeats:
  Where a client was rejected again and again for the same request and the same cause, one paragraph shows the first,
  how often that was, and when for the last time. --json prints each.

With --hook:
  --denied, --failed, --would-deny and --allowed then say how that hook's call ended, not the review.

Exit codes:
  0  done, whether or not anything was found
  1  a file could not be read, or not to its end; what could be was shown
  2  the command line is not understood";

/// Default file, as in the documentation of `serve`.
const DEFAULT_FILE: &str = "/var/log/gatepost/audit.jsonl";
/// Maximum size of the lines that `--limit` keeps, in bytes.
const MAX_LAST_BYTES: usize = 256 << 20;

/// Find reviews in the audit log: why was this denied an hour ago?
///
/// Shows one paragraph for each review that matches all filters, oldest first: when, what, by whom, the message that
/// the caller got, and each hook that denied it or failed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AuditCommand {
    /// Audit logs, rotated files included; - is stdin
    #[arg(default_value = DEFAULT_FILE)]
    file: Vec<PathBuf>,

    #[command(flatten)]
    filter: Filter,

    /// Show only the last NUMBER of reviews
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroUsize>,

    /// Print the lines as they are in the log
    #[arg(long)]
    json: bool,
}

impl AuditCommand {
    /// Reads the logs and prints the matching reviews.
    pub fn run(self) -> CommandExit {
        let filter = self.filter;
        let (mut summary, mut read) = (ReadSummary::default(), HashSet::new());
        let mut logs = Vec::new();
        for file in &self.file {
            match Log::open(file, &filter, &mut read, &mut summary) {
                Ok(log) => logs.push(log),
                Err(why) => summary.faults.push(why),
            }
        }
        let out = BufWriter::new(io::stdout().lock());
        let mut shown = RecordOutput { out, json: self.json, count: 0, printed: 0, repeats: Repeats::default() };
        let written = match self.limit {
            None => merge(logs, &filter, &mut summary, |line| shown.show(line)),
            Some(limit) => {
                let mut last = LastLines { limit: limit.get(), bytes: 0, lines: VecDeque::new(), dropped: false };
                let read = merge(logs, &filter, &mut summary, |line| {
                    last.push(line);
                    Ok(())
                });
                if last.dropped && last.lines.len() < last.limit {
                    complain(&format_args!("--limit {limit} is too much for lines this long: fewer are shown"));
                }
                read.and_then(|()| last.lines.iter().try_for_each(|line| shown.show(line)))
            }
        };
        match written.and_then(|()| shown.end()) {
            Ok(()) => {}
            // As with `| head`: the reader needs no more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return CommandExit::Good,
            Err(error) => return complain(&error),
        }
        if shown.count == 0 {
            let resource = filter.resource.as_ref().and_then(ResourceName::hint);
            let hint = resource.map(|hint| format!("; --resource: did you mean {hint}?")).unwrap_or_default();
            complain(&format_args!("nothing found; {}{hint}", summary.summary()));
        }
        if summary.skipped > 0 {
            complain(&format_args!("skipped, as no audit record: {}", counted(summary.skipped as usize, "line")));
        }
        summary.faults.iter().fold(CommandExit::Good, |_, fault| complain(fault))
    }
}

/// Passes the matching records of all logs to `show`, in order of time.
fn merge(
    logs: Vec<Log>,
    filter: &Filter,
    summary: &mut ReadSummary,
    mut show: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut logs: Vec<_> = logs.into_iter().filter_map(|mut log| log.advance(filter, summary).then_some(log)).collect();
    while let Some((at, log)) = logs.iter_mut().enumerate().min_by_key(|(_, log)| log.time) {
        show(log.line())?;
        if !log.advance(filter, summary) {
            logs.remove(at);
        }
    }
    Ok(())
}

/// Output of records, as JSON lines or as paragraphs.
struct RecordOutput<W> {
    out: W,
    json: bool,
    /// Number of records.
    count: usize,
    /// Number of paragraphs.
    printed: usize,
    repeats: Repeats,
}

impl<W: Write> RecordOutput<W> {
    fn show(&mut self, line: &[u8]) -> io::Result<()> {
        self.count += 1;
        if self.json {
            self.out.write_all(line)?;
            return self.out.write_all(b"\n");
        }
        // The filter passes only records.
        let Some(record) = Record::parse(line) else { return Ok(()) };
        self.repeats.push(line, &record);
        self.print(false)
    }

    /// Prints the reviews that are held back.
    fn end(&mut self) -> io::Result<()> {
        self.print(true)?;
        self.out.flush()
    }

    fn print(&mut self, is_end: bool) -> io::Result<()> {
        while let Some(RepeatedReview { line, times, last, .. }) = self.repeats.pop(is_end) {
            let Some(record) = Record::parse(&line) else { continue };
            if self.printed > 0 {
                self.out.write_all(b"\n")?;
            }
            self.printed += 1;
            let repeats = (times > 1).then_some((times, last));
            self.out.write_all(paragraph(&record, repeats).as_bytes())?;
        }
        Ok(())
    }
}

/// The last lines, limited in number and in bytes.
struct LastLines {
    limit: usize,
    bytes: usize,
    lines: VecDeque<Box<[u8]>>,
    /// Whether lines were dropped because of the limit in bytes.
    dropped: bool,
}

impl LastLines {
    fn push(&mut self, line: &[u8]) {
        self.bytes += line.len();
        self.lines.push_back(line.into());
        while self.lines.len() > self.limit || self.bytes > MAX_LAST_BYTES && self.lines.len() > 1 {
            self.dropped |= self.bytes > MAX_LAST_BYTES;
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

/// Maximum number of reviews that are held back.
const MAX_HELD_REVIEWS: usize = 512;
/// Maximum size of the lines that are held back, in bytes.
const MAX_HELD_BYTES: usize = 4 << 20;

/// Reviews that are held back to count their repeats, in order of the first occurrence.
#[derive(Debug, Default)]
struct Repeats {
    held: VecDeque<RepeatedReview>,
    bytes: usize,
}

/// A review and its repeats.
#[derive(Debug)]
struct RepeatedReview {
    /// Line of the first review.
    line: Box<[u8]>,
    /// Number of reviews, including the first.
    times: u64,
    /// Time of the last review, in microseconds since 1970.
    last: u64,
    key: Option<String>,
}

impl Repeats {
    /// Adds the next review.
    fn push(&mut self, line: &[u8], record: &Record<'_>) {
        let key = key(record);
        if let Some(known) = self.held.iter_mut().find(|held| key.is_some() && held.key == key) {
            known.times += 1;
            known.last = record.time_us;
            return;
        }
        self.bytes += line.len();
        self.held.push_back(RepeatedReview { line: line.into(), times: 1, last: record.time_us, key });
    }

    /// Returns the first review if it cannot repeat, if too many are held back, or at the end.
    fn pop(&mut self, is_end: bool) -> Option<RepeatedReview> {
        let may_repeat = self.held.front().is_some_and(|first| first.key.is_some());
        if !is_end && may_repeat && self.held.len() <= MAX_HELD_REVIEWS && self.bytes <= MAX_HELD_BYTES {
            return None;
        }
        let first = self.held.pop_front()?;
        self.bytes -= first.line.len();
        Some(first)
    }
}

/// Returns client, object and cause as a key; `None` if nothing went wrong, as such a review never counts as a repeat.
fn key(record: &Record<'_>) -> Option<String> {
    let wrong = |call: &&HookCall<'_>| call.is_denied() || call.is_failed() || call.would_reject();
    let call: Vec<_> = record.calls().filter(wrong).collect();
    if record.allowed && call.is_empty() {
        return None;
    }
    let of = [&record.operation, &record.group, &record.resource, &record.subresource, &record.namespace];
    let mut key: Vec<_> = of.map(AsRef::as_ref).to_vec();
    key.extend([&*record.name, &*record.user, if record.allowed { "allowed" } else { "rejected" }]);
    key.extend(record.reason.as_deref());
    for one in call {
        key.extend([&*one.hook, &*one.outcome, one.failure.as_deref().unwrap_or_default()]);
    }
    let mut key = key.join("\0");
    // Messages that differ only in a number, such as a time, have the same cause.
    let message = record.message.as_deref().unwrap_or_default();
    key.extend(message.chars().filter(|sign| !sign.is_ascii_digit()));
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[&str]) -> Vec<(u64, u64)> {
        let mut repeats = Repeats::default();
        for line in lines {
            repeats.push(line.as_bytes(), &Record::parse(line.as_bytes()).expect("a record"));
            assert!(repeats.pop(false).is_none());
        }
        std::iter::from_fn(|| repeats.pop(true)).map(|one| (one.times, one.last)).collect()
    }

    fn line(time: u64, user: &str, name: &str, hook: &str, message: &str) -> String {
        format!(
            r#"{{"time_us":{time},"uid":"u","user":"{user}","resource":"pods","name":"{name}","allowed":false,
            "message":"{message}","hooks":[{{"hook":"{hook}","outcome":"failed_closed","failure":"timeout"}}]}}"#
        )
    }

    #[test]
    fn audit_repeats_of_one_client_are_merged() {
        let first = line(1, "ann", "a", "h", "no answer within 250 ms");
        let repeat = line(9, "ann", "a", "h", "no answer within 1000 ms");
        let others = [
            line(2, "bob", "a", "h", "no answer within 250 ms"),
            line(3, "ann", "b", "h", "no answer within 250 ms"),
            line(4, "ann", "a", "i", "no answer within 250 ms"),
            line(5, "ann", "a", "h", "another reason"),
        ];
        let allowed = r#"{"time_us":6,"uid":"u","user":"ann","resource":"pods","name":"a","allowed":true}"#;
        let mut lines = vec![&*first];
        lines.extend(others.iter().map(String::as_str));
        lines.extend([allowed, allowed, &*repeat]);
        let apart = [(1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 6)];
        assert_eq!(shown(&lines), [&[(2, 9)], &apart[..]].concat());
    }

    #[test]
    fn audit_repeats_hold_back_a_bounded_number() {
        let mut repeats = Repeats::default();
        let mut popped = 0;
        for number in 0..2 * MAX_HELD_REVIEWS {
            let line = line(1, "ann", &format!("{:?}", "x".repeat(number)).replace('"', ""), "h", "m");
            repeats.push(line.as_bytes(), &Record::parse(line.as_bytes()).expect("a record"));
            popped += std::iter::from_fn(|| repeats.pop(false)).count();
        }
        assert_eq!((popped, repeats.held.len()), (MAX_HELD_REVIEWS, MAX_HELD_REVIEWS));
    }
}
