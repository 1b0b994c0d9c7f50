//! Record: one line of an audit log, as it is read back. Fields that another version has, or lacks, do no harm.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;

/// One line of an audit log (`docs/audit.md`), as far as it is shown or asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    time_us: u64,
    pub(super) allowed: bool,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) audit_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) operation: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) group: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) resource: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) user: Cow<'a, str>,
    #[serde(default)]
    pub(super) dry_run: bool,
    #[serde(default)]
    pub(super) generation: u64,
    #[serde(borrow, default)]
    pub(super) revision: Cow<'a, str>,
    #[serde(default)]
    pub(super) code: Option<i32>,
    #[serde(borrow, default)]
    pub(super) reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) message: Option<Cow<'a, str>>,
    #[serde(default)]
    took_us: u64,
    #[serde(borrow, default)]
    pub(super) bypass: Vec<Opened<'a>>,
    #[serde(borrow, default)]
    pub(super) break_glass: Vec<Opened<'a>>,
    #[serde(borrow, default)]
    pub(super) hooks: Vec<Asked<'a>>,
    #[serde(borrow, default)]
    pub(super) initializers: Vec<Asked<'a>>,
}

/// A bypass rule that applied, or break-glass that was open.
#[derive(Debug, Deserialize)]
pub(super) struct Opened<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) reason: Cow<'a, str>,
}

/// One hook that was selected, or one turn of an initializer.
#[derive(Debug, Deserialize)]
pub(super) struct Asked<'a> {
    #[serde(borrow, alias = "initializer")]
    pub(super) hook: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) outcome: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) failure: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) error: Option<Cow<'a, str>>,
    #[serde(default)]
    took_us: u64,
}

/// Is the line about a webhook that was taken over or given back, and no review?
pub(super) fn is_adoption(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Adoption<'a> {
        #[serde(borrow)]
        adoption: Cow<'a, str>,
    }
    serde_json::from_slice::<Adoption<'_>>(line).is_ok_and(|line| !line.adoption.is_empty())
}

impl<'a> Record<'a> {
    /// The record in a line; `None` where the line is none.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Time of the decision, in microseconds since 1970.
    pub(super) fn time(&self) -> u64 {
        self.time_us
    }

    /// Duration of the call.
    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.took_us)
    }

    /// Was it rejected without a hook's no: by a call that failed, or by Gatepost itself?
    pub(super) fn is_failed(&self) -> bool {
        !self.allowed && !self.asked().any(Asked::is_denied)
    }

    /// The hooks that were selected, and the turns of initializers.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Asked<'a>> {
        self.initializers.iter().chain(&self.hooks)
    }
}

impl Asked<'_> {
    /// Has it said no?
    pub(super) fn is_denied(&self) -> bool {
        matches!(&*self.outcome, "denied" | "rejected")
    }

    /// Has its call failed, whatever became of that?
    pub(super) fn is_failed(&self) -> bool {
        matches!(&*self.outcome, "failed_open" | "failed_closed" | "shed")
    }

    /// Has it said yes?
    pub(super) fn is_allowed(&self) -> bool {
        matches!(&*self.outcome, "allowed" | "changed" | "unchanged")
    }

    /// Duration of the call, or of the wait for it.
    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.took_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_a_webhook_that_was_taken_over_is_no_rubbish() {
        let line = br#"{"adoption":"taken","reason":null,"replica":"r","time_us":1,"webhook":"validating/c/w.x.y"}"#;
        assert!(Record::parse(line).is_none() && is_adoption(line));
    }

    #[test]
    fn lines_of_other_versions_are_read_and_rubbish_is_not() {
        let old = br#"{"time_us":1,"uid":"u","allowed":true}"#;
        let new = br#"{"time":"x","time_us":2,"uid":"\u001bu","allowed":false,"yet":{"to":["come"]},"hooks":[]}"#;
        assert_eq!(Record::parse(old).map(|record| record.time()), Some(1));
        assert!(Record::parse(new).is_some_and(|record| record.uid == "\u{1b}u" && record.is_failed()));
        let deep = "[".repeat(100_000);
        for rubbish in [&b""[..], b"{}", b"null", b"\x00\xff\xfe", &old[..20], deep.as_bytes(), b"{\"time_us\":-1}"] {
            assert!(Record::parse(rubbish).is_none() && !is_adoption(rubbish), "{rubbish:?}");
        }
    }
}
