//! Checks a `BreakGlass` document by itself: it must work even if every other document has problems.

use std::time::{Duration, SystemTime};

use super::{
    bypass::{listed, reason},
    names,
    namespace::metadata_name,
};
use crate::{
    NO_PAUSE, SourceFile,
    document::{
        DocumentKind, Documents,
        node::{Node, ProblemReport, UNCLEAR},
        problem::quoted,
        report_duplicate_keys,
    },
};
use gatepost_api::{BreakGlass, bypass::MAX_OPEN_TIME};

/// Keys of the document.
pub(crate) const KEYS: [&str; 9] =
    ["apiVersion", "kind", "metadata", "opened", "for", "until", "reason", "hooks", "by"];

/// Returns every valid `BreakGlass` document in these files, even if other documents have problems.
///
/// [`crate::load`] reports the problems of invalid ones.
pub fn break_glass(files: &[SourceFile]) -> Vec<BreakGlass> {
    files.iter().flat_map(|file| valid_documents(&file.name, &Documents::read(file, NO_PAUSE))).collect()
}

/// Returns every valid `BreakGlass` document of one file.
pub(crate) fn valid_documents(file: &str, documents: &Documents) -> Vec<BreakGlass> {
    let (mut sound, others) = (Vec::new(), ProblemReport::default());
    documents.each(file, &others, |document, listed| {
        if listed.is_none() && DocumentKind::written_in(document.value) == Some(DocumentKind::BreakGlass) {
            let own = ProblemReport::default();
            let document = Node::document(document.value, file, None, &own);
            report_duplicate_keys(&document);
            let found = check(&document);
            sound.extend(found.filter(|_| document.problems() == 0));
        }
    });
    sound
}

/// Checks one document and reports its problems.
pub(crate) fn check(at: &Node<'_>) -> Option<BreakGlass> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    let metadata = at.key("metadata");
    let name = metadata_name(&metadata, is_name, NAME);
    let reason = reason(&at.key("reason"));
    let opened = time(&at.key("opened"));
    let duration = duration(&at.key("for"));
    let until = time(&at.key("until"));
    let hooks = listed(&at.key("hooks"), "a hook", |_| true, "");
    let by = at.key("by");
    let by = if by.present() { one_line(&by) } else { Some("") };
    if let (Some(opened), Some(duration), Some(until)) = (opened, duration, until)
        && opened.checked_add(duration) != Some(until)
    {
        at.key("until").problem(
            "must equal opened + for",
            "so the time at which it closes is unclear",
            "correct it; `gatepost break-glass` writes a consistent document",
        );
    }
    (at.problems() == before).then_some(())?;
    Some(BreakGlass {
        name: name?.into(),
        opened: opened?,
        duration: duration?,
        reason: reason?.into(),
        hooks,
        opened_by: by?.into(),
    })
}

/// Returns true if the name is a DNS subdomain that fits into the name part of an annotation's key.
fn is_name(name: &str) -> bool {
    names::is_dns_subdomain(name) && name.len() <= 63
}

const NAME: &str = "write a lower-case DNS name of at most 63 characters";

fn time(at: &Node<'_>) -> Option<SystemTime> {
    const FIX: &str = "write a time in UTC, such as 2026-01-31T22:15:00Z";
    let text = if at.required("and what is opened has to close", FIX) { at.text()? } else { return None };
    let time = humantime::parse_rfc3339(text).ok();
    if time.is_none() {
        at.problem(format!("{} is not a time", quoted(text)), "and what is opened has to close", FIX);
    }
    time
}

fn duration(at: &Node<'_>) -> Option<Duration> {
    const FIX: &str = "write how long it stays open, from 1s to 24h, such as 15m";
    let text = if at.required("and what is opened has to close", FIX) { at.text()? } else { return None };
    match humantime::parse_duration(text) {
        Ok(time) if (Duration::from_secs(1)..=MAX_OPEN_TIME).contains(&time) => return Some(time),
        Ok(_) => {
            at.problem(format!("{} is out of range", quoted(text)), "and nothing stays open longer than a day", FIX)
        }
        Err(_) => at.problem(format!("{} is not a time with its unit", quoted(text)), UNCLEAR, FIX),
    }
    None
}

fn one_line<'a>(at: &Node<'a>) -> Option<&'a str> {
    let text = at.text()?;
    if text.chars().any(char::is_control) || text.len() > 253 {
        at.problem(
            "is not one line of at most 253 bytes",
            "and stands on one line of the audit log",
            "write a name, or remove it",
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests;
