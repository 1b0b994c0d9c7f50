//! Record: one parsed line of an audit log. Other versions may have more fields, or lack optional ones.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    time::{Duration, UNIX_EPOCH},
};

use serde::Deserialize;

/// One line of an audit log (`docs/audit.md`), with the fields that are shown or filtered.
#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    /// Time of the decision, in microseconds since 1970.
    pub(super) time_us: u64,
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
    pub(super) bypass: Vec<BypassApplied<'a>>,
    #[serde(borrow, default)]
    pub(super) break_glass: Vec<BypassApplied<'a>>,
    #[serde(borrow, default)]
    pub(super) hooks: Vec<HookCall<'a>>,
    #[serde(borrow, default)]
    pub(super) initializers: Vec<HookCall<'a>>,
}

/// A bypass rule that applied, or break-glass that was in force.
#[derive(Debug, Deserialize)]
pub(super) struct BypassApplied<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) reason: Cow<'a, str>,
}

/// A selected hook, or one turn of an initializer.
#[derive(Debug, Deserialize)]
pub(super) struct HookCall<'a> {
    #[serde(borrow, alias = "initializer")]
    pub(super) hook: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) outcome: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) failure: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) error: Option<Cow<'a, str>>,
    /// Enforcement, unless it is `Deny`.
    #[serde(borrow, default)]
    enforcement: Option<Cow<'a, str>>,
    /// Rejection that had no effect, because of the enforcement.
    #[serde(borrow, default)]
    would_be: Option<WouldBe<'a>>,
    /// Duration of the call, or of the wait for it.
    #[serde(default)]
    took_us: u64,
}

/// A rejection that had no effect.
#[derive(Debug, Deserialize)]
struct WouldBe<'a> {
    code: i32,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

/// Returns true if the line is about a webhook that was adopted or released, and not about a review.
pub(super) fn is_adoption(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Adoption<'a> {
        #[serde(borrow)]
        adoption: Cow<'a, str>,
    }
    serde_json::from_slice::<Adoption<'_>>(line).is_ok_and(|line| !line.adoption.is_empty())
}

impl<'a> Record<'a> {
    /// Parses a line; `None` if it is not a record.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns true if the review was rejected without a hook's denial: because a call failed, or by Gatepost itself.
    pub(super) fn is_failed(&self) -> bool {
        !self.allowed && !self.calls().any(HookCall::is_denied)
    }

    /// Returns true if the caller was told to send the review again, with its objects in JSON. The record of that one
    /// says what was decided.
    pub(super) fn is_sent_again(&self) -> bool {
        self.code == Some(415) && self.calls().next().is_none()
    }

    /// Returns the selected hooks and the turns of initializers.
    pub(super) fn calls(&self) -> impl Iterator<Item = &HookCall<'a>> {
        self.initializers.iter().chain(&self.hooks)
    }
}

impl HookCall<'_> {
    /// Returns true if the hook denied.
    pub(super) fn is_denied(&self) -> bool {
        matches!(&*self.outcome, "denied" | "rejected")
    }

    /// Returns true if the call failed, whatever the failure policy.
    pub(super) fn is_failed(&self) -> bool {
        matches!(&*self.outcome, "failed_open" | "failed_closed" | "shed")
    }

    /// Returns true if the hook would have rejected the request, had it enforced.
    pub(super) fn would_reject(&self) -> bool {
        self.would_be.is_some()
    }

    /// Returns true if the hook allowed.
    pub(super) fn is_allowed(&self) -> bool {
        matches!(&*self.outcome, "allowed" | "changed" | "unchanged")
    }
}

/// Formats a record as a paragraph: the event in the first line, the reasons below. `record` is the first of several
/// similar records; `repeats` contains their number and the time of the last.
pub(super) fn paragraph(record: &Record<'_>, repeats: Option<(u64, u64)>) -> String {
    let mut text = String::new();
    // Writes to memory cannot fail.
    let _ = write(record, repeats, &mut text);
    text
}

