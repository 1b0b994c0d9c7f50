//! Exceptions: requests that pass hooks at this moment, by break-glass and by bypass rules.

use std::time::{Duration, Instant, SystemTime};

use super::text::{short, time};
use crate::{
    live::BreakGlasses,
    model::Bypass,
    schema::status::{BypassInForce, OpenGlass},
    snapshot::Snapshot,
};

/// Most bypass rules in one report; `/configz` has all of them.
const MOST_BYPASSES: usize = 20;
/// Most names of hooks for one document or rule.
const MOST_NAMES: usize = 50;

/// Break-glass documents that are open at this time.
pub(super) fn open(glasses: &BreakGlasses, (now, clock): (Instant, SystemTime)) -> Vec<OpenGlass> {
    let open = glasses.open(now);
    let entries = open.iter().map(|open| {
        let (document, closes) = (&open.document, clock + open.deadline.saturating_duration_since(now));
        // By our own clock it may close sooner than it says. Both are the same but for what it took to read them.
        let until = document.until();
        let early = until.duration_since(closes).is_ok_and(|early| early >= Duration::from_secs(2));
        OpenGlass {
            name: document.name.to_string(),
            hooks: (!document.is_about_all()).then(|| names(&document.hooks)),
            until: time(if early { closes } else { until }),
            reason: short(&document.reason),
            by: (!document.by.is_empty()).then(|| short(&document.by)),
        }
    });
    entries.collect()
}

/// The first bypass rules, and how many more there are.
pub(super) fn bypasses(snapshot: &Snapshot) -> (Vec<BypassInForce>, usize) {
    let all = snapshot.bypasses();
    let entries = all.iter().take(MOST_BYPASSES).map(|bypass| BypassInForce {
        name: bypass.name.to_string(),
        effect: bypass.effect.as_str().to_owned(),
        hooks: (!bypass.is_about_all()).then(|| names(&bypass.hooks)),
        scope: short(&scope(bypass)),
        reason: short(&bypass.reason),
    });
    (entries.collect(), all.len().saturating_sub(MOST_BYPASSES))
}

fn names(names: &[Box<str>]) -> Vec<String> {
    names.iter().take(MOST_NAMES).map(|name| short(name)).collect()
}

/// The requests that it applies to: those that meet every part.
fn scope(bypass: &Bypass) -> String {
    let resources: Vec<Box<str>> = bypass.resources.iter().flat_map(|rule| rule.resources.iter().cloned()).collect();
    let users = [("users", &bypass.who.users), ("groups", &bypass.who.groups)];
    let listed = |(noun, list): &(&str, &Vec<Box<str>>)| {
        (!list.is_empty()).then(|| {
            format!("{noun} {}", list.iter().take(MOST_NAMES).map(AsRef::as_ref).collect::<Vec<_>>().join(", "))
        })
    };
    let users: Vec<_> = users.iter().filter_map(listed).collect();
    let parts = [
        listed(&("namespaces", &bypass.namespaces)),
        (!users.is_empty()).then(|| users.join(" or ")),
        listed(&("resources", &resources)),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "every request".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        live::break_glass::GlassOrigin,
        model::BreakGlass,
        snapshot::{SourceFile, load},
    };

    #[test]
    fn what_is_open_is_reported_with_the_time_at_which_it_closes_here() {
        let (glasses, now) = (BreakGlasses::default(), Instant::now());
        let wall = humantime::parse_rfc3339("2026-01-31T22:00:30Z").unwrap();
        let document = |name: &str, hooks: &[&str]| BreakGlass {
            name: name.into(),
            opened: wall - Duration::from_secs(30),
            lasts: Duration::from_secs(900),
            reason: "INC-4711".into(),
            hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
            by: "".into(),
        };
        glasses.take(GlassOrigin::Source, vec![document("all", &[]), document("one", &["a.x"])], now, wall);
        let entries = open(&glasses, (now, wall + Duration::from_millis(5)));
        let all = OpenGlass {
            name: "all".to_owned(),
            hooks: None,
            until: "2026-01-31T22:15:00Z".to_owned(),
            reason: "INC-4711".to_owned(),
            by: None,
        };
        let one = OpenGlass { name: "one".to_owned(), hooks: Some(vec!["a.x".to_owned()]), ..all.clone() };
        assert_eq!(entries, [all.clone(), one]);
        // The wall clock was set forward, and back again: it closes when it would have closed then.
        glasses.tick(now, wall + Duration::from_secs(600));
        let entries = open(&glasses, (now, wall));
        assert_eq!(entries[0].until, "2026-01-31T22:05:00Z");
        assert_eq!(open(&glasses, (now + Duration::from_secs(900), wall)), []);
    }

    #[test]
    fn bypass_rules_are_reported_with_the_requests_that_they_are_about() {
        let rule = |name: &str, more: &str| format!("- {{name: {name}, reason: why{more}}}\n");
        let mut text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                        externalAdmissionHooks: [{name: h.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\nbypass:\n"
            .to_owned();
        text += &rule("ci", ", namespaces: [ci, cd], users: [bot], groups: [bots], effect: FailOpen, hooks: [h.x]");
        (0..MOST_BYPASSES + 2).for_each(|n| text += &rule(&format!("r{n}"), ", namespaces: [a]"));
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into()))
            .unwrap_or_else(|problems| panic!("{problems:#?}"));
        let (entries, left_out) = bypasses(&snapshot);
        assert_eq!((entries.len(), left_out), (MOST_BYPASSES, 3));
        let first = entries.iter().find(|rule| rule.name == "ci").unwrap();
        assert_eq!((&*first.effect, &*first.scope), ("FailOpen", "namespaces ci, cd; users bot or groups bots"));
        assert_eq!(first.hooks.as_deref(), Some(&["h.x".to_owned()][..]));
    }
}
