//! Repeats: members of a patch's values whose key comes again in the same object.
//!
//! kube-apiserver decodes what a webhook has made of an object before it calls the next one, so nobody behind sees a key
//! twice. Here the text is passed on, and readers that take the first of equal keys would see another object than those
//! that take the last. So all but the last go.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use gatepost_json::{self as json, JsonError, JsonText};

/// The text without members of objects in `values` whose key comes again in the same object; `None` where there are
/// none. The values have been read: a text that cannot be read is left as it is.
pub(super) fn removed(text: &str, values: impl Iterator<Item = Range<usize>>) -> Option<String> {
    let mut finder = Finder { text, hasher: RandomState::new(), members: HashMap::new(), repeated: Vec::new() };
    for value in values {
        finder.look_through(value).ok()?;
    }
    let mut repeated = finder.repeated;
    if repeated.is_empty() {
        return None;
    }
    repeated.sort_unstable();
    let mut kept = String::with_capacity(text.len());
    let mut from = 0;
    // Repeated members of a member that goes are gone with it.
    for start in repeated {
        if start >= from {
            kept.push_str(&text[from..start]);
            from = next_member(text, start).ok()?;
        }
    }
    kept.push_str(&text[from..]);
    Some(kept)
}

/// Where the member behind the one that begins at `start` begins, at the latest.
fn next_member(text: &str, start: usize) -> Result<usize, JsonError> {
    let colon = text[start..].len() - text[json::skip(text, start)?..].trim_start().len();
    let end = json::skip(text, start + colon + 1)?;
    let comma = text.len() - text[end..].trim_start().len();
    Ok(comma + 1)
}

struct Finder<'a> {
    text: &'a str,
    /// Keyed, as the keys are the sender's choice.
    hasher: RandomState,
    /// Beginning of the last member, by the hash of its object and key.
    members: HashMap<u64, usize>,
    /// Beginnings of those whose key comes again.
    repeated: Vec<usize>,
}

impl Finder<'_> {
    fn look_through(&mut self, value: Range<usize>) -> Result<(), JsonError> {
        // Where each open container begins; none for a list.
        let mut open: Vec<Option<usize>> = Vec::new();
        let (mut at, mut key_follows) = (value.start, false);
        while at < value.end {
            match self.text.as_bytes()[at] {
                b'{' => open.push(Some(at)),
                b'[' => open.push(None),
                b'}' | b']' => drop(open.pop()),
                b'"' => {
                    let (text, end) = JsonText::read(self.text, at)?;
                    if let Some(object) = open.last().copied().flatten().filter(|_| key_follows) {
                        self.note(object, at, text)?;
                    }
                    (at, key_follows) = (end, false);
                    continue;
                }
                _ => {}
            }
            key_follows = matches!(self.text.as_bytes()[at], b'{' | b',') || key_follows;
            at += 1;
        }
        Ok(())
    }

    fn note(&mut self, object: usize, at: usize, key: JsonText<'_>) -> Result<(), JsonError> {
        let key = key.plain();
        let hash = self.hasher.hash_one((object, &*key));
        if let Some(earlier) = self.members.insert(hash, at)
            && json::string(self.text, earlier)? == key
        {
            self.repeated.push(earlier);
        }
        Ok(())
    }
}
