//! Hazards, as people read them: the findings, and the changes to make in each entry.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::ValueEnum;

use super::{plural::counted, yaml::yaml};
use crate::{
    rotate::OnHazard,
    snapshot::hazards::{Concerned, Finding, Severity},
};

/// Price of a patch, as a comment in it.
const DROPS: &str = "# with this it sees nothing outside of namespaces any more: add a rule with scope Cluster for each \
                     resource there that it should go on seeing (such as clusterroles)";

/// `--hazards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HazardsArg {
    /// Print them.
    Warn,
    /// Treat deadlocks and dangers as problems; print gaps.
    Deny,
    /// Do not look for them.
    Off,
}

impl From<HazardsArg> for OnHazard {
    fn from(arg: HazardsArg) -> Self {
        match arg {
            HazardsArg::Warn => Self::Warn,
            HazardsArg::Deny => Self::Deny,
            HazardsArg::Off => Self::Off,
        }
    }
}

/// Every finding, and then for each hook the one patch that mends all of its own; nothing where nothing was found.
pub(super) fn report(findings: &[Finding]) -> String {
    let mut output = String::new();
    if findings.is_empty() {
        return output;
    }
    let numbers = [(Severity::Deadlock, "deadlock"), (Severity::Danger, "danger"), (Severity::Gap, "gap")]
        .map(|(severity, noun)| (findings.iter().filter(|finding| finding.severity == severity).count(), noun));
    let numbers: Vec<_> = numbers.into_iter().filter(|(n, _)| *n > 0).map(|(n, noun)| counted(n, noun)).collect();
    let _ = writeln!(output, "\nhazards: {}", numbers.join(", "));
    let mut patched: BTreeMap<(&str, &str), &Concerned> = BTreeMap::new();
    for finding in findings {
        let _ = writeln!(output, "\n{} {}", finding.severity.as_str(), finding.rule);
        for concerned in &finding.hooks {
            let _ = writeln!(output, "  {}: {}", concerned.file, concerned.path);
            patched.entry((&concerned.file, &concerned.path)).or_insert(concerned);
        }
        let _ = writeln!(output, "  {}", finding.sentence());
        if !finding.outages.is_empty() {
            let _ = writeln!(output, "  as in {}", finding.outages.join(", "));
        }
    }
    for (_, concerned) in patched.into_iter().filter(|(_, concerned)| !concerned.patch.is_null()) {
        let Concerned { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
        let noun = if id.is_empty() { "initializer" } else { "hook" };
        let _ = writeln!(output, "\nto repair {noun} {hook:?}, merge this into its entry ({file}: {path}):");
        if *drops_cluster_scoped {
            let _ = writeln!(output, "  {DROPS}");
        }
        for line in yaml(patch).unwrap_or_else(|_| patch.to_string()).lines() {
            let _ = writeln!(output, "  {line}");
        }
    }
    output
}