fn write(record: &Record<'_>, repeats: Option<(u64, u64)>, out: &mut String) -> fmt::Result {
    let verdict = match (record.allowed, record.is_failed()) {
        (true, _) => "allowed",
        (false, false) => "denied",
        (false, true) => "failed",
    };
    write!(out, "{}  {verdict}", time(record.time_us))?;
    record.code.iter().try_for_each(|code| write!(out, " {code}"))?;
    record.reason.iter().try_for_each(|reason| write!(out, " {}", clean(reason)))?;
    write!(out, "  {} {}", clean(&record.operation), clean(&record.resource))?;
    part(out, ".", &record.group)?;
    part(out, "/", &record.subresource)?;
    let separator = if record.namespace.is_empty() { "" } else { "/" };
    let name = if record.name.is_empty() { "(no name yet)" } else { &record.name };
    write!(out, " {}{separator}{}", clean(&record.namespace), clean(name))?;
    part(out, " by ", &record.user)?;
    out.push_str(if record.dry_run { " (dry run)" } else { "" });
    if let Some((times, last)) = repeats {
        write!(out, "  x{times}, last at {}", time(last))?;
    }
    out.push('\n');
    if let Some(message) = &record.message {
        writeln!(out, "    {}", clean(message))?;
    }
    for (noun, list) in [("initializer", &record.initializers), ("hook", &record.hooks)] {
        for call in list.iter().filter(|call| call.is_denied() || call.is_failed() || call.would_reject()) {
            writeln!(out, "    {noun} {}", hook(call))?;
        }
    }
    if let Some(others) = others(&record.hooks) {
        writeln!(out, "    other hooks: {others}")?;
    }
    for (kind, opened) in [("bypass", &record.bypass), ("break-glass", &record.break_glass)] {
        for opened in opened {
            writeln!(out, "    {kind} {}: {}", clean(&opened.name), clean(&opened.reason))?;
        }
    }
    let generation = record.generation;
    write!(out, "    uid {}", clean(&record.uid))?;
    part(out, "; audit id ", &record.audit_id)?;
    write!(out, "; took {}; configuration {generation}", took(record.took_us))?;
    if !record.revision.is_empty() {
        write!(out, " ({})", clean(&record.revision))?;
    }
    writeln!(out)
}

fn part(out: &mut String, before: &str, text: &str) -> fmt::Result {
    if text.is_empty() { Ok(()) } else { write!(out, "{before}{}", clean(text)) }
}

/// Formats a call: `quota.example.com: failed open after 250ms, timeout: no answer within 250ms`.
fn hook(call: &HookCall<'_>) -> String {
    let outcome = call.outcome.replace('_', " ");
    let mut text = format!("{}: {} after {}", clean(&call.hook), clean(&outcome), took(call.took_us));
    for (before, more) in [(", ", &call.failure), (": ", &call.error)] {
        if let Some(more) = more {
            text += before;
            text += &clean(more);
        }
    }
    if let Some(WouldBe { code, message }) = &call.would_be {
        let enforcement = call.enforcement.as_deref().unwrap_or_default();
        text += &format!("; not enforced ({}): {code}", clean(enforcement));
        text.extend(message.iter().map(|message| format!(" {}", clean(message))));
    }
    text
}

