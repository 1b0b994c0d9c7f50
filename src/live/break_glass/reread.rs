//! Reread: which documents of a file are heeded, where the file may be read while it is being written.

use crate::model::BreakGlass;

/// Documents of a file, from read to read. A document that is cut short may lack the list of its hooks, and one without
/// a list opens every hook: such a one is heeded once two reads in a row have found it.
#[derive(Debug, Default)]
pub struct Reread {
    /// `None` before the first read, which is heeded whole: a restart in an emergency closes nothing.
    last: Option<Vec<BreakGlass>>,
    heeded: Vec<BreakGlass>,
}

impl Reread {
    /// Documents in force after this read. One that waits leaves its earlier state in force.
    pub fn heeded(&mut self, read: Vec<BreakGlass>) -> Vec<BreakGlass> {
        let before = std::mem::take(&mut self.heeded);
        let stands = |document: &BreakGlass| match &self.last {
            Some(last) => !document.is_about_all() || last.contains(document),
            None => true,
        };
        let former = |document: &BreakGlass| before.iter().find(|former| former.name == document.name);
        let heeded = read.iter().filter_map(|new| if stands(new) { Some(new) } else { former(new) }).cloned().collect();
        self.last = Some(read);
        self.heeded.clone_from(&heeded);
        heeded
    }

    /// The same was read once more: what is heeded now, where that has changed.
    pub fn again(&mut self) -> Option<Vec<BreakGlass>> {
        let last = self.last.as_ref().filter(|last| **last != self.heeded)?;
        self.heeded.clone_from(last);
        Some(last.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        slice::from_ref,
        time::{Duration, SystemTime},
    };

    use super::*;

    fn glass(name: &str, seconds: u64, hooks: &[&str]) -> BreakGlass {
        BreakGlass {
            name: name.into(),
            opened: SystemTime::UNIX_EPOCH,
            lasts: Duration::from_secs(seconds),
            reason: "r".into(),
            hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
            by: "".into(),
        }
    }

    #[test]
    fn what_opens_everything_is_heeded_when_it_is_read_twice() {
        let (all, one) = (glass("a", 9, &[]), glass("a", 9, &["h"]));
        let mut reread = Reread::default();
        assert_eq!(reread.heeded(vec![all.clone()]), from_ref(&all), "at the start");
        let mut reread = Reread::default();
        assert_eq!(reread.heeded(vec![]), []);
        assert_eq!(reread.heeded(vec![all.clone()]), [], "it may be the first half of the other");
        assert_eq!(reread.heeded(vec![one.clone()]), from_ref(&one), "which is heeded at once");
        assert_eq!(reread.heeded(vec![all.clone()]), from_ref(&one), "what it said before stays");
        assert_eq!(reread.again(), Some(vec![all.clone()]));
        assert_eq!(reread.again(), None);
        assert_eq!(reread.heeded(vec![glass("a", 10, &[])]), [all]);
        assert_eq!(reread.heeded(vec![glass("a", 10, &[])]), [glass("a", 10, &[])]);
        assert_eq!(reread.heeded(vec![one.clone()]), [one], "narrower");
        assert_eq!(reread.heeded(vec![]), [], "gone");
        assert_eq!(reread.heeded(vec![glass("a", 9, &[])]), []);
    }
}
