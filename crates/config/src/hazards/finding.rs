//! Finding: one hazard, the outages that it caused elsewhere, and the patch that fixes it.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{mend::Mend, severity::Severity, view::View};
use crate::document::problem::is_reason;

/// A hook or initializer that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffectedHook {
    /// Name of the hook or initializer.
    pub hook: String,
    /// Id among hooks of the same name; "" for an initializer.
    pub id: String,
    /// File of the entry.
    pub file: String,
    /// Path of the entry, as in a [`Problem`](crate::Problem).
    pub path: String,
    /// JSON merge patch of the entry that fixes all findings about the hook; null if the fix takes knowledge of the
    /// hook.
    pub patch: Value,
    /// True if the patched hook no longer matches cluster-scoped objects.
    pub drops_cluster_scoped: bool,
}

/// Advice on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Apply the patch of each of the [hooks](Finding::hooks).
    Patch,
    /// Advice in words, if the fix takes knowledge of the hook.
    Words(String),
}

/// One hazard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the kind of finding: stable, for scripts.
    pub rule: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Hooks and initializers that the finding is about.
    pub hooks: Vec<AffectedHook>,
    /// Fault of the hooks.
    pub what: String,
    /// Consequence of the fault: a clause, as in a [`Problem`](crate::Problem).
    pub why: String,
    /// Advice on the fault.
    pub remedy: Remedy,
    /// Outages of this kind: `owner/repo#number`, or a page.
    pub outages: &'static [&'static str],
}

impl Finding {
    /// Returns true if it has a fault, a reason and advice, as every finding does.
    pub fn is_whole(&self) -> bool {
        let advises = match &self.remedy {
            Remedy::Patch => self.hooks.iter().any(|concerned| !concerned.patch.is_null()),
            Remedy::Words(words) => !words.trim().is_empty(),
        };
        is_reason(&self.why) && !self.what.trim().is_empty() && advises
    }

    /// Returns `what, why; fix`, without a patch.
    pub fn sentence(&self) -> String {
        let Self { what, why, .. } = self;
        match &self.remedy {
            Remedy::Patch => format!("{what}, {why}"),
            Remedy::Words(words) => format!("{what}, {why}; {words}"),
        }
    }

    /// Returns the finding as JSON, for `/configz`.
    pub fn describe(&self) -> Value {
        let hooks = self.hooks.iter().map(|concerned| {
            let AffectedHook { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
            json!({
                "hook": hook,
                "id": id,
                "file": file,
                "path": path,
                "patch": patch,
                "dropsClusterScoped": drops_cluster_scoped,
            })
        });
        json!({
            "rule": self.rule,
            "severity": self.severity.as_str(),
            "hooks": hooks.collect::<Vec<_>>(),
            "what": self.what,
            "why": self.why,
            "fix": match &self.remedy {
                Remedy::Patch => "merge the patch into the entry",
                Remedy::Words(words) => words,
            },
            "outages": self.outages,
        })
    }
}

impl fmt::Display for Finding {
    /// `severity rule: file: path: what, why; fix (as in ...)`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.severity.as_str(), self.rule)?;
        for concerned in &self.hooks {
            write!(f, "{}: {}: ", concerned.file, concerned.path)?;
        }
        write!(f, "{}", self.sentence())?;
        if self.remedy == Remedy::Patch {
            f.write_str("; `gatepost check` prints the patch that repairs it")?;
        }
        if self.outages.is_empty() { Ok(()) } else { write!(f, " (as in {})", self.outages.join(", ")) }
    }
}

/// A finding with numbers in place of hooks.
pub(super) struct FindingDraft {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) why: String,
    /// Advice in words, if there is no patch.
    pub(super) fix: Option<String>,
    pub(super) outages: &'static [&'static str],
    /// Numbers of the hooks that the finding is about, each with its changes.
    pub(super) mends: Vec<(usize, Mend)>,
}

/// Sorts the findings, and fills in hooks and patches.
pub(super) fn finish(view: &View<'_>, mut found: Vec<FindingDraft>) -> Vec<Finding> {
    let first = |found: &FindingDraft| found.mends.first().map(|(hook, _)| *hook);
    found.sort_by_key(|found| (found.severity, first(found)));
    let mut mends: BTreeMap<usize, Mend> = BTreeMap::new();
    for (hook, mend) in found.iter_mut().flat_map(|found| &mut found.mends) {
        mends.entry(*hook).or_default().join(std::mem::take(mend));
    }
    let patched = |(hook, mend): (usize, Mend)| {
        let entry = view.hooks[hook].hook;
        let drops = mend.drops_cluster_scoped(entry);
        (hook, (mend.patch(entry), drops))
    };
    let patches: BTreeMap<usize, (Value, bool)> = mends.into_iter().map(patched).collect();
    let concerned = |hook: usize| {
        let seen = &view.hooks[hook];
        let (patch, drops_cluster_scoped) = patches.get(&hook).cloned().unwrap_or_default();
        AffectedHook {
            hook: seen.hook.name.as_ref().into(),
            id: seen.hook.id.as_ref().into(),
            file: seen.origin.file.clone(),
            path: seen.origin.path.clone(),
            patch,
            drops_cluster_scoped,
        }
    };
    let finding = |found: FindingDraft| {
        let hooks: Vec<_> = found.mends.iter().map(|(hook, _)| concerned(*hook)).collect();
        let remedy = match found.fix {
            Some(fix) => Remedy::Words(fix),
            None if hooks.iter().any(|hook| !hook.patch.is_null()) => Remedy::Patch,
            None => Remedy::Words("name in its rules only what it has to be asked about".to_owned()),
        };
        let FindingDraft { rule, severity, what, why, outages, .. } = found;
        Finding { rule, severity, hooks, what, why, remedy, outages }
    };
    let findings: Vec<_> = found.into_iter().map(finding).collect();
    debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?} have one without a reason, or without advice");
    findings
}
