//! OnHazard: treatment of a configuration that is sound and can still take the cluster down.

use std::collections::HashSet;

use super::OwnAddresses;
use crate::snapshot::{
    Pause, Problem, Snapshot,
    hazards::{Finding, Remedy, Severity},
};

/// Treatment of hazards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHazard {
    /// They are logged.
    #[default]
    Warn,
    /// Deadlocks and dangers are problems; gaps are logged.
    Deny,
    /// They are not looked for.
    Off,
}

impl OnHazard {
    /// Hazards found.
    ///
    /// # Errors
    /// Hazards as problems, one for each hook concerned, where they are denied.
    pub(super) fn judge(
        self,
        snapshot: &Snapshot,
        own: &OwnAddresses,
        pause: Pause<'_>,
    ) -> Result<Vec<Finding>, Vec<Problem>> {
        if self == Self::Off {
            return Ok(Vec::new());
        }
        let mut findings = own.findings(snapshot);
        findings.extend(snapshot.hazards_with(pause));
        findings.sort_by_key(|finding| finding.severity);
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
        why: finding.why.clone(),
        fix: match &finding.remedy {
            Remedy::Patch => format!("merge into the entry: {}", concerned.patch),
            Remedy::Words(words) => words.clone(),
        },
    })
}

/// Hazards of one configuration that are logged.
const MOST: usize = 100;

/// Logs each finding once, when it is new, the worst loudest.
pub(super) fn log_findings(findings: &[Finding], before: &[Finding]) {
    let news = news(findings, before);
    for finding in news.iter().take(MOST) {
        match finding.severity {
            Severity::Deadlock | Severity::Danger => tracing::warn!("hazard: {finding}"),
            Severity::Gap => tracing::info!("hazard: {finding}"),
        }
    }
    if let Some(more) = news.len().checked_sub(MOST).filter(|more| *more > 0) {
        tracing::warn!(more, "more hazards: see /configz or `gatepost check`");
    }
}

/// Places and patches change with the file around them: two findings are compared by their texts.
fn news<'a>(findings: &'a [Finding], before: &[Finding]) -> Vec<&'a Finding> {
    let known: HashSet<_> = before.iter().map(|finding| (finding.rule, finding.severity, finding.sentence())).collect();
    findings.iter().filter(|it| !known.contains(&(it.rule, it.severity, it.sentence()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_logged_is_not_logged_at_the_next_change() {
        let finding = |severity: Severity, what: &str| Finding {
            rule: "guards-leases",
            severity,
            hooks: Vec::new(),
            what: what.into(),
            why: "so nobody can write".into(),
            remedy: Remedy::Words("remove it".into()),
            outages: &[],
        };
        let (danger, gap) = (Severity::Danger, Severity::Gap);
        let before = [finding(danger, "a"), finding(gap, "b")];
        assert!(news(&before, &before).is_empty());
        assert_eq!(news(&before, &[]).len(), 2);
        let after = [finding(danger, "a"), finding(danger, "b"), finding(gap, "c")];
        assert_eq!(news(&after, &before), [&after[1], &after[2]]);
    }
}
