//! Two clocks, both ours.

use std::slice::from_ref;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Opened at this minute of the wall clock, for so many.
fn break_glass(name: &str, opened: u32, minutes: u32) -> BreakGlass {
    BreakGlass {
        name: name.into(),
        opened: wall(opened),
        duration: minutes * MINUTE,
        reason: "told so".into(),
        hooks: Vec::new(),
        opened_by: "".into(),
    }
}

fn wall(minute: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + 1000 * MINUTE + minute * MINUTE
}

struct Clocks {
    start: Instant,
    break_glasses: BreakGlassDocuments,
}

impl Clocks {
    fn new() -> Self {
        Self { start: Instant::now(), break_glasses: BreakGlassDocuments::default() }
    }

    fn at(&self, minute: u32) -> Instant {
        self.start + minute * MINUTE
    }

    fn set_documents(&self, origin: BreakGlassOrigin, documents: &[BreakGlass], minute: u32, wall_minute: u32) {
        self.break_glasses.set_documents(origin, documents.to_vec(), self.at(minute), wall(wall_minute));
    }

    /// Number of open documents at that minute of the monotonic clock, after a tick with that of the wall clock.
    fn open(&self, minute: u32, wall_minute: u32) -> usize {
        self.break_glasses.tick(self.at(minute), wall(wall_minute));
        self.break_glasses.open(self.at(minute)).len()
    }
}

#[test]
fn break_glass_closes_by_itself_without_a_tick() {
    let clocks = Clocks::new();
    assert_eq!(clocks.break_glasses.open(clocks.at(0)).len(), 0);
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 0);
    let just_before = clocks.at(15) - Duration::from_millis(1);
    assert_eq!(clocks.break_glasses.open(just_before).len(), 1);
    assert_eq!(clocks.break_glasses.open(clocks.at(15)).len(), 0, "though nobody has ticked");
    assert_eq!(clocks.open(15, 15), 0);
    assert!(!clocks.break_glasses.any_open.load(Ordering::Acquire), "and no review finds it open any more");
}

#[test]
fn break_glass_read_late_is_open_for_the_rest_only() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 10);
    assert_eq!((clocks.open(4, 14), clocks.open(5, 15)), (1, 0));
    let late = Clocks::new();
    late.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 15);
    assert_eq!(late.open(0, 15), 0, "a restart does not open it again");
    assert_eq!(late.break_glasses.documents(late.at(0), wall(15))[0].1, BreakGlassState::Expired);
}

#[test]
fn wall_clock_set_back_extends_no_break_glass() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 5);
    assert_eq!((clocks.open(1, 0), clocks.open(9, 0), clocks.open(10, 0)), (1, 1, 0));
    let behind = Clocks::new();
    behind.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 4, 15)], 0, 0);
    assert_eq!((behind.open(14, 14), behind.open(15, 15)), (1, 0), "never longer than it says");
}

#[test]
fn wall_clock_set_forward_closes_break_glass_early() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 0);
    assert_eq!((clocks.open(1, 14), clocks.open(2, 15)), (1, 0));
    assert_eq!(clocks.open(3, 3), 0, "and stays closed when it is set right again");
}

#[test]
fn same_break_glass_document_does_not_begin_anew() {
    let clocks = Clocks::new();
    let a = break_glass("a", 0, 15);
    clocks.set_documents(BreakGlassOrigin::Source, from_ref(&a), 0, 0);
    clocks.set_documents(BreakGlassOrigin::Source, &[], 10, 0);
    assert_eq!(clocks.open(10, 0), 0, "taken away, it is closed at once");
    clocks.set_documents(BreakGlassOrigin::Source, from_ref(&a), 12, 0);
    assert_eq!((clocks.open(14, 0), clocks.open(15, 0)), (1, 0));
    clocks.set_documents(BreakGlassOrigin::File, &[a], 16, 0);
    assert_eq!(clocks.open(16, 0), 0, "nor from another place");
    clocks.set_documents(BreakGlassOrigin::File, &[break_glass("a", 16, 15)], 16, 16);
    assert_eq!(clocks.open(16, 16), 1, "another opening is another document");
}

