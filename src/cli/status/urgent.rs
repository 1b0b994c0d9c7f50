//! Urgent: the facts that an operator wants first in an incident, a line each, the worst first.

use std::collections::{BTreeMap, HashMap};

use crate::{
    replicas::{HookReport, HookStanding, ReplicaReport},
    schema::status::{BypassInForce, CallFailures, OpenGlass, ReplicaFaultKind},
};

/// Replicas that are named in one line.
const MOST_NAMED: usize = 5;
/// Lines of one rank; more of them are counted.
const MOST_LINES: usize = 30;

/// Sort of a line, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Fault(ReplicaFaultKind),
    BreakGlass,
    Reads,
    Failing,
    Unproven,
    Bypass,
}

/// The lines of all replicas, each with those that it is true of.
pub(super) fn lines(reports: &[ReplicaReport]) -> Vec<String> {
    let mut ranks = BTreeMap::<Rank, Vec<String>>::new();
    let mut replicas = HashMap::<String, Vec<&str>>::new();
    for report in reports {
        for (rank, text) in of(report) {
            let of_it = replicas.entry(text.clone()).or_default();
            if of_it.is_empty() {
                ranks.entry(rank).or_default().push(text);
            }
            of_it.push(&report.replica);
        }
    }
    let mut output = Vec::new();
    for lines in ranks.into_values() {
        let with_replicas = lines.iter().take(MOST_LINES).map(|text| format!("{}: {text}", named(&replicas[text])));
        output.extend(with_replicas);
        let more = lines.len().saturating_sub(MOST_LINES);
        output.extend((more > 0).then(|| format!("… and {more} more of these; see --json")));
    }
    output
}

fn named(replicas: &[&str]) -> String {
    match replicas.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", replicas.get(..MOST_NAMED).unwrap_or_default().join(", ")),
        None => replicas.join(", "),
    }
}

fn of(report: &ReplicaReport) -> Vec<(Rank, String)> {
    let mut lines: Vec<_> = report.faults.iter().map(|fault| (Rank::Fault(fault.kind), fault.to_string())).collect();
    lines.extend(report.break_glass.iter().map(|glass| (Rank::BreakGlass, open(glass))));
    if let Some(failure) = &report.read_failure {
        let what = format!("cannot read the configuration since {}: {}", failure.since, failure.what);
        lines.push((Rank::Reads, what));
    }
    for hook in &report.hooks {
        lines.extend(hook.failures.iter().map(|failures| (Rank::Failing, failing(hook, failures))));
        lines.extend(unproven(hook).map(|text| (Rank::Unproven, text)));
    }
    lines.extend(report.bypasses.iter().map(|bypass| (Rank::Bypass, rule(bypass))));
    if report.bypasses_left_out > 0 {
        let more = format!("{} more bypass rules are in force; see /configz", report.bypasses_left_out);
        lines.push((Rank::Bypass, more));
    }
    lines
}

fn open(glass: &OpenGlass) -> String {
    let what = match &glass.hooks {
        None => "no hook is asked".to_owned(),
        Some(hooks) => format!("not asked: {}", hooks.join(", ")),
    };
    let by = glass.by.as_ref().map(|by| format!(" (by {by})")).unwrap_or_default();
    format!("BREAK-GLASS {} is open until {}: {what}; {}{by}", glass.name, glass.until, glass.reason)
}

fn failing(hook: &HookReport, failures: &CallFailures) -> String {
    let CallFailures { failed, calls, seconds, kind, last, succeeded_since, last_success } = failures;
    let over = humantime::format_duration(std::time::Duration::from_secs(*seconds));
    let share = share(*failed, *calls);
    let kind = kind.as_deref().unwrap_or("unknown");
    let last = last.as_ref().map(|last| format!("; last at {last}: {kind}")).unwrap_or_default();
    let since = succeeded_since.zip(last_success.as_ref());
    let since = since.map(|(good, at)| format!("; last success at {at}, {good} good since")).unwrap_or_default();
    let word = if failures.has_recovered() { "RECOVERED" } else { "FAILING" };
    format!("{word} {}: {failed} of {calls} calls failed{share} in the last {over}{last}{since}", hook.name)
}

/// ` (30 %)`; nothing of so few that a share says less than the numbers.
pub(super) fn share(some: u64, all: u64) -> String {
    /// From so many on, one of them is 5 % or less.
    const MANY: u64 = 20;
    if all < MANY { String::new() } else { format!(" ({} %)", (100 * some).div_ceil(all)) }
}

/// A hook of which nobody knows whether it answers where it should.
fn unproven(hook: &HookReport) -> Option<String> {
    let HookReport { name, endpoint, .. } = hook;
    let since = hook.unproven_since.as_ref().unwrap_or(&hook.since);
    let why = hook.reason.as_deref().unwrap_or("no probe has ended yet");
    let overdue = hook.overdue.as_ref().map(|what| format!("; overdue: {what}")).unwrap_or_default();
    Some(match (&hook.moves_to, hook.state) {
        (Some(place), _) => format!(
            "UNPROVEN {name}: asked at {endpoint} until {place} passes a probe; none has since {since}: {why}{overdue}"
        ),
        (None, HookStanding::Probing) => {
            format!(
                "UNASKED {name}: not called until {endpoint} passes a probe; none has since {since}: {why}{overdue}"
            )
        }
        (None, HookStanding::Active) if hook.overdue.is_some() => {
            format!("UNPROVEN {name}: asked, although {endpoint} has passed no probe since {since}: {why}{overdue}")
        }
        _ => return None,
    })
}

fn rule(bypass: &BypassInForce) -> String {
    let BypassInForce { name, effect, scope, reason, .. } = bypass;
    let hooks = bypass.hooks.as_ref().map_or_else(|| "all hooks".to_owned(), |hooks| hooks.join(", "));
    format!("BYPASS {name}: {effect} of {hooks} for {scope}, as long as the rule is configured; {reason}")
}
