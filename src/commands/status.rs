//! `status`: prints the configuration that each replica has in force.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gatepost_operator::command::{CommandExit, complain, counted, duration, misused, print};

use super::{
    adopt::{self, ADOPT_NAMESPACE},
    replicas::{self, ReplicaArgs},
};
use gatepost_api::{
    Enforcement, Revision,
    schema::status::{BypassInForce, CallFailures, DiscardedCalls, OpenBreakGlass, ReplicaFaultKind},
};
use gatepost_replicas::{
    HookReport, HookStanding, InitializerReport, PluginReport, ReplicaReport, ReplicasSeen, UnenforcedReport, wait,
};

const EXAMPLES: &str = "\
Examples:
  gatepost status
      The sidecar on this machine, at 127.0.0.1:9441.
  gatepost status --admin https://10.0.0.1:9441 --admin https://10.0.0.2:9441 --ca ca.crt --json
  gatepost status --wait 4711 --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --expect 3
      Ends when all live replicas, three at least, have the revision at which something was put.
  gatepost status --source kubernetes --kubeconfig kubeconfig --expect 3
      Replicas that publish their status in the cluster's configuration objects.
  gatepost status --wait sha256:0f3a --admin 10.0.0.1:9441 --admin 10.0.0.2:9441
      Ends when both have it in force. A digest may be cut short.

Revisions:
  A number is the store's: etcd's revision, an apiserver's resourceVersion. A replica has it when it has that revision or
  a later one in force, or has read the store at it and rejected nothing. Digests are the same over every source.

Exit codes:
  0  shown; with --wait: every live replica has the revision
  1  with --wait: a replica has rejected it, or time is up; who and why is on stderr
     without: a replica did not answer, or none is live
  6  shown, and above the table stands CERTIFICATE, REGISTRATION or INITIALIZER";

/// Show what each replica has in force, or wait until all have a revision
///
/// The facts that matter in an incident come above the table, the worst first: a serving certificate that is not valid
/// now, a registration that does not send everything (--registration), initializers that nobody attends or that do not
/// act, open break-glass and its end, reads that fail, hooks that fail now, hooks that pass no probe, bypass rules. A
/// replica without a fresh configuration refuses every review. One that rejects the newest configuration keeps the last
/// good one; its problems are shown below the table.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Status {
    #[command(flatten)]
    replicas: ReplicaArgs,

    /// With --source kubernetes: the namespace of the leases of --adopt; the state of webhooks of others is shown below
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE)]
    adopt_namespace: String,

    /// List what hooks and policies in shadow have decided since each replica started, with the last denials
    ///
    /// From admin addresses or --source etcd; objects of a cluster do not hold it.
    #[arg(long, conflicts_with_all = ["wait", "json"])]
    shadow: bool,

    /// Print the reports as JSON, one array
    #[arg(long, conflicts_with = "wait")]
    json: bool,

    /// End when every live replica has this revision: a number, or sha256: and the beginning of a digest
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    wait: Option<Revision>,

    /// Time to wait for that
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

fn revision(text: &str) -> Result<Revision, &'static str> {
    Revision::parse(text).ok_or("write a number, or sha256: and at least four hex digits of a digest")
}

