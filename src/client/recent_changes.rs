//! Changes that an initializer made a short time ago, so that a repeated request changes nothing twice.

use std::collections::{HashMap, VecDeque};

use super::ObjectChange;

/// Number of changes that are kept.
const MOST: usize = 1024;
/// Bytes that they take at most.
const MOST_BYTES: usize = 4 << 20;

/// The last changes, by the identity of their objects.
#[derive(Debug, Default)]
pub(super) struct RecentChanges {
    by_identity: HashMap<[u8; 32], ObjectChange>,
    oldest_first: VecDeque<[u8; 32]>,
    bytes: usize,
}

impl RecentChanges {
    pub(super) fn find(&self, identity: [u8; 32]) -> Option<&ObjectChange> {
        self.by_identity.get(&identity)
    }

    /// Keeps a change, in place of the oldest ones where there is no room.
    pub(super) fn keep(&mut self, identity: [u8; 32], change: &ObjectChange) {
        let size = change.size();
        if size > MOST_BYTES || self.by_identity.contains_key(&identity) {
            return;
        }
        while self.oldest_first.len() >= MOST || self.bytes + size > MOST_BYTES {
            let Some(gone) = self.oldest_first.pop_front().and_then(|oldest| self.by_identity.remove(&oldest)) else {
                break;
            };
            self.bytes -= gone.size();
        }
        self.bytes += size;
        self.oldest_first.push_back(identity);
        self.by_identity.insert(identity, change.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_known_and_no_more_than_fit() {
        let identity = |number: usize| {
            let mut identity = [0; 32];
            identity[..8].copy_from_slice(&number.to_be_bytes());
            identity
        };
        let change = |number: usize| ObjectChange::none().adding([number.to_string()]);
        let mut recent = RecentChanges::default();
        for number in 0..=MOST {
            recent.keep(identity(number), &change(number));
        }
        assert_eq!(recent.find(identity(0)), None, "the oldest has made room");
        assert_eq!(recent.find(identity(MOST)), Some(&change(MOST)));
        let large = ObjectChange::none().adding(["x".repeat(MOST_BYTES)]);
        recent.keep(identity(MOST + 1), &large);
        assert_eq!((recent.by_identity.len(), recent.bytes), (1, MOST_BYTES), "all others have made room");
        recent.keep(identity(MOST + 2), &large.adding(["y"]));
        assert_eq!(recent.find(identity(MOST + 2)), None, "this is more than all may take");
    }
}
