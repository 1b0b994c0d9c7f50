//! `check`: every problem of a configuration, or what would be in force.

mod authorities;
mod connect;

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{CommandExit, complain, hazards, hazards::HazardsArg, plural::counted, register};
use crate::{
    model::{FailurePolicy, Hook, HookType, Initializer, ResourceInitializers, SideEffects},
    rotate::{Candidate, OnHazard, OwnAddresses, candidate::CandidateCache},
    runtime::Settings,
    snapshot::{Snapshot, hazards::Severity},
    source::{FileSource, ReadError},
};

/// Longest wait for one read. Only a person waits for this command: a slow mount may take its time.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  gatepost check gatepost.yaml
  gatepost check /etc/gatepost && systemctl restart gatepost
  gatepost check --hazards deny /etc/gatepost      # in CI
  gatepost check --connect /etc/gatepost           # where serve will run
  gatepost check --against register.yaml /etc/gatepost

Hazards:
  Settings that are valid and can still take a cluster down are printed after the summary, the worst first, each with an
  outage that it has caused, and for each hook with a patch that repairs its entry.
    deadlock  once the hook is down, only a person can bring it back
    danger    while the hook is down, so is a part of the cluster that others need
    gap       requests that the hook surely wants pass unseen, or the configuration does not show whether they do

Connect:
  Each hook is dialled and probed once, as serve probes a new hook: name, socket, TLS, then its health service, or a
  dry-run review where it declares sideEffects: None or NoneOnDryRun. Sixteen at once, two seconds each, a minute together.

Exit codes:
  0  no problem: a summary of what would be in force is printed
  1  problems: one a line (file, place, what is wrong, why, what to do), then their number; or, with --hazards deny,
     a deadlock or a danger; with --connect, a hook that would not enter rotation;
     with --against, a hook that the registration does not cover";

/// Check a configuration: print every problem at once, or what would be in force
///
/// Reads what `serve --config PATH` would read, including the certificates and keys it refers to, and checks all of
/// it the way `serve` does. Calls no hook, except with --connect.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Check {
    /// A YAML or JSON file, or a folder of them
    path: PathBuf,

    /// Treatment of a valid configuration that can take the cluster down
    #[arg(long, value_enum, default_value = "warn")]
    hazards: HazardsArg,

    /// Dial and probe every hook from this machine, as serve would, and print which would enter rotation
    #[arg(long)]
    connect: bool,

    /// Compare with a registration, as `gatepost register` prints it: print what hooks want and it does not send;
    /// repeat for that of mutating hooks
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,

    /// Take conditions that ask `authorizer`: serve will have a cluster to ask, by --namespaces-from or --source
    /// kubernetes
    #[arg(long)]
    authorizer: bool,

    /// The address of serve: a hook that leads there would call Gatepost itself
    #[arg(long, value_name = "ADDRESS", default_value_t = Settings::LISTEN)]
    listen: SocketAddr,
}

impl Check {
    /// Checks and prints the result.
    pub fn run(&self) -> CommandExit {
        match self.report() {
            Ok((report, ending)) => {
                // A reader that closed our output (`| head`) has seen enough.
                let _ = io::stdout().write_all(report.as_bytes());
                ending
            }
            Err(error) => complain(&error),
        }
    }

    fn report(&self) -> Result<(String, CommandExit), String> {
        let own = OwnAddresses::new([self.listen, Settings::ADMIN], None);
        let known = CandidateCache::listening_at(own).with_authorizer(self.authorizer);
        let Examined { mut report, mut ending, candidate } =
            examined(&self.path, self.hazards.into(), known).map_err(|error| error.to_string())?;
        let Some(candidate) = candidate else { return Ok((report, ending)) };
        let mut then = |(more, good): (String, bool)| {
            report.push_str(&more);
            ending = if good { ending } else { CommandExit::Failed };
        };
        if !self.against.is_empty() {
            then(register::against::report(&candidate.snapshot, &self.against)?);
        }
        if self.connect {
            then(connect::report(&candidate).map_err(|error| error.to_string())?);
        }
        Ok((report, ending))
    }
}