impl Status {
    /// Reads the reports and prints the table. With `--wait`, waits for the revision instead.
    pub fn run(self) -> CommandExit {
        if let Some(why) = self.replicas.misuse() {
            return misused("status", &why);
        }
        let expect = self.replicas.expect.max(1);
        if let Some(wanted) = &self.wait {
            return replicas::wait(self.replicas, self.timeout, |seen| {
                wait::all_have_in_force(seen, wanted, expect, false)
            });
        }
        let cluster = self.replicas.cluster();
        let seen = match replicas::read(self.replicas) {
            Ok(seen) => seen,
            Err(why) => {
                let webhooks = cluster.and_then(|access| adopt::standing(&access, self.adopt_namespace));
                print(webhooks.unwrap_or_default().trim_start());
                return complain(&why);
            }
        };
        let text = match self.json {
            true => serde_json::to_string_pretty(&seen.reports).map(|text| text + "\n"),
            false if self.shadow => Ok(table(&seen) + &shadows(&seen)),
            false => Ok(table(&seen)),
        };
        match text {
            Ok(text) => {
                let webhooks = cluster.filter(|_| !self.json);
                let webhooks = webhooks.and_then(|access| adopt::standing(&access, self.adopt_namespace));
                print(text + &webhooks.unwrap_or_default());
            }
            Err(error) => return complain(&error),
        }
        let is_faulty = seen.reports.iter().any(|report| !report.faults.is_empty());
        let mut exit = if is_faulty { CommandExit::Faulty } else { CommandExit::Good };
        for unreadable in &seen.unreadable {
            exit = complain(&format_args!("no answer from {}: {}", unreadable.place, unreadable.why));
        }
        if seen.reports.len() < expect && seen.unreadable.is_empty() {
            let alive = counted(seen.reports.len(), "replica");
            exit = complain(&format_args!("{alive} alive; expected: {expect}"));
        }
        exit
    }
}

const COLUMNS: [&str; 7] = ["REPLICA", "GENERATION", "REVISION", "OBSERVED", "AGE", "STATE", "HOOKS"];

/// Maximum number of quarantined documents printed for one replica, a line each.
const MAX_HELD_LINES: usize = 20;

