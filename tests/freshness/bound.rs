//! The bound: check of the writer's log and the audit logs together. Pure.
//!
//! A change counts from when its writer knew that it was stored. A verdict that began more than [`BOUND`] later must
//! not rest on an earlier state. The configuration it rests on shows twice: by the revision in the record, and by the
//! name of the hook that was asked, which each change gives a new one. The older of the two counts. The annotations of
//! the answer must equal the record.

use std::{collections::HashMap, fmt, time::Duration};

use crate::records::{Basis, Record};

/// A verdict may rest on what was replaced so long ago, and no longer.
pub(crate) const BOUND: Duration = Duration::from_secs(5);
/// Bound promised while reads succeed: the second between two reads, and the longest a read may take.
pub(crate) const PROMISED: Duration = Duration::from_millis(1800);
/// Longest delay of a stop signal, by which the last read of a stopped etcd may have begun later.
const SIGNAL: u64 = 50_000;

/// One change of the configuration. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The store's revision with it.
    pub(crate) revision: u64,
    /// Time at which the writer knew that.
    pub(crate) known: u64,
    /// It was written more than once, as the writer could not know: an earlier try may have been stored, too.
    pub(crate) again: bool,
}

/// Findings of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Verdicts that rest on a configuration.
    pub(crate) verdicts: usize,
    /// Of those, the ones that rest on what had been replaced more than [`BOUND`] before.
    pub(crate) older: usize,
    /// … more than [`PROMISED`] before.
    pub(crate) late: usize,
    /// Verdicts whose revision and hook do not belong together.
    pub(crate) lies: usize,
    /// Reviews refused since the configuration was too old.
    pub(crate) refused: usize,
    /// Verdicts reached while etcd had been stopped for longer than [`BOUND`].
    pub(crate) unread: usize,
    /// Reviews refused meanwhile; `None` where etcd was not stopped.
    pub(crate) stopped: Option<usize>,
    /// Changes that are in force in some sidecar at no time, those that were overtaken by newer ones aside.
    pub(crate) missed: usize,
    /// Times from a change being known to its writer to the first verdict of a sidecar that rests on it or a newer one,
    /// in microseconds.
    pub(crate) adoptions: Vec<u64>,
    /// Audit lines that are missing, or answers without their revision.
    pub(crate) lost: usize,
    /// Answers that name another revision than their audit line.
    pub(crate) otherwise: usize,
}

/// Judges every verdict. `changes` in their order; `stopped`: when etcd was stopped and went on.
pub(crate) fn judge(changes: &[Change], records: &[Record], sidecars: usize, stopped: Option<(u64, u64)>) -> Findings {
    let bound = BOUND.as_micros() as u64;
    let unread = stopped.map(|(from, to)| (from + bound + SIGNAL, to));
    let mut found = Findings { stopped: stopped.map(|_| 0), ..Findings::default() };
    for record in records {
        let discarded = unread.is_some_and(|(from, to)| record.began > from && record.ended < to);
        let Basis::Used { revision, change } = record.basis else {
            found.refused += 1;
            found.stopped = found.stopped.map(|refused| refused + usize::from(discarded));
            continue;
        };
        found.verdicts += 1;
        found.unread += usize::from(discarded);
        let newest_known = newest(changes, |known| known.revision <= revision);
        found.lies += usize::from(!belong(changes, newest_known, change));
        let used = newest_known.map_or(0, |newest| newest.min(change));
        let outlived = |by: Duration| {
            let before = record.began.saturating_sub(by.as_micros() as u64);
            newest(changes, |change| change.known < before).is_some_and(|due| used < due)
        };
        found.older += usize::from(outlived(BOUND));
        found.late += usize::from(outlived(PROMISED));
    }
    for sidecar in 0..sidecars {
        adoption(changes, records.iter().filter(|record| record.sidecar == sidecar), &mut found);
    }
    found
}

impl Findings {
    /// Holds what one sidecar has answered, the revision that each answer names, against its audit log. The log is what
    /// is judged, and the answer is what its caller goes by: both must say the same.
    pub(crate) fn compare(&mut self, answers: &[Option<u64>], records: &[Record]) {
        let lines: HashMap<_, _> = records.iter().map(|record| (record.review, record.named)).collect();
        for (number, answer) in answers.iter().enumerate() {
            match (answer, lines.get(&number)) {
                (None, _) | (_, None) => self.lost += 1,
                (Some(_), Some(named)) => self.otherwise += usize::from(named != answer),
            }
        }
    }
}

/// The last change for which it holds; it holds for all before.
fn newest(changes: &[Change], holds: impl Fn(&Change) -> bool) -> Option<usize> {
    changes.partition_point(holds).checked_sub(1)
}

/// May the change be what the store held at a revision whose newest known change is this? Only a change that was
/// written again is older than its revision.
fn belong(changes: &[Change], newest_known: Option<usize>, change: usize) -> bool {
    let next = newest_known.map_or(0, |newest| newest + 1);
    newest_known == Some(change) || change == next && changes.get(next).is_some_and(|next| next.again)
}

fn adoption<'a>(changes: &[Change], records: impl Iterator<Item = &'a Record>, found: &mut Findings) {
    let mut used: Vec<(u64, usize)> = records
        .filter_map(|record| match record.basis {
            Basis::Used { change, .. } => Some((record.ended, change)),
            Basis::Refused => None,
        })
        .collect();
    used.sort_unstable();
    let mut used = used.into_iter().peekable();
    for (number, change) in changes.iter().enumerate() {
        while used.next_if(|(_, used)| *used < number).is_some() {}
        match used.peek() {
            Some((ended, _)) => found.adoptions.push(ended.saturating_sub(change.known)),
            None => found.missed += 1,
        }
    }
}

impl Findings {
    /// Is the bound kept, and was enough seen to say so?
    pub(crate) fn passed(&self) -> bool {
        let broken = self.older + self.lies + self.unread + self.missed + self.lost + self.otherwise;
        broken == 0 && self.verdicts > 0 && self.stopped != Some(0)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "refused as too old: {}", self.refused)?;
        if let Some(refused) = self.stopped {
            writeln!(f, "more than 5 s into the stop of etcd: {refused} refused, {} decided", self.unread)?;
        }
        writeln!(f, "later than 1 s and the longest read (1.8 s): {}", self.late)?;
        writeln!(f, "revision and hook do not belong together: {}", self.lies)?;
        writeln!(f, "changes missed by a sidecar: {}", self.missed)?;
        writeln!(f, "answers without their revision or their audit line: {}", self.lost)?;
        writeln!(f, "answers that name another revision than their audit line: {}", self.otherwise)?;
        let mut adoptions = self.adoptions.clone();
        adoptions.sort_unstable();
        let at = |share: usize| adoptions.get((adoptions.len() * share).div_ceil(100).saturating_sub(1)).unwrap_or(&0);
        let [median, p99, slowest] = [50, 99, 100].map(|share| at(share).div_ceil(1000));
        writeln!(f, "adoption p50 {median} ms, p99 {p99} ms")?;
        writeln!(f, "verdicts {}, older than the bound {}, slowest adoption {slowest} ms", self.verdicts, self.older)
    }
}

#[cfg(test)]
mod tests;