/// Result of the command: its text, its ending, and the configuration that would be in force.
pub(super) struct Examined {
    pub(super) report: String,
    pub(super) ending: CommandExit,
    /// Nothing where there are problems.
    pub(super) candidate: Option<Candidate>,
}

/// Looks at the configuration at `path`, as a sidecar would that has nothing but this in its cache.
///
/// # Errors
/// When it cannot be read.
pub(super) fn examined(path: &Path, on_hazard: OnHazard, mut known: CandidateCache) -> Result<Examined, ReadError> {
    let contents = FileSource::new(path).read(PATIENCE)?;
    // Hazards that are denied are printed like those that are not, for their patches; only the end differs.
    let looked = if on_hazard == OnHazard::Deny { OnHazard::Warn } else { on_hazard };
    Ok(match known.candidate(&contents, looked, None) {
        Ok(candidate) => {
            let mut findings = candidate.snapshot.findings().to_vec();
            if on_hazard != OnHazard::Off {
                findings.extend(authorities::findings(&candidate.snapshot, SystemTime::now()));
                findings.sort_by_key(|finding| finding.severity);
            }
            let report = summary(contents.files.len(), &candidate.snapshot) + &hazards::report(&findings);
            let bad = findings.iter().any(|finding| finding.severity < Severity::Gap);
            let ending = if bad && on_hazard == OnHazard::Deny { CommandExit::Failed } else { CommandExit::Good };
            Examined { report, ending, candidate: Some(candidate) }
        }
        Err(problems) => {
            let mut report = String::new();
            for problem in &problems {
                let _ = writeln!(report, "{problem}");
            }
            let _ = writeln!(report, "{}", counted(problems.len(), "problem"));
            Examined { report, ending: CommandExit::Failed, candidate: None }
        }
    })
}

fn summary(files: usize, snapshot: &Snapshot) -> String {
    let mut report = format!("no problem in {}\n", counted(files, "file"));
    let counts = [(snapshot.hooks.len(), "hook"), (snapshot.initializer_count(), "initializer")];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, noun)| counted(number, noun));
    let in_force = match counts.collect::<Vec<_>>() {
        _ if snapshot.allows_every_write() => "no hooks; every write is allowed".to_owned(),
        none if none.is_empty() => "no hooks, and no initializers; who may write their own list is checked".to_owned(),
        counts => counts.join(", "),
    };
    let _ = writeln!(report, "in force would be: {in_force}");
    for hook in &snapshot.hooks {
        let _ = writeln!(report, "  {}", line(hook));
    }
    for entry in snapshot.initializers() {
        for one in &entry.initializers {
            let _ = writeln!(report, "  {}", initializer(entry, one));
        }
    }
    for note in snapshot.notes().iter().chain(&snapshot.called_again()) {
        let _ = writeln!(report, "{note}");
    }
    report
}

fn policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
        FailurePolicy::Retry => "Retry",
    }
}

fn initializer(entry: &ResourceInitializers, one: &Initializer) -> String {
    let actor = match (&one.built_in, &one.attach) {
        (Some(_), _) => "built in",
        (None, Some(_)) => "by a process that attaches",
        (None, None) => "by who updates the stored object",
    };
    let timeout = humantime::format_duration(one.timeout);
    format!("{} of {}: {actor}, {}, {timeout}", one.name, entry.noun(), policy(one.failure_policy))
}

fn line(hook: &Hook) -> String {
    let hook_type = match hook.hook_type {
        HookType::Validating => "validating",
        HookType::Mutating => "mutating",
    };
    let policy = policy(hook.failure_policy);
    let dry_run = match hook.side_effects {
        SideEffects::None | SideEffects::NoneOnDryRun => "",
        SideEffects::Undeclared | SideEffects::Some | SideEffects::Unknown => ", not for dry runs",
    };
    let timeout = humantime::format_duration(hook.timeout);
    let rules = counted(hook.rules.len(), "rule");
    format!("{} at {}: {hook_type}, {policy}, {timeout}, {rules}{dry_run}", hook.name, hook.endpoint)
}
