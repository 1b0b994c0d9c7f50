//! The members of one object, by key. The last of equal keys counts, as in Go's decoder.

use std::{
    borrow::Cow,
    hash::{BuildHasher, RandomState},
};

use gatepost_json as json;

/// Minimum number of keys of an object whose keys are found by hash.
const MIN_HASHED_KEYS: usize = 24;

/// The members of one object.
#[derive(Default)]
pub(super) struct Members {
    pub(super) all: Vec<Member>,
    /// The hash table of many members.
    hashed: Option<Box<HashedKeys>>,
}

/// One member of an object.
pub(super) struct Member {
    pub(super) key_at: u32,
    /// The number of bytes of the key, or [`ESCAPED`].
    key_len: u32,
    key_signature: u32,
    pub(super) at: u32,
}

/// The length of a key that is written with an escape. No key is as long, because its document is not.
const ESCAPED: u32 = u32::MAX;

/// A hash table with linear probing: the index of each member plus 1; free slots are 0. At least twice as many slots as
/// members.
struct HashedKeys {
    slots: Vec<u32>,
    /// Keyed for each object, so that nobody can choose keys that collide.
    hasher: RandomState,
}

impl Members {
    /// Adds a member, in place of one with this key.
    pub(super) fn add(&mut self, text: &str, key_at: u32, key: Cow<'_, str>, at: u32) {
        let key_len = if matches!(key, Cow::Borrowed(_)) { key.len() as u32 } else { ESCAPED };
        let member = Member { key_at, key_len, key_signature: signature(&key), at };
        if let Some(number) = self.number_of(text, &key) {
            self.all[number] = member;
            return;
        }
        self.all.push(member);
        let many = self.all.len();
        match &mut self.hashed {
            Some(hashed) if 2 * many <= hashed.slots.len() => hashed.add(&key, many - 1),
            None if many < MIN_HASHED_KEYS => {}
            _ => {
                let mut hashed =
                    HashedKeys { slots: vec![0; (4 * many).next_power_of_two()], hasher: RandomState::new() };
                for (number, member) in self.all.iter().enumerate() {
                    hashed.add(&json::string(text, member.key_at as usize).unwrap_or_default(), number);
                }
                self.hashed = Some(Box::new(hashed));
            }
        }
    }

    /// Returns the index of the member with this key.
    pub(super) fn number_of(&self, text: &str, key: &str) -> Option<usize> {
        let Some(hashed) = &self.hashed else {
            let wanted = signature(key);
            return self.all.iter().position(|member| member.key_signature == wanted && member.is(text, key));
        };
        let mut slot = hashed.slot(key);
        loop {
            let number = hashed.slots[slot].checked_sub(1)? as usize;
            if self.all[number].is(text, key) {
                return Some(number);
            }
            slot = (slot + 1) % hashed.slots.len();
        }
    }
}

impl HashedKeys {
    fn add(&mut self, key: &str, number: usize) {
        let mut slot = self.slot(key);
        while self.slots[slot] != 0 {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = number as u32 + 1;
    }

    fn slot(&self, key: &str) -> usize {
        self.hasher.hash_one(key) as usize % self.slots.len()
    }
}

impl Member {
    /// Returns true if this is its key.
    fn is(&self, text: &str, key: &str) -> bool {
        let at = self.key_at as usize;
        match self.key_len {
            ESCAPED => is_escaped_key(text, at, key),
            len => len as usize == key.len() && text.as_bytes().get(at + 1..at + 1 + key.len()) == Some(key.as_bytes()),
        }
    }
}

/// Returns a number that mostly differs for keys that differ: of the length, and of the first and the last four bytes.
fn signature(key: &str) -> u32 {
    let bytes = key.as_bytes();
    let word = |four: Option<&[u8; 4]>| four.map(|four| u32::from_le_bytes(*four));
    let len = bytes.len() as u32;
    match (word(bytes.first_chunk()), word(bytes.last_chunk())) {
        (Some(first), Some(last)) => first ^ last.rotate_left(11) ^ len << 24,
        _ => bytes.iter().fold(len, |sum, byte| sum << 8 | u32::from(*byte)),
    }
}

/// Returns true if the string that has begun ends in these bytes.
fn ends_within(raw: &[u8]) -> bool {
    let mut escaped = false;
    raw.iter().any(|byte| {
        let ends = !escaped && *byte == b'"';
        escaped = !escaped && *byte == b'\\';
        ends
    })
}

/// Returns true if the key at `at`, which is written with an escape, is this one.
fn is_escaped_key(text: &str, at: usize, key: &str) -> bool {
    // An escaped byte takes at most six bytes: a longer key is not equal, and is not read to its end.
    let rest = &text.as_bytes()[at + 1..];
    let longest = key.len().saturating_mul(6) + 1;
    ends_within(&rest[..rest.len().min(longest)]) && json::string(text, at).is_ok_and(|found| found == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_on_both_sides_of_the_hash_threshold() {
        // The hash table has 128 slots at first, and grows with the 65th member and with the 257th.
        for many in [1, MIN_HASHED_KEYS - 1, MIN_HASHED_KEYS, MIN_HASHED_KEYS + 1, 64, 65, 256, 257] {
            // Every third key is written with an escape.
            let key = |n: usize| if n.is_multiple_of(3) { format!("\\u006b{n}") } else { format!("k{n}") };
            let written = |numbers: std::ops::Range<usize>| numbers.map(|n| format!("\"{}\":{n}", key(n)));
            let all: Vec<_> = written(0..many).chain(written(0..1)).collect();
            let text = format!("{{{}}}", all.join(","));
            let mut members = Members::default();
            json::members(&text, 0, |key_at, key, at| members.add(&text, key_at as u32, key, at as u32)).unwrap();
            assert_eq!((members.all.len(), members.hashed.is_some()), (many, many >= MIN_HASHED_KEYS));
            let slots = members.hashed.as_ref().map_or(usize::MAX, |hashed| hashed.slots.len());
            assert!(slots >= 2 * many, "{many} members in {slots} slots");
            for n in 0..many {
                assert_eq!(members.number_of(&text, &format!("k{n}")), Some(n), "of {many}");
            }
            assert_eq!(members.number_of(&text, &format!("k{many}")), None);
            let last = text.rfind(":0").unwrap() as u32 + 1;
            assert_eq!(members.all[0].at, last, "the last of equal keys counts");
        }
    }
}