/// Returns the urgent lines, then a line for each replica, then further lines that need attention.
fn table(seen: &ReplicasSeen) -> String {
    let mut text: String = urgent(&seen.reports).into_iter().map(|line| line + "\n").collect();
    if !text.is_empty() {
        text.push('\n');
    }
    let rows: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(seen.reports.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
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

fn row(report: &ReplicaReport) -> [String; COLUMNS.len()] {
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

/// Returns the worst state that applies to the replica.
fn state(report: &ReplicaReport) -> &'static str {
    match report {
        ReplicaReport { stopping: true, .. } => "stopping",
        ReplicaReport { contested: true, .. } => "name taken twice",
        ReplicaReport { break_glass, .. } if break_glass.iter().any(|break_glass| break_glass.hooks.is_none()) => {
            "open"
        }
        ReplicaReport { generation: 0, .. } => "no configuration",
        ReplicaReport { stale: true, .. } => "stale",
        ReplicaReport { break_glass, .. } if !break_glass.is_empty() => "partly open",
        ReplicaReport { rejected: Some(rejected), .. } if rejected.is_whole() => "rejecting",
        ReplicaReport { rejected: Some(_), .. } => "holding back",
        ReplicaReport { read_failure: Some(_), .. } => "cannot read",
        ReplicaReport { from_last_good: Some(_), .. } => "from disk",
        ReplicaReport { hooks, .. } if hooks.iter().any(is_failing) => "failing",
        ReplicaReport { hooks, .. } if hooks.iter().any(|hook| hook.overdue.is_some()) => "degraded",
        ReplicaReport { faults, .. } if !faults.is_empty() => "degraded",
        _ => "ok",
    }
}

/// Returns counts of hooks by state, such as `12 Active, 1 Probing`. A hook with a fault does not count as Active.
fn hooks(hooks: &[HookReport]) -> String {
    let mut counts = BTreeMap::<(bool, &str), usize>::new();
    for word in hooks.iter().filter_map(hook_state) {
        *counts.entry((word != "Active", word)).or_default() += 1;
    }
    let nonzero: Vec<_> = counts.into_iter().map(|((_, word), count)| format!("{count} {word}")).collect();
    if nonzero.is_empty() { "none".to_owned() } else { nonzero.join(", ") }
}

/// Returns the worst state that applies to a hook; `None` if the hook is gone.
fn hook_state(hook: &HookReport) -> Option<&'static str> {
    Some(match hook.state {
        HookStanding::Gone => return None,
        HookStanding::Probing => "Probing",
        HookStanding::Draining => "Draining",
        HookStanding::Unknown => "Unknown",
        HookStanding::Active if is_failing(hook) => "Failing",
        HookStanding::Active if hook.moves_to.is_some() => "Moving",
        HookStanding::Active if hook.overdue.is_some() => "Unproven",
        HookStanding::Active => "Active",
    })
}

/// Returns true if recent calls of the hook failed, and fewer calls than that have succeeded since.
fn is_failing(hook: &HookReport) -> bool {
    hook.failures.as_ref().is_some_and(|failures| !failures.has_recovered())
}

/// Returns further facts about a replica that need attention, a line each.
fn attention(report: &ReplicaReport) -> Vec<String> {
    let mut lines = Vec::new();
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
            "{what} revision {} ({}); invalid since {}",
            rejected.revision,
            counted(rejected.count, "problem"),
            rejected.since
        ));
        lines.extend(rejected.held.iter().take(MAX_HELD_LINES).map(|held| {
            let means = if held.keeps { "its last good state is in force" } else { "nothing of it is in force" };
            format!("  {} since {}, {means}: {}", held.document, held.since, held.why)
        }));
        if rejected.is_whole() {
            lines.extend(rejected.problems.iter().map(|problem| format!("  {problem}")));
        }
    }
    lines.extend(report.hooks.iter().filter_map(|hook| Some(discarded_calls(hook, hook.discarded.as_ref()?))));
    lines.extend(report.initializers.iter().filter(|one| one.retired_since.is_none()).map(initializer_line));
    if report.initializers_left_out > 0 {
        let more = report.initializers_left_out;
        lines.push(format!("{more} more of the initializers; gatepost_initializer_instances has each of them"));
    }
    match report.policies {
        0 => {}
        1 => lines.push("1 policy decides in process".to_owned()),
        many => lines.push(format!("{many} policies decide in process")),
    }
    lines.extend(unenforced_line(report));
    let mut canaries: Vec<_> = report.unenforced.iter().filter_map(canary_line).collect();
    let more = canaries.len().saturating_sub(MAX_NAMED_UNENFORCED) + report.canaries_left_out;
    canaries.truncate(MAX_NAMED_UNENFORCED);
    lines.extend(canaries);
    lines.extend((more > 0).then(|| format!("{more} more hooks and policies are canaries")));
    lines.extend(report.plugins.as_ref().map(plugin_line));
    let draining = report.hooks.iter().filter(|hook| hook.state == HookStanding::Draining);
    lines.extend(draining.map(|hook| format!("{} is draining since {}", hook.name, hook.since)));
    lines
}

/// Maximum number of hooks and policies that do not enforce named in one line.
const MAX_NAMED_UNENFORCED: usize = 10;

/// Returns a line about the hooks and policies that do not enforce; `None` if all enforce.
fn unenforced_line(report: &ReplicaReport) -> Option<String> {
    let all: Vec<_> = report.unenforced.iter().filter(|one| one.canary.is_none()).collect();
    let named = all.iter().take(MAX_NAMED_UNENFORCED);
    let named: Vec<_> = named.map(|one| format!("{} {} ({})", one.what, one.name, one.enforcement)).collect();
    let more = all.len() - named.len() + report.unenforced_left_out;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("what these reject passes: {}{more}", named.join(", ")))
}

/// Returns a line about a canary; `None` if it is none.
fn canary_line(one: &UnenforcedReport) -> Option<String> {
    let UnenforcedReport { what, name, canary, comparisons, .. } = one;
    let counts: Vec<_> = comparisons.iter().map(|(result, count)| format!("{count} {result}")).collect();
    let counts = if counts.is_empty() { "nothing compared yet".to_owned() } else { counts.join(", ") };
    canary.as_ref().map(|canary| format!("{what} {name} decides {canary}: {counts}"))
}