/// Returns the numbers of allowed and cancelled calls; `None` if there are none.
fn others(hooks: &[HookCall<'_>]) -> Option<String> {
    let count = |outcome: &str| hooks.iter().filter(|call| call.outcome == outcome).count();
    let counts = ["allowed", "cancelled"].map(|outcome| (count(outcome), outcome)).into_iter();
    let nonzero = counts.filter(|(count, _)| *count > 0).map(|(count, outcome)| format!("{count} {outcome}"));
    let nonzero: Vec<_> = nonzero.collect();
    (!nonzero.is_empty()).then(|| nonzero.join(", "))
}

/// Formats a time in RFC 3339 and UTC, to the millisecond.
pub(super) fn time(micros: u64) -> String {
    /// The end of the year 9999, the last time in this format.
    const LATEST: u64 = 253_402_300_799_999_999;
    let at = UNIX_EPOCH + Duration::from_micros(micros.min(LATEST));
    humantime::format_rfc3339_millis(at).to_string()
}

fn took(micros: u64) -> String {
    let whole = if micros < 10_000 { micros } else { micros / 1000 * 1000 };
    humantime::format_duration(Duration::from_micros(whole)).to_string()
}

/// Replaces characters of foreign text that are unsafe in a terminal: control characters, and changes of direction.
fn clean(text: &str) -> String {
    let turns = |sign| matches!(sign, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|sign| if sign.is_control() || turns(sign) { '\u{fffd}' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_record_of_an_adoption_is_recognised() {
        let line = br#"{"adoption":"taken","reason":null,"replica":"r","time_us":1,"webhook":"validating/c/w.x.y"}"#;
        assert!(Record::parse(line).is_none() && is_adoption(line));
    }

    #[test]
    fn audit_records_of_other_versions_are_read() {
        let old = br#"{"time_us":1,"uid":"u","allowed":true}"#;
        let new = br#"{"time":"x","time_us":2,"uid":"\u001bu","allowed":false,"yet":{"to":["come"]},"hooks":[]}"#;
        assert_eq!(Record::parse(old).map(|record| record.time_us), Some(1));
        assert!(Record::parse(new).is_some_and(|record| record.uid == "\u{1b}u" && record.is_failed()));
        let deep = "[".repeat(100_000);
        for rubbish in [&b""[..], b"{}", b"null", b"\x00\xff\xfe", &old[..20], deep.as_bytes(), b"{\"time_us\":-1}"] {
            assert!(Record::parse(rubbish).is_none() && !is_adoption(rubbish), "{rubbish:?}");
        }
    }

    #[test]
    fn audit_paragraph_shows_verdict_and_reasons() {
        let line = r#"{"time_us":1767225600812345,"uid":"705a","audit_id":"9b\u001b1","operation":"CREATE","group":"apps","resource":"deployments",
            "subresource":"scale","namespace":"shop","name":"web","user":"ann","dry_run":true,"generation":3,
            "revision":"sha256:9f86","allowed":false,"code":403,"reason":"Forbidden","message":"no \u001b[31m latest",
            "took_us":250812,"bypass":[{"name":"nodes","effect":"skip","reason":"they wait"}],"hooks":[
            {"hook":"a","outcome":"denied","took_us":790},{"hook":"b","outcome":"allowed","took_us":1},
            {"hook":"c","outcome":"failed_open","failure":"timeout","error":"no answer within 250ms","took_us":250100}]}"#;
        let record = Record::parse(line.as_bytes()).expect("a record");
        assert_eq!(
            paragraph(&record, None),
            "2026-01-01T00:00:00.812Z  denied 403 Forbidden  CREATE deployments.apps/scale shop/web by ann (dry run)\n    \
             no \u{fffd}[31m latest\n    \
             hook a: denied after 790us\n    \
             hook c: failed open after 250ms, timeout: no answer within 250ms\n    \
             other hooks: 1 allowed\n    \
             bypass nodes: they wait\n    \
             uid 705a; audit id 9b\u{fffd}1; took 250ms; configuration 3 (sha256:9f86)\n"
        );
        let bare = Record::parse(br#"{"time_us":18446744073709551615,"uid":"u","allowed":true}"#).expect("a record");
        let printed = paragraph(&bare, None);
        assert!(printed.starts_with("9999-12-31T23:59:59.999Z  allowed   "), "{printed}");
    }

    #[test]
    fn audit_paragraph_shows_what_is_not_enforced() {
        let line = br#"{"time_us":1767225600000000,"uid":"u","operation":"CREATE","resource":"pods","namespace":"shop",
            "name":"web","allowed":true,"took_us":12,"hooks":[{"hook":"a","outcome":"would_deny","enforcement":"Audit",
            "would_be":{"code":403,"message":"no \u001b[31m latest"},"took_us":790},{"hook":"b","outcome":"failed_open",
            "failure":"timeout","error":"no answer within 1ms","enforcement":"Warn","would_be":{"code":500},"took_us":1000},
            {"hook":"c","outcome":"allowed","enforcement":"Warn","took_us":1}]}"#;
        let printed = paragraph(&Record::parse(line).expect("a record"), None);
        assert_eq!(
            printed,
            "2026-01-01T00:00:00.000Z  allowed  CREATE pods shop/web\n    \
             hook a: would deny after 790us; not enforced (Audit): 403 no \u{fffd}[31m latest\n    \
             hook b: failed open after 1ms, timeout: no answer within 1ms; not enforced (Warn): 500\n    \
             other hooks: 1 allowed\n    \
             uid u; took 12us; configuration 0\n"
        );
    }

    #[test]
    fn audit_paragraph_counts_repeats_and_names_initializers() {
        let line = br#"{"time_us":1767225600000000,"uid":"u","operation":"CREATE","resource":"pods","namespace":"shop",
            "user":"ann","allowed":false,"code":403,"reason":"Forbidden","message":"initializer \"a.x\" refused the object",
            "took_us":12,"initializers":[{"initializer":"b.x","outcome":"changed","took_us":3},
            {"initializer":"a.x","outcome":"rejected","took_us":790}],"hooks":[]}"#;
        let record = Record::parse(line).expect("a record");
        assert_eq!(
            paragraph(&record, Some((12, 1_767_225_660_000_000))),
            "2026-01-01T00:00:00.000Z  denied 403 Forbidden  CREATE pods shop/(no name yet) by ann  x12, last at \
             2026-01-01T00:01:00.000Z\n    \
             initializer \"a.x\" refused the object\n    \
             initializer a.x: rejected after 790us\n    \
             uid u; took 12us; configuration 0\n"
        );
    }
}
