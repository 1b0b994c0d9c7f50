//! Break-glass documents that are open now, and when each closes.
//!
//! A document defines its end by the wall clock. When a replica first sees a document, it converts the end into an
//! instant of its monotonic clock: the earlier of *until*, and *for* from then on. Afterwards a wall clock that is set
//! forward closes the document early, and a clock that is set back does not keep it open longer.
//!
//! Removing a document and adding it again does not restart its time, unless more than [`MAX_KNOWN_DOCUMENTS`]
//! documents are known in between. If *for* is changed, the document closes that long after it was first seen, which
//! can be later than before.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use gatepost_api::BreakGlass;

/// Largest expected clock skew: a document opened further in the future is not open yet.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// Interval at which open break-glass is logged again.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);
/// Number of known documents, present and removed, above which all removed ones are forgotten.
const MAX_KNOWN_DOCUMENTS: usize = 1024;

/// Origin of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakGlassOrigin {
    /// The source of the configuration.
    Source,
    /// The file of `--break-glass-file`.
    File,
}

/// Break-glass document that is open.
#[derive(Clone, Debug)]
pub struct OpenDocument {
    /// Document as it was read.
    pub document: Arc<BreakGlass>,
    /// Time at which it closes.
    pub deadline: Instant,
}

/// State of a document, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakGlassState {
    /// The document is open.
    Open,
    /// Its opening time is in the future; it has no effect until then.
    NotYet,
    /// Its time is over; it has no effect.
    Expired,
}

/// Break-glass documents that are open now.
#[derive(Debug, Default)]
pub struct BreakGlassDocuments {
    /// False while no document is open. Requests then read nothing else.
    any_open: AtomicBool,
    open: ArcSwap<Vec<OpenDocument>>,
    book: Mutex<Book>,
}

/// All documents, open or not.
#[derive(Debug, Default)]
struct Book {
    source: Vec<Arc<BreakGlass>>,
    file: Vec<Arc<BreakGlass>>,
    /// Documents that have been seen after their opening time, including removed ones.
    known: HashMap<Key, Opening>,
    /// Time at which the open documents were last logged.
    reminded: Option<Instant>,
    file_problem: Option<String>,
}

/// Identity of a document: the same name and opening time are the same opening.
type Key = (Arc<str>, SystemTime);

#[derive(Clone, Copy, Debug)]
struct Opening {
    /// Time at which the document was first seen.
    began: Instant,
    duration: Duration,
    deadline: Instant,
}

impl BreakGlassDocuments {
    /// Returns the documents open at `now`. Costs one load if none is open.
    pub fn open(&self, now: Instant) -> SmallVec<[OpenDocument; 1]> {
        if !self.any_open.load(Ordering::Acquire) {
            return SmallVec::new();
        }
        self.open.load().iter().filter(|open| open.deadline > now).cloned().collect()
    }

    /// Replaces all documents of that origin. Takes effect immediately.
    pub fn set_documents(&self, origin: BreakGlassOrigin, documents: Vec<BreakGlass>, now: Instant, wall: SystemTime) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let documents = documents.into_iter().map(Arc::new).collect();
        match origin {
            BreakGlassOrigin::Source => book.source = documents,
            BreakGlassOrigin::File => book.file = documents,
        }
        self.update_open(&mut book, now, wall);
    }

    /// Opens documents whose opening time has come, closes those whose time is over, and logs open ones once a minute.
    pub fn tick(&self, now: Instant, wall: SystemTime) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        self.update_open(&mut book, now, wall);
    }

    /// Sets why the local file is ignored; `None` if it is valid.
    pub fn set_file_problem(&self, problem: Option<String>) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if book.file_problem != problem {
            match &problem {
                Some(problem) => tracing::error!("the break-glass file is ignored: {problem}"),
                None => tracing::info!("the break-glass file is valid again"),
            }
            book.file_problem = problem;
        }
    }

    /// Returns why the local file is ignored.
    pub fn file_problem(&self) -> Option<String> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).file_problem.clone()
    }

    /// Returns every document, open or not.
    pub fn documents(&self, now: Instant, wall: SystemTime) -> Vec<(Arc<BreakGlass>, BreakGlassState)> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |document: &Arc<BreakGlass>| match book.known.get(&key(document)) {
            Some(known) if known.deadline > now => BreakGlassState::Open,
            None if opens_later(document, wall) => BreakGlassState::NotYet,
            _ => BreakGlassState::Expired,
        };
        book.documents().map(|document| (Arc::clone(document), state(document))).collect()
    }

    /// Determines which documents are open now, and logs changes.
    fn update_open(&self, book: &mut Book, now: Instant, wall: SystemTime) {
        let documents: Vec<_> = book.documents().cloned().collect();
        if book.known.len() > MAX_KNOWN_DOCUMENTS {
            book.known.retain(|known, _| documents.iter().any(|document| key(document) == *known));
        }
        let mut open: Vec<OpenDocument> = Vec::new();
        for document in documents {
            let Some(deadline) = book.deadline(&document, now, wall) else { continue };
            if deadline > now && !open.iter().any(|other| key(&other.document) == key(&document)) {
                open.push(OpenDocument { document, deadline });
            }
        }
        let before = self.open.load_full();
        book.report(&before, &open, now);
        self.any_open.store(!open.is_empty(), Ordering::Release);
        self.open.store(Arc::new(open));
    }
}