/// Returns the decisions of hooks and policies in shadow and of canaries, for each replica.
fn shadows(seen: &ReplicasSeen) -> String {
    let mut text = String::new();
    for ReplicaReport { replica, unenforced, .. } in &seen.reports {
        let in_shadow =
            |one: &&UnenforcedReport| one.enforcement == Enforcement::Shadow.as_str() || one.canary.is_some();
        for one in unenforced.iter().filter(in_shadow) {
            let counts: Vec<_> = one.decisions.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
            let counts = if counts.is_empty() { "no request yet".to_owned() } else { counts.join(", ") };
            let (listed, line) = match canary_line(one) {
                Some(line) => (&one.differences, line),
                None => (&one.denials, format!("{} {} in shadow: {counts}", one.what, one.name)),
            };
            text += &format!("\n{replica}: {line}\n");
            for request in listed {
                let message = request.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
                text += &format!("  {} {}{message}\n", request.at, request.request);
            }
        }
    }
    if text.is_empty() { "\nno hook and no policy is in shadow or a canary\n".to_owned() } else { text }
}

/// Returns a line about the plugins that follow the rule index.
fn plugin_line(plugins: &PluginReport) -> String {
    let PluginReport { attached, slowest_acknowledgement_seconds, unacknowledged_generation } = plugins;
    let follow = if *attached == 1 { "follows" } else { "follow" };
    let took = slowest_acknowledgement_seconds;
    let took = took.map(|took| format!(", acknowledged within {:.0}ms", took * 1000.0)).unwrap_or_default();
    match unacknowledged_generation {
        None => format!("{} {follow} the rule index{took}", counted(*attached, "plugin")),
        Some(generation) => {
            format!(
                "{} {follow} the rule index; generation {generation} is not acknowledged yet",
                counted(*attached, "plugin")
            )
        }
    }
}

/// Returns a line about an initializer: its instances, and objects that wait for it.
fn initializer_line(one: &InitializerReport) -> String {
    let InitializerReport { name, instances, holds, oldest_hold_seconds, .. } = one;
    let oldest = oldest_hold_seconds.map(|age| format!(", the oldest for {age:.1}s")).unwrap_or_default();
    let (instances, waits) = (counted(*instances, "instance"), if *holds == 1 { "waits" } else { "wait" });
    format!("initializer {name}: {instances}, {} {waits}{oldest}", counted(*holds, "object"))
}

/// Returns a line about discarded calls of a mutating hook, which were speculative.
fn discarded_calls(hook: &HookReport, DiscardedCalls { discarded, calls, seconds }: &DiscardedCalls) -> String {
    let over = humantime::format_duration(Duration::from_secs(*seconds));
    let share = share(*discarded, *calls);
    let name = &hook.name;
    format!("{discarded} of {calls} calls of {name}{share} in the last {over} were ahead of its turn and in vain")
}

/// Maximum number of replicas named in one line.
const MAX_NAMED_REPLICAS: usize = 5;
/// Maximum number of lines of one rank. Further lines are only counted.
const MAX_RANK_LINES: usize = 30;

/// Kind of an urgent line, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Fault(ReplicaFaultKind),
    BreakGlass,
    Reads,
    Failing,
    Unproven,
    Bypass,
}

/// Returns the urgent lines of all replicas without repetitions, each with the replicas that it applies to.
fn urgent(reports: &[ReplicaReport]) -> Vec<String> {
    let mut ranks = BTreeMap::<Rank, Vec<String>>::new();
    let mut replicas = HashMap::<String, Vec<&str>>::new();
    for report in reports {
        for (rank, text) in facts(report) {
            let of_it = replicas.entry(text.clone()).or_default();
            if of_it.is_empty() {
                ranks.entry(rank).or_default().push(text);
            }
            of_it.push(&report.replica);
        }
    }
    let mut output = Vec::new();
    for lines in ranks.into_values() {
        let with_replicas =
            lines.iter().take(MAX_RANK_LINES).map(|text| format!("{}: {text}", replica_names(&replicas[text])));
        output.extend(with_replicas);
        let more = lines.len().saturating_sub(MAX_RANK_LINES);
        output.extend((more > 0).then(|| format!("… and {more} more of these; see --json")));
    }
    output
}

