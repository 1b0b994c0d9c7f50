//! Documents that open, and documents that do not.

use std::time::Duration;

use super::*;
use crate::load;

const GOOD: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: BreakGlass\nmetadata: {name: night}\n\
    opened: 2026-01-31T22:00:00Z\nfor: 15m\nuntil: 2026-01-31T22:15:00Z\nreason: the webhook's node is gone\nby: ann\n";

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.into(), bytes: text.to_owned().into() }
}

fn problems(text: &str) -> Vec<String> {
    let read = load(&[file("a.yaml", text)], &|_| Err(std::io::ErrorKind::NotFound.into()));
    read.map_or_else(|problems| problems.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

#[test]
fn a_good_document_says_what_is_open_and_until_when() {
    let read = break_glass(&[file("a.yaml", GOOD)]);
    let [document] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!(
        (&*document.name, &*document.reason, &*document.opened_by),
        ("night", "the webhook's node is gone", "ann")
    );
    assert_eq!(document.duration, Duration::from_secs(900));
    assert_eq!(humantime::format_rfc3339(document.until()).to_string(), "2026-01-31T22:15:00Z");
    assert!(document.applies_to_all_hooks() && document.applies_to_hook("any.example.com"));
    assert_eq!(problems(GOOD), [""; 0]);
    let one = GOOD.to_owned() + "hooks: [a.example.com]\n";
    let read = break_glass(&[file("a.yaml", &one)]);
    assert!(read[0].applies_to_hook("a.example.com") && !read[0].applies_to_hook("b.example.com"));
}

#[test]
fn what_is_wrong_is_said_and_does_not_open() {
    for (from, to, path, says) in [
        ("for: 15m\n", "", "for", "is missing"),
        ("15m", "25h", "for", "is out of range"),
        ("15m", "0s", "for", "is out of range"),
        ("15m", "soon", "for", "is not a time with its unit"),
        ("for: 15m", "for: 20m", "until", "must equal opened + for"),
        ("until: 2026-01-31T22:15:00Z\n", "", "until", "is missing"),
        ("opened: 2026-01-31T22:00:00Z", "opened: today", "opened", "is not a time"),
        ("opened: 2026-01-31T22:00:00Z", "opened: 2026-01-31T22:00:00", "opened", "is not a time"),
        ("reason: the webhook's node is gone\n", "", "reason", "is missing"),
        ("the webhook's node is gone", "''", "reason", "is empty"),
        ("night", "Night", "metadata.name", "is not a name"),
        ("by: ann", "hooks: []", "hooks", "is empty"),
        ("by: ann", "hooks:", "hooks", "is empty"),
        ("by: ann", "hook: [a]", "hook", "is not a known key"),
        ("by: ann", "for: 15m", "for", "is written more than once"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{to}: {found:#?}");
        assert!(found[0].starts_with(&format!("a.yaml: {path}: ")) && found[0].contains(says), "{to}: {}", found[0]);
        assert_eq!(break_glass(&[file("a.yaml", &text)]), [], "{to}");
    }
}

#[test]
fn a_sound_document_opens_among_broken_ones() {
    let broken = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nsurprise: 1\n";
    for files in [
        vec![file("a.yaml", broken), file("b.yaml", GOOD)],
        vec![file("a.yaml", &format!("{broken}---\n{GOOD}"))],
        vec![file("a.yaml", "{{{"), file("b.yaml", GOOD), file("c.yaml", "")],
        vec![file("a.yaml", &format!("{GOOD}---\n{{{{"))],
    ] {
        assert!(load(&files, &|_| Err(std::io::ErrorKind::NotFound.into())).is_err());
        assert_eq!(break_glass(&files).len(), 1, "{files:?}");
    }
}

#[test]
fn another_kind_or_group_opens_nothing() {
    for (from, to) in [("BreakGlass", "Namespace"), ("gatepost.dev/v1alpha1", "example.com/v1alpha1")] {
        assert_eq!(break_glass(&[file("a.yaml", &GOOD.replacen(from, to, 1))]), []);
    }
}
