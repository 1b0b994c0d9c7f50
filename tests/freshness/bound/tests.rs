use super::*;

const SECOND: u64 = 1_000_000;
/// Some time in 1970 or later.
const START: u64 = 1_700_000_000 * SECOND;

/// Changes of revision 10, 11, …, known to their writer so many milliseconds after the start.
fn changes(known: &[u64]) -> Vec<Change> {
    let change = |(revision, millis): (u64, &u64)| Change { revision, known: START + millis * 1000, again: false };
    (10..).zip(known).map(change).collect()
}

/// A verdict of that sidecar, so many milliseconds after the start.
fn used(sidecar: usize, millis: u64, revision: u64, change: usize) -> Record {
    let began = START + millis * 1000;
    let basis = Basis::Used { revision, change };
    Record { sidecar, review: 0, named: Some(revision), began, ended: began + 100, basis }
}

fn refused(sidecar: usize, millis: u64) -> Record {
    Record { basis: Basis::Refused, ..used(sidecar, millis, 0, 0) }
}

fn judged(changes: &[Change], records: &[Record]) -> Findings {
    judge(changes, records, 1, None)
}

#[test]
fn timely_adoption_passes() {
    let changes = changes(&[0, 1000, 2000]);
    let found = judged(&changes, &[used(0, 900, 10, 0), used(0, 1900, 11, 1), used(0, 3000, 12, 2)]);
    let adoptions = vec![900_100, 900_100, 1_000_100];
    assert_eq!(found, Findings { verdicts: 3, adoptions, ..Findings::default() });
    assert!(found.passed());
    assert!(found.to_string().contains("\nadoption p50 901 ms, p99 1001 ms\n"), "{found}");
    assert!(found.to_string().ends_with("\nverdicts 3, older than the bound 0, slowest adoption 1001 ms\n"), "{found}");
}

#[test]
fn verdict_of_an_outdated_revision_is_found() {
    let changes = changes(&[0, 1000]);
    let at = |millis| judged(&changes, &[used(0, millis, 10, 0), used(0, 20_000, 11, 1)]);
    let counts = |found: &Findings| (found.late, found.older, found.passed());
    assert_eq!(counts(&at(2800)), (0, 0, true));
    assert_eq!(counts(&at(2801)), (1, 0, true), "later than promised, within the bound");
    assert_eq!(counts(&at(6000)), (1, 0, true));
    assert_eq!(counts(&at(6001)), (1, 1, false));
}

#[test]
fn wrong_revision_is_found_by_the_called_hook() {
    let changes = changes(&[0, 1000]);
    let lie = judged(&changes, &[used(0, 7000, 11, 0), used(0, 20_000, 11, 1)]);
    assert_eq!((lie.lies, lie.older, lie.passed()), (1, 1, false), "it says 11 and asks the hook of 10");
    let other = judged(&changes, &[used(0, 1500, 10, 1), used(0, 20_000, 11, 1)]);
    assert_eq!((other.lies, other.older, other.passed()), (1, 0, false), "it says 10 and asks the hook of 11");
    let nothing = judged(&changes, &[used(0, 1500, 9, 0), used(0, 20_000, 11, 1)]);
    assert_eq!((nothing.lies, nothing.passed()), (1, false), "a revision from before all changes");
}

#[test]
fn rewritten_change_may_predate_its_revision() {
    let mut changes = changes(&[0, 1000]);
    changes[1].again = true;
    let found = judged(&changes, &[used(0, 500, 10, 0), used(0, 900, 10, 1), used(0, 2000, 11, 1)]);
    assert!(found.passed(), "{found:?}");
    let stale = judged(&changes, &[used(0, 2000, 11, 0), used(0, 3000, 11, 1)]);
    assert_eq!(stale.lies, 1);
}

#[test]
fn unadopted_change_is_found_unless_overtaken() {
    let changes = changes(&[0, 1000, 1100]);
    let [quick, slow] = [used(0, 2000, 12, 2), used(1, 1900, 11, 1)];
    let found = judge(&changes, &[used(0, 100, 10, 0), quick.clone(), used(1, 100, 10, 0), slow.clone()], 2, None);
    assert_eq!((found.missed, found.passed()), (1, false), "the last one by the second sidecar");
    let none = judge(&changes, &[used(0, 100, 10, 0), quick, slow], 3, None);
    assert_eq!(none.missed, 1 + 3, "and everything by one that says nothing at all");
    assert!(!judged(&changes, &[]).passed(), "nothing was seen");
}

#[test]
fn stopped_store_requires_rejection_after_5s() {
    let changes = changes(&[0]);
    let stopped = Some((START + 10 * SECOND, START + 18 * SECOND));
    let last = used(0, 19_000, 10, 0);
    let with = |record: Record| judge(&changes, &[used(0, 100, 10, 0), record, last.clone()], 1, stopped);
    let refusing = with(refused(0, 16_000));
    assert_eq!((refusing.unread, refusing.stopped, refusing.passed()), (0, Some(1), true));
    let deciding = with(used(0, 16_000, 10, 0));
    assert_eq!((deciding.unread, deciding.older, deciding.passed()), (1, 0, false));
    let before = with(used(0, 15_000, 10, 0));
    assert_eq!((before.unread, before.stopped, before.passed()), (0, Some(0), false), "nobody asked when it mattered");
}

#[test]
fn answers_that_are_in_no_log_or_otherwise_fail_it() {
    let records = [Record { review: 1, ..used(0, 900, 11, 0) }, used(0, 900, 10, 0)];
    let found = |answers: &[Option<u64>]| {
        let mut found = judged(&changes(&[0]), &[used(0, 900, 10, 0)]);
        assert!(found.passed());
        found.compare(answers, &records);
        (found.lost, found.otherwise, found.passed())
    };
    assert_eq!(found(&[Some(10), Some(11)]), (0, 0, true));
    assert_eq!(found(&[Some(10), Some(11), Some(11)]), (1, 0, false), "a line is missing");
    assert_eq!(found(&[Some(10), None]), (1, 0, false), "it does not say by which");
    assert_eq!(found(&[Some(10), Some(10)]), (0, 1, false), "it says by the one before");
}