#[test]
fn break_glass_may_be_made_longer_or_shorter() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 0);
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 30)], 10, 10);
    assert_eq!((clocks.open(29, 29), clocks.open(30, 30)), (1, 0));
    let shorter = Clocks::new();
    shorter.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15)], 0, 0);
    shorter.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 10)], 5, 5);
    assert_eq!((shorter.open(9, 9), shorter.open(10, 10)), (1, 0));
}

#[test]
fn break_glass_from_the_future_is_inert_until_then() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 60, 15)], 0, 0);
    assert_eq!((clocks.open(0, 0), clocks.open(54, 54)), (0, 0));
    assert_eq!(clocks.break_glasses.documents(clocks.at(54), wall(54))[0].1, BreakGlassState::NotYet);
    assert_eq!((clocks.open(55, 55), clocks.open(69, 69), clocks.open(70, 70)), (1, 1, 0));
}

#[test]
fn break_glass_documents_are_open_independently() {
    let clocks = Clocks::new();
    clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", 0, 15), break_glass("b", 0, 5)], 0, 0);
    clocks.set_documents(BreakGlassOrigin::File, &[break_glass("a", 0, 15), break_glass("c", 0, 20)], 0, 0);
    assert_eq!((clocks.open(4, 4), clocks.open(5, 5), clocks.open(15, 15), clocks.open(20, 20)), (3, 2, 1, 0));
}

#[test]
fn memory_of_former_break_glass_is_bounded() {
    let clocks = Clocks::new();
    for minute in 0..(2 * MAX_KNOWN_DOCUMENTS as u32) {
        clocks.set_documents(BreakGlassOrigin::Source, &[break_glass("a", minute, 1)], minute, minute);
    }
    assert!(clocks.break_glasses.book.lock().unwrap().known.len() <= MAX_KNOWN_DOCUMENTS + 1);
}

/// A document for so many seconds about these hooks, all where none is named.
fn seconds_break_glass(name: &str, seconds: u64, hooks: &[&str]) -> BreakGlass {
    BreakGlass {
        name: name.into(),
        opened: SystemTime::UNIX_EPOCH,
        duration: Duration::from_secs(seconds),
        reason: "r".into(),
        hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
        opened_by: "".into(),
    }
}

#[test]
fn break_glass_for_every_hook_counts_once_it_is_read_twice() {
    let (all, one) = (seconds_break_glass("a", 9, &[]), seconds_break_glass("a", 9, &["h"]));
    let mut confirmed = ConfirmedDocuments::default();
    assert_eq!(confirmed.apply(vec![all.clone()]), from_ref(&all), "at the start");
    let mut confirmed = ConfirmedDocuments::default();
    assert_eq!(confirmed.apply(vec![]), []);
    assert_eq!(confirmed.apply(vec![all.clone()]), [], "it may be the first half of the other");
    assert_eq!(confirmed.apply(vec![one.clone()]), from_ref(&one), "which is heeded at once");
    assert_eq!(confirmed.apply(vec![all.clone()]), from_ref(&one), "what it said before stays");
    assert_eq!(confirmed.confirm(), Some(vec![all.clone()]));
    assert_eq!(confirmed.confirm(), None);
    assert_eq!(confirmed.apply(vec![seconds_break_glass("a", 10, &[])]), [all]);
    assert_eq!(confirmed.apply(vec![seconds_break_glass("a", 10, &[])]), [seconds_break_glass("a", 10, &[])]);
    assert_eq!(confirmed.apply(vec![one.clone()]), [one], "narrower");
    assert_eq!(confirmed.apply(vec![]), [], "gone");
    assert_eq!(confirmed.apply(vec![seconds_break_glass("a", 9, &[])]), []);
}