fn replica_names(replicas: &[&str]) -> String {
    match replicas.len().checked_sub(MAX_NAMED_REPLICAS).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", replicas.get(..MAX_NAMED_REPLICAS).unwrap_or_default().join(", ")),
        None => replicas.join(", "),
    }
}

fn facts(report: &ReplicaReport) -> Vec<(Rank, String)> {
    let mut lines: Vec<_> = report.faults.iter().map(|fault| (Rank::Fault(fault.kind), fault.to_string())).collect();
    lines.extend(report.break_glass.iter().map(|break_glass| (Rank::BreakGlass, opened_break_glass(break_glass))));
    if let Some(failure) = &report.read_failure {
        let what = format!("cannot read the configuration since {}: {}", failure.since, failure.what);
        lines.push((Rank::Reads, what));
    }
    for hook in &report.hooks {
        lines.extend(hook.failures.iter().map(|failures| (Rank::Failing, failing(hook, failures))));
        lines.extend(unproven(hook).map(|text| (Rank::Unproven, text)));
    }
    lines.extend(report.bypasses.iter().map(|bypass| (Rank::Bypass, bypass_rule(bypass))));
    if report.bypasses_left_out > 0 {
        let more = format!("{} more bypass rules are in force; see /configz", report.bypasses_left_out);
        lines.push((Rank::Bypass, more));
    }
    lines
}

fn opened_break_glass(break_glass: &OpenBreakGlass) -> String {
    let what = match &break_glass.hooks {
        None => "no hook is asked".to_owned(),
        Some(hooks) => format!("not asked: {}", hooks.join(", ")),
    };
    let by = break_glass.by.as_ref().map(|by| format!(" (by {by})")).unwrap_or_default();
    format!("BREAK-GLASS {} is open until {}: {what}; {}{by}", break_glass.name, break_glass.until, break_glass.reason)
}

fn failing(hook: &HookReport, failures: &CallFailures) -> String {
    let CallFailures { failed, calls, seconds, kind, last, succeeded_since, last_success } = failures;
    let over = humantime::format_duration(Duration::from_secs(*seconds));
    let share = share(*failed, *calls);
    let kind = kind.as_deref().unwrap_or("unknown");
    let last = last.as_ref().map(|last| format!("; last at {last}: {kind}")).unwrap_or_default();
    let since = succeeded_since.zip(last_success.as_ref());
    let since = since.map(|(good, at)| format!("; last success at {at}, {good} good since")).unwrap_or_default();
    let word = if failures.has_recovered() { "RECOVERED" } else { "FAILING" };
    format!("{word} {}: {failed} of {calls} calls failed{share} in the last {over}{last}{since}", hook.name)
}

/// Returns a percentage such as ` (30 %)`; empty if there are fewer calls than a percentage needs.
fn share(some: u64, all: u64) -> String {
    /// Minimum number of calls for a percentage, so that one call is at most 5 %.
    const MIN_CALLS_FOR_PERCENTAGE: u64 = 20;
    if all < MIN_CALLS_FOR_PERCENTAGE { String::new() } else { format!(" ({} %)", (100 * some).div_ceil(all)) }
}

/// Returns a line about a hook whose endpoint has not passed a probe; `None` for other hooks.
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

fn bypass_rule(bypass: &BypassInForce) -> String {
    let BypassInForce { name, effect, scope, reason, .. } = bypass;
    let hooks = bypass.hooks.as_ref().map_or_else(|| "all hooks".to_owned(), |hooks| hooks.join(", "));
    format!("BYPASS {name}: {effect} of {hooks} for {scope}, as long as the rule is configured; {reason}")
}

#[cfg(test)]
mod tests;
