//! Recent failures: results of objects that have failed and are gone.
//!
//! An initializer may refuse an object, and its apiserver delete it, before the CREATE of it is held. Its creator still
//! gets the result.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::stored_result::size;
use crate::model::StatusInfo;

/// Time for which a result is kept.
pub const KEPT: Duration = Duration::from_secs(60);
/// The most results; the oldest make room.
pub const MOST: usize = 1024;
/// The most bytes of them.
const MOST_BYTES: usize = 4 << 20;
/// Bytes of one besides its texts, about.
const AROUND: usize = 256;

/// Results of objects of one apiserver, by uid.
#[derive(Debug, Default)]
pub struct RecentFailures {
    results: HashMap<Arc<str>, Box<StatusInfo>>,
    /// In the order in which the objects went.
    gone: VecDeque<(Instant, Arc<str>)>,
    size: usize,
}

impl RecentFailures {
    /// An object that has failed is gone.
    pub fn push(&mut self, uid: &Arc<str>, result: Box<StatusInfo>, now: Instant) {
        if self.results.contains_key(uid) {
            return;
        }
        self.size += bytes(uid, &result);
        self.results.insert(Arc::clone(uid), result);
        self.gone.push_back((now, Arc::clone(uid)));
        while self.gone.len() > MOST || self.size > MOST_BYTES {
            self.forget_first();
        }
    }

    /// The result of an object that is gone.
    pub fn get(&self, uid: &str) -> Option<&StatusInfo> {
        self.results.get(uid).map(AsRef::as_ref)
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Instant) {
        while self.gone.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= KEPT) {
            self.forget_first();
        }
    }

    /// Bytes that they hold, about.
    pub fn size(&self) -> usize {
        self.size
    }

    fn forget_first(&mut self) {
        let Some((_, uid)) = self.gone.pop_front() else { return };
        if let Some(result) = self.results.remove(&uid) {
            self.size -= bytes(&uid, &result);
        }
    }
}

fn bytes(uid: &str, result: &StatusInfo) -> usize {
    AROUND + uid.len() + size(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(bytes: usize) -> Box<StatusInfo> {
        Box::new(StatusInfo { code: 403, message: "x".repeat(bytes), ..StatusInfo::default() })
    }

    #[test]
    fn results_are_kept_for_a_while_and_no_more_than_fit() {
        let (mut failures, began) = (RecentFailures::default(), Instant::now());
        let uid = |n: usize| -> Arc<str> { n.to_string().into() };
        for n in 0..MOST + 5 {
            failures.push(&uid(n), failed(1), began);
            failures.push(&uid(n), failed(9999), began);
        }
        assert_eq!((failures.results.len(), failures.gone.len()), (MOST, MOST));
        assert!(failures.get("4").is_none() && failures.get("5").is_some_and(|result| result.message == "x"));
        for n in 0..1000 {
            failures.push(&uid(1_000_000 + n), failed(16 << 10), began + KEPT / 2);
        }
        assert!(
            failures.size() <= MOST_BYTES && failures.get("1000999").is_some() && failures.get("1000000").is_none()
        );
        failures.push(&uid(2_000_000), failed(1), began + KEPT);
        failures.expire(began + KEPT + KEPT / 2);
        assert!(failures.get("1000999").is_none() && failures.get("2000000").is_some());
        failures.expire(began + 2 * KEPT);
        assert_eq!((failures.size(), failures.results.len(), failures.gone.len()), (0, 0, 0));
    }
}
