//! Recent: recent answers of initializers, for a request that comes again.
//!
//! A caller that has lost its answer sends the same request once more: the same uid, the same object. The initializer
//! has done its part then and is not asked again. Refusals are not kept, as nothing was created.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

/// Answers that are kept.
const MOST: usize = 1024;
/// Bytes of all their patches.
const MOST_BYTES: usize = 4 << 20;
/// Time for which an answer is kept: twice the longest that a caller waits.
const KEPT: Duration = Duration::from_secs(60);

/// Digest of an initializer's name and of the review, with its uid and its object.
pub type Digest = [u8; 32];

/// Answer that an instance has given about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// A JSON Patch, where it changes something.
    pub patch: Option<Bytes>,
    /// Initializers that must act behind it.
    pub adds: Vec<Box<str>>,
}

/// Answers by their requests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    made: HashMap<Digest, Made>,
    order: VecDeque<(Instant, Digest)>,
    bytes: usize,
}

impl Recent {
    /// Answer kept for the same request.
    pub(super) fn get(&mut self, digest: &Digest, now: Instant) -> Option<Made> {
        self.forget(now, None);
        self.made.get(digest).cloned()
    }

    /// Keeps what was made, where there is room.
    pub(super) fn put(&mut self, digest: Digest, made: &Made, now: Instant) {
        let bytes = size(made);
        if bytes > MOST_BYTES / 4 || self.made.contains_key(&digest) {
            return;
        }
        self.forget(now, Some(bytes));
        // A copy: the patch is a part of all that its instance has sent.
        let patch = made.patch.as_deref().map(Bytes::copy_from_slice);
        self.made.insert(digest, Made { patch, adds: made.adds.clone() });
        self.order.push_back((now, digest));
        self.bytes += bytes;
    }

    /// Forgets what is too old; and, for one more of so many bytes, the oldest until there is room.
    fn forget(&mut self, now: Instant, more: Option<usize>) {
        while let Some((at, digest)) = self.order.front().copied() {
            let full = more.is_some_and(|bytes| self.order.len() >= MOST || self.bytes + bytes > MOST_BYTES);
            if !full && now.saturating_duration_since(at) < KEPT {
                return;
            }
            self.order.pop_front();
            if let Some(made) = self.made.remove(&digest) {
                self.bytes -= size(&made);
            }
        }
    }
}

/// Bytes that others choose.
fn size(made: &Made) -> usize {
    made.patch.as_ref().map_or(0, Bytes::len) + made.adds.iter().map(|name| name.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(bytes: usize) -> Made {
        Made { patch: Some(vec![b'x'; bytes].into()), adds: vec!["a".into()] }
    }

    #[test]
    fn it_is_kept_for_a_while_and_within_bounds() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let digest = |n: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&n.to_be_bytes());
            digest
        };
        recent.put(digest(0), &made(10), now);
        assert_eq!(recent.get(&digest(0), now + KEPT - Duration::from_secs(1)), Some(made(10)));
        assert_eq!(recent.get(&digest(0), now + KEPT), None);
        assert_eq!((recent.bytes, recent.made.len()), (0, 0));
        for n in 0..2 * MOST {
            recent.put(digest(n), &made(1), now);
        }
        assert_eq!((recent.get(&digest(MOST - 1), now), recent.made.len()), (None, recent.order.len()));
        assert!(recent.get(&digest(2 * MOST - 1), now).is_some() && recent.order.len() <= MOST);
        for n in 0..20 {
            recent.put(digest(n), &made(MOST_BYTES / 4 - 1), now);
        }
        assert!(recent.bytes <= MOST_BYTES, "{}", recent.bytes);
        recent.put(digest(99), &made(MOST_BYTES), now);
        assert_eq!(recent.get(&digest(99), now), None, "it alone would push out all others");
    }
}
