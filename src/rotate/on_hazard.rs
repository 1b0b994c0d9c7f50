//! OnHazard: what becomes of a configuration that is sound and can still take the cluster down.

use crate::snapshot::{
    Problem, Snapshot,
    hazards::{Finding, Severity},
};

/// What becomes of hazards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHazard {
    /// They are told.
    #[default]
    Warn,
    /// Deadlocks and dangers are problems; gaps are told.
    Deny,
    /// They are not looked for.
    Off,
}

impl OnHazard {
    /// What is found.
    ///
    /// # Errors
    /// What is found as problems, one for each hook concerned, where it is denied.
    pub(super) fn judge(self, snapshot: &Snapshot) -> Result<Vec<Finding>, Vec<Problem>> {
        if self == Self::Off {
            return Ok(Vec::new());
        }
        let findings = snapshot.hazards();
        let denied = |finding: &&Finding| self == Self::Deny && finding.severity < Severity::Gap;
        let problems: Vec<_> = findings.iter().filter(denied).flat_map(problems).collect();
        if problems.is_empty() { Ok(findings) } else { Err(problems) }
    }
}

fn problems(finding: &Finding) -> impl Iterator<Item = Problem> {
    finding.hooks.iter().map(|concerned| Problem {
        file: concerned.file.clone(),
        path: concerned.path.clone(),
        what: format!("{} {}: {}", finding.severity.as_str(), finding.rule, finding.what),
        fix: format!("merge into the entry: {}", concerned.patch),
    })
}
