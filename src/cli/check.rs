//! `check`: every problem of a configuration, or what would be in force.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Ending, complain, hazards, hazards::HazardsArg};
use crate::{
    model::{FailurePolicy, Hook, HookType, SideEffects},
    rotate::{OnHazard, candidate},
    snapshot::{Snapshot, hazards::Severity},
    source::{FileSource, ReadError},
};

/// Nobody waits for us but a person: a slow mount may take its time.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  gatepost check gatepost.yaml
  gatepost check /etc/gatepost && systemctl restart gatepost
  gatepost check --hazards deny /etc/gatepost      # in CI

Hazards:
  What is sound and can take a cluster down all the same is printed after the summary, the worst first, each with an
  outage that it has caused, and for each hook with the patch that mends its entry.
    deadlock  once the hook is down, nothing brings it back but a person
    danger    while the hook is down, so is a part of the cluster that others rest on
    gap       something passes unseen that the hook surely means, or it cannot be told from the configuration

Exit codes:
  0  no problem: a summary of what would be in force is printed
  1  problems: one a line (file, place, what is wrong, what to do), then their number; or, with --hazards deny, a
     deadlock or a danger";

/// Check a configuration: print every problem at once, or what would be in force
///
/// Reads what `serve --config PATH` would read, including the certificates and keys it refers to, and checks all of
/// it the way `serve` does. Asks no hook.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Check {
    /// A YAML or JSON file, or a folder of them
    path: PathBuf,

    /// What becomes of a configuration that is sound and can take the cluster down
    #[arg(long, value_enum, default_value = "warn")]
    hazards: HazardsArg,
}

impl Check {
    /// Checks and tells.
    pub fn run(&self) -> Ending {
        match examined(&self.path, self.hazards.into()) {
            Ok((told, ending)) => {
                // Whoever closed our output (`| head`) has seen enough.
                let _ = io::stdout().write_all(told.as_bytes());
                ending
            }
            Err(error) => complain(&error),
        }
    }
}

/// What is to be told of the configuration at `path`, and how the command that tells it ends.
///
/// # Errors
/// When it cannot be read.
pub(super) fn examined(path: &Path, on_hazard: OnHazard) -> Result<(String, Ending), ReadError> {
    let contents = FileSource::new(path).read(PATIENCE)?;
    // Hazards that are denied are told like those that are not, for their patches; only the end differs.
    let looked = if on_hazard == OnHazard::Deny { OnHazard::Warn } else { on_hazard };
    Ok(match candidate(&contents, looked) {
        Ok(candidate) => {
            let findings = candidate.snapshot.findings();
            let told = summary(contents.files.len(), &candidate.snapshot) + &hazards::told(findings);
            let bad = findings.iter().any(|finding| finding.severity < Severity::Gap);
            (told, if bad && on_hazard == OnHazard::Deny { Ending::Failed } else { Ending::Good })
        }
        Err(problems) => {
            let mut told = String::new();
            for problem in &problems {
                let _ = writeln!(told, "{problem}");
            }
            let _ = writeln!(told, "{}", counted(problems.len(), "problem"));
            (told, Ending::Failed)
        }
    })
}

fn summary(files: usize, snapshot: &Snapshot) -> String {
    let mut told = format!("no problem in {}\n", counted(files, "file"));
    let _ = match snapshot.hooks.len() {
        0 => writeln!(told, "in force would be: no hooks; every write is allowed"),
        hooks => writeln!(told, "in force would be: {}", counted(hooks, "hook")),
    };
    for hook in &snapshot.hooks {
        let _ = writeln!(told, "  {}", line(hook));
    }
    for note in snapshot.notes() {
        let _ = writeln!(told, "{note}");
    }
    told
}

fn line(hook: &Hook) -> String {
    let hook_type = match hook.hook_type {
        HookType::Validating => "validating",
        HookType::Mutating => "mutating",
    };
    let policy = match hook.failure_policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
        FailurePolicy::Retry => "Retry",
    };
    let dry_run = match hook.side_effects {
        SideEffects::None | SideEffects::NoneOnDryRun => "",
        SideEffects::Undeclared | SideEffects::Some | SideEffects::Unknown => ", not for dry runs",
    };
    let timeout = humantime::format_duration(hook.timeout);
    let rules = counted(hook.rules.len(), "rule");
    format!("{} at {}: {hook_type}, {policy}, {timeout}, {rules}{dry_run}", hook.name, hook.endpoint)
}

/// `1 hook`, `2 hooks`.
pub(super) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