impl Book {
    fn documents(&self) -> impl Iterator<Item = &Arc<BreakGlass>> {
        self.source.iter().chain(&self.file)
    }

    /// Returns when the document closes or closed; `None` before its opening time.
    fn deadline(&mut self, document: &Arc<BreakGlass>, now: Instant, wall: SystemTime) -> Option<Instant> {
        let left = document.until().duration_since(wall).unwrap_or_default().min(document.duration);
        if !self.known.contains_key(&key(document)) && opens_later(document, wall) {
            return None;
        }
        let fresh = Opening { began: now, duration: document.duration, deadline: now + left };
        let known = self.known.entry(key(document)).or_insert(fresh);
        // A user with write access may change the duration; the time that has passed still counts.
        if known.duration != document.duration {
            (known.duration, known.deadline) = (document.duration, known.began + document.duration);
        }
        known.deadline = known.deadline.min(now + left);
        Some(known.deadline)
    }

    /// Logs, as errors so that they are noticed, opened and closed documents, and once a minute those still open.
    fn report(&mut self, before: &[OpenDocument], after: &[OpenDocument], now: Instant) {
        let holds = |list: &[OpenDocument], one: &OpenDocument| {
            list.iter().any(|other| key(&other.document) == key(&one.document))
        };
        for new in after.iter().filter(|open| !holds(before, open)) {
            log(new, "break-glass is open: requests pass without being checked");
        }
        for gone in before.iter().filter(|open| !holds(after, open)) {
            log(gone, "break-glass has closed");
        }
        let due = self.reminded.is_none_or(|reminded| now.saturating_duration_since(reminded) >= REMINDER_INTERVAL);
        if after.is_empty() {
            self.reminded = None;
        } else if due && self.reminded.replace(now).is_some() {
            after.iter().for_each(|open| log(open, "break-glass is still open: requests pass without being checked"));
        }
    }
}

fn log(open: &OpenDocument, what: &str) {
    let BreakGlass { name, reason, opened_by, hooks, .. } = &*open.document;
    let until = humantime::format_rfc3339_seconds(open.document.until());
    let hooks = if hooks.is_empty() { "all".to_owned() } else { hooks.join(", ") };
    tracing::error!(%name, %until, %hooks, %reason, by = %opened_by, "{what}");
}

fn key(document: &BreakGlass) -> Key {
    (Arc::clone(&document.name), document.opened)
}

fn opens_later(document: &BreakGlass, wall: SystemTime) -> bool {
    document.opened.duration_since(wall).is_ok_and(|ahead| ahead > MAX_CLOCK_SKEW)
}

/// Documents that are read from files, which may be half written.
///
/// A truncated document may lack its list of hooks. Without that list, it would make requests skip every hook. So a
/// document without a list takes effect only if two reads in a row contain it. The first read is an exception: it takes
/// full effect, so that a restart in an emergency closes nothing.
#[derive(Debug, Default)]
pub struct ConfirmedDocuments {
    /// Documents of the last read; `None` before the first.
    last_read: Option<Vec<BreakGlass>>,
    in_force: Vec<BreakGlass>,
}

impl ConfirmedDocuments {
    /// Returns the documents in force after this read. While a document waits for a second read, the earlier document
    /// of the same name stays in force.
    pub fn apply(&mut self, read: Vec<BreakGlass>) -> Vec<BreakGlass> {
        let before = std::mem::take(&mut self.in_force);
        let is_confirmed = |document: &BreakGlass| match &self.last_read {
            Some(last) => !document.applies_to_all_hooks() || last.contains(document),
            None => true,
        };
        let former = |document: &BreakGlass| before.iter().find(|former| former.name == document.name);
        let in_force =
            read.iter().filter_map(|new| if is_confirmed(new) { Some(new) } else { former(new) }).cloned().collect();
        self.last_read = Some(read);
        self.in_force.clone_from(&in_force);
        in_force
    }

    /// Confirms the documents of the last read, since a second read contains the same. Returns the documents in force
    /// if that changes them.
    pub fn confirm(&mut self) -> Option<Vec<BreakGlass>> {
        let last = self.last_read.as_ref().filter(|last| **last != self.in_force)?;
        self.in_force.clone_from(last);
        Some(last.clone())
    }
}

#[cfg(test)]
mod tests;
