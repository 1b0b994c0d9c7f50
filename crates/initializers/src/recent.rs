//! Recent values, bounded by number, bytes and age. The oldest are removed first.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::{Duration, Instant},
};

/// Maximum age of a value: twice the maximum time for which a caller waits.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum number of values.
const MAX_VALUES: usize = 1024;
/// Maximum size of all values, in bytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// Values by key, each with its size in bytes.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    values: HashMap<K, (V, usize)>,
    oldest_first: VecDeque<(Instant, K)>,
    bytes: usize,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), oldest_first: VecDeque::new(), bytes: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Keeps a value of `bytes` bytes, unless there is one with this key, or the value is too large.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize, now: Instant) {
        if self.values.contains_key(&key) || bytes > MAX_BYTES {
            return;
        }
        while self.values.len() >= MAX_VALUES || self.bytes + bytes > MAX_BYTES {
            self.remove_oldest();
        }
        self.values.insert(key.clone(), (value, bytes));
        self.oldest_first.push_back((now, key));
        self.bytes += bytes;
    }

    /// Removes values older than [`MAX_AGE`].
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.oldest_first.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= MAX_AGE) {
            self.remove_oldest();
        }
    }

    /// Returns the size of all values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove_oldest(&mut self) {
        if let Some((_, bytes)) = self.oldest_first.pop_front().and_then(|(_, key)| self.values.remove(&key)) {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_values_are_bounded_by_number_bytes_and_age() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        for n in 0..MAX_VALUES + 5 {
            recent.insert(n, "first", 1, start);
            recent.insert(n, "second", 9999, start);
        }
        assert_eq!((recent.values.len(), recent.oldest_first.len()), (MAX_VALUES, MAX_VALUES));
        assert_eq!((recent.get(&4), recent.get(&5)), (None, Some(&"first")));
        for n in 0..1000 {
            recent.insert(1_000_000 + n, "large", 16 << 10, start + MAX_AGE / 2);
        }
        assert!(recent.bytes() <= MAX_BYTES && recent.get(&1_000_999).is_some() && recent.get(&1_000_000).is_none());
        recent.insert(3_000_000, "too large", MAX_BYTES + 1, start + MAX_AGE / 2);
        assert!(recent.get(&3_000_000).is_none() && recent.get(&1_000_999).is_some(), "it would remove all others");
        recent.insert(2_000_000, "late", 1, start + MAX_AGE);
        recent.expire(start + MAX_AGE + MAX_AGE / 2);
        assert!(recent.get(&1_000_999).is_none() && recent.get(&2_000_000).is_some());
        recent.expire(start + 2 * MAX_AGE);
        assert_eq!((recent.bytes(), recent.values.len(), recent.oldest_first.len()), (0, 0, 0));
    }
}
