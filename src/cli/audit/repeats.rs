//! Repeats: reviews of one client's requests that ended in the same way, for the same cause, are shown once.
//!
//! The first of them is held back until the end, or until many others are: memory does not grow with the files.

use std::collections::VecDeque;

use super::record::{Asked, Record};

/// Most reviews that are held back.
const MOST_HELD: usize = 512;
/// Most bytes of their lines.
const MOST_BYTES: usize = 4 << 20;

/// Reviews that are held back, in order of the first of each.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    held: VecDeque<Repeated>,
    bytes: usize,
}

/// A review, and its repeats.
#[derive(Debug)]
pub(super) struct Repeated {
    /// Line of the first.
    pub(super) line: Box<[u8]>,
    /// Number of reviews.
    pub(super) times: u64,
    /// Time of the last, in microseconds since 1970.
    pub(super) last: u64,
    key: Option<String>,
}

impl Repeats {
    /// Takes the next review.
    pub(super) fn push(&mut self, line: &[u8], record: &Record<'_>) {
        let key = key(record);
        let known = self.held.iter_mut().find(|held| key.is_some() && held.key == key);
        if let Some(known) = known {
            known.times += 1;
            known.last = record.time();
            return;
        }
        self.bytes += line.len();
        self.held.push_back(Repeated { line: line.into(), times: 1, last: record.time(), key });
    }

    /// The first review, where it is no repeat, too many are held back, or nothing more comes.
    pub(super) fn pop(&mut self, is_end: bool) -> Option<Repeated> {
        let may_repeat = self.held.front().is_some_and(|first| first.key.is_some());
        if !is_end && may_repeat && self.held.len() <= MOST_HELD && self.bytes <= MOST_BYTES {
            return None;
        }
        let first = self.held.pop_front()?;
        self.bytes -= first.line.len();
        Some(first)
    }
}

/// Client, object, and cause; `None` where nothing went wrong: such a review is no repeat.
fn key(record: &Record<'_>) -> Option<String> {
    let wrong = |asked: &&Asked<'_>| asked.is_denied() || asked.is_failed();
    let asked: Vec<_> = record.asked().filter(wrong).collect();
    if record.allowed && asked.is_empty() {
        return None;
    }
    let of = [&record.operation, &record.group, &record.resource, &record.subresource, &record.namespace];
    let mut key: Vec<_> = of.map(AsRef::as_ref).to_vec();
    key.extend([&*record.name, &*record.user, if record.allowed { "allowed" } else { "rejected" }]);
    key.extend(record.reason.as_deref());
    for one in asked {
        key.extend([&*one.hook, &*one.outcome, one.failure.as_deref().unwrap_or_default()]);
    }
    let mut key = key.join("\0");
    // Two messages that differ in a number alone, such as a time, have one cause.
    let message = record.message.as_deref().unwrap_or_default();
    key.extend(message.chars().filter(|sign| !sign.is_ascii_digit()));
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[&str]) -> Vec<(u64, u64)> {
        let mut repeats = Repeats::default();
        for line in lines {
            repeats.push(line.as_bytes(), &Record::parse(line.as_bytes()).expect("a record"));
            assert!(repeats.pop(false).is_none());
        }
        std::iter::from_fn(|| repeats.pop(true)).map(|one| (one.times, one.last)).collect()
    }

    fn line(time: u64, user: &str, name: &str, hook: &str, message: &str) -> String {
        format!(
            r#"{{"time_us":{time},"uid":"u","user":"{user}","resource":"pods","name":"{name}","allowed":false,
            "message":"{message}","hooks":[{{"hook":"{hook}","outcome":"failed_closed","failure":"timeout"}}]}}"#
        )
    }

    #[test]
    fn repeats_of_one_client_are_one_and_others_stay_apart() {
        let first = line(1, "ann", "a", "h", "no answer within 250 ms");
        let repeat = line(9, "ann", "a", "h", "no answer within 1000 ms");
        let others = [
            line(2, "bob", "a", "h", "no answer within 250 ms"),
            line(3, "ann", "b", "h", "no answer within 250 ms"),
            line(4, "ann", "a", "i", "no answer within 250 ms"),
            line(5, "ann", "a", "h", "another reason"),
        ];
        let allowed = r#"{"time_us":6,"uid":"u","user":"ann","resource":"pods","name":"a","allowed":true}"#;
        let mut lines = vec![&*first];
        lines.extend(others.iter().map(String::as_str));
        lines.extend([allowed, allowed, &*repeat]);
        let apart = [(1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 6)];
        assert_eq!(shown(&lines), [&[(2, 9)], &apart[..]].concat());
    }

    #[test]
    fn few_are_held_back() {
        let mut repeats = Repeats::default();
        let mut popped = 0;
        for number in 0..2 * MOST_HELD {
            let line = line(1, "ann", &format!("{:?}", "x".repeat(number)).replace('"', ""), "h", "m");
            repeats.push(line.as_bytes(), &Record::parse(line.as_bytes()).expect("a record"));
            popped += std::iter::from_fn(|| repeats.pop(false)).count();
        }
        assert_eq!((popped, repeats.held.len()), (MOST_HELD, MOST_HELD));
    }
}
