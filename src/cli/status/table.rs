//! The table that `status` prints.

use std::collections::BTreeMap;

use crate::replicas::{HookReport, Report, Seen, Standing};

const HEAD: [&str; 7] = ["REPLICA", "GENERATION", "REVISION", "OBSERVED", "AGE", "STATE", "HOOKS"];

/// Documents that are held back, a line each.
const MOST_HELD: usize = 20;

/// One line for each replica, then what asks for attention.
pub(super) fn table(seen: &Seen) -> String {
    let rows: Vec<_> = std::iter::once(HEAD.map(str::to_owned)).chain(seen.reports.iter().map(row)).collect();
    let mut widths = [0; HEAD.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    for report in &seen.reports {
        for line in attention(report) {
            text += &format!("{}: {line}\n", report.replica);
        }
    }
    text
}

fn row(report: &Report) -> [String; HEAD.len()] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        report.replica.clone(),
        report.generation.to_string(),
        if report.generation > 0 { report.revision.clone() } else { "-".to_owned() },
        or_dash(report.observed.map(|observed| observed.to_string())),
        or_dash(report.age_seconds.map(|age| format!("{age:.1}s"))),
        state(report).to_owned(),
        hooks(&report.hooks),
    ]
}

/// The worst that is true of it.
fn state(report: &Report) -> &'static str {
    match report {
        Report { stopping: true, .. } => "stopping",
        Report { contested: true, .. } => "name taken twice",
        Report { generation: 0, .. } => "no configuration",
        Report { stale: true, .. } => "stale",
        Report { rejected: Some(rejected), .. } if rejected.is_whole() => "rejecting",
        Report { rejected: Some(_), .. } => "holding back",
        Report { read_failure: Some(_), .. } => "cannot read",
        Report { from_last_good: Some(_), .. } => "from disk",
        Report { hooks, .. } if hooks.iter().any(|hook| hook.overdue.is_some()) => "degraded",
        _ => "ok",
    }
}

/// How many stand where, such as `12 Active, 1 Probing`.
fn hooks(hooks: &[HookReport]) -> String {
    let mut counts = BTreeMap::<Standing, usize>::new();
    for hook in hooks.iter().filter(|hook| hook.state != Standing::Gone) {
        *counts.entry(hook.state).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(state, _)| *state != Standing::Active);
    let told: Vec<_> = counts.into_iter().map(|(state, count)| format!("{count} {state:?}")).collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

/// What should be looked into, a line each.
fn attention(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(failure) = &report.read_failure {
        lines.push(format!("cannot read the configuration since {}: {}", failure.since, failure.what));
    }
    if let Some(from) = &report.from_last_good {
        lines.push(format!("uses the last good configuration on its disk, {from}"));
    }
    if let Some(rejected) = &report.rejected {
        let what = match rejected.held.len() + rejected.held_left_out {
            0 => "has rejected".to_owned(),
            1 => "holds back a document of".to_owned(),
            more => format!("holds back {more} documents of"),
        };
        lines.push(format!(
            "{what} revision {} ({} problems), newest unsound since {}",
            rejected.revision, rejected.count, rejected.since
        ));
        lines.extend(rejected.held.iter().take(MOST_HELD).map(|held| {
            let means = if held.keeps { "its last good state is in force" } else { "nothing of it is in force" };
            format!("  {} since {}, {means}: {}", held.document, held.since, held.why)
        }));
        if rejected.is_whole() {
            lines.extend(rejected.problems.iter().map(|problem| format!("  {problem}")));
        }
    }
    for hook in &report.hooks {
        if let Some(overdue) = &hook.overdue {
            lines.push(format!("{} has passed no probe in time: {overdue}", hook.name));
        }
        let why = hook.reason.as_deref().unwrap_or("no probe has ended yet");
        match (&hook.moves_to, hook.state) {
            (Some(place), _) => lines.push(format!(
                "{} is asked at {} until {place} passes its probe, since {}: {why}",
                hook.name, hook.endpoint, hook.since
            )),
            (None, Standing::Probing) => {
                lines.push(format!("{} is not asked; probing {} since {}: {why}", hook.name, hook.endpoint, hook.since))
            }
            (None, Standing::Draining) => lines.push(format!("{} is draining since {}", hook.name, hook.since)),
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use super::*;
    use crate::{live::Current, replicas::Replica};

    fn hook(name: &str, state: Standing) -> HookReport {
        HookReport {
            name: name.to_owned(),
            id: name.to_owned(),
            configuration: "c".to_owned(),
            endpoint: "grpc://h:1".to_owned(),
            moves_to: None,
            state,
            since: "2026-01-01T00:00:00Z".to_owned(),
            reason: Some("refused (step: connect)".to_owned()),
            overdue: None,
        }
    }

    #[test]
    fn a_line_a_replica_and_a_line_for_what_asks_for_attention() {
        let now = Instant::now();
        let current = Current::new(now);
        let fresh = Report::of(&current, &Replica::new("b"), (now, SystemTime::UNIX_EPOCH), 1);
        let mut report = Report { replica: "a".to_owned(), generation: 3, revision: "17".to_owned(), ..fresh.clone() };
        (report.observed, report.age_seconds, report.stale) = (Some(21), Some(0.44), false);
        let overdue = |hook| HookReport { overdue: Some("it is not asked".to_owned()), ..hook };
        report.hooks = vec![
            overdue(hook("p", Standing::Probing)),
            hook("q", Standing::Active),
            hook("r", Standing::Active),
            hook("s", Standing::Gone),
        ];
        let text = table(&Seen { reports: vec![report, fresh], silent: Vec::new() });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "REPLICA  GENERATION  REVISION  OBSERVED  AGE   STATE             HOOKS",
                "a        3           17        21        0.4s  degraded          2 Active, 1 Probing",
                "b        0           -         -         -     no configuration  none",
                "a: p has passed no probe in time: it is not asked",
                "a: p is not asked; probing grpc://h:1 since 2026-01-01T00:00:00Z: refused (step: connect)",
            ]
        );
    }
}
