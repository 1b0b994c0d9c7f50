//! Finding: one thing that can go wrong, in which outage it did, and the patch that mends it.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{mend::Mend, severity::Severity, view::View};

/// A hook that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// The hook's name.
    pub hook: String,
    /// Identity among hooks of the same name.
    pub id: String,
    /// The file its entry stands in.
    pub file: String,
    /// The entry's place there, as in a [`Problem`](crate::snapshot::Problem).
    pub path: String,
    /// A JSON merge patch of the entry that mends this and whatever else was found about the hook; null where only
    /// somebody who knows the hook can.
    pub patch: Value,
    /// True where the hook sees nothing outside of namespaces any more once it is patched.
    pub drops_cluster_scoped: bool,
}

/// One thing that can go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the kind of finding: stable, for scripts.
    pub rule: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Whom it is about.
    pub hooks: Vec<Concerned>,
    /// Consequence in a sentence.
    pub what: String,
    /// Outages of this kind: `owner/repo#number`, or a page.
    pub outages: &'static [&'static str],
}

impl Finding {
    /// For people and programs: `/configz` shows it.
    pub fn describe(&self) -> Value {
        let hooks = self.hooks.iter().map(|concerned| {
            let Concerned { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
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
            "outages": self.outages,
        })
    }
}

impl fmt::Display for Finding {
    /// `severity rule: file: path: what (as in ...)`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.severity.as_str(), self.rule)?;
        for concerned in &self.hooks {
            write!(f, "{}: {}: ", concerned.file, concerned.path)?;
        }
        write!(f, "{}", self.what)?;
        if self.outages.is_empty() { Ok(()) } else { write!(f, " (as in {})", self.outages.join(", ")) }
    }
}

/// A finding, hooks by number.
pub(super) struct Found {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) outages: &'static [&'static str],
    /// Whom it is about, and what to do there.
    pub(super) mends: Vec<(usize, Mend)>,
}

/// In order, places and patches filled in.
pub(super) fn finished(view: &View<'_>, mut found: Vec<Found>) -> Vec<Finding> {
    let first = |found: &Found| found.mends.first().map(|(hook, _)| *hook);
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
        Concerned {
            hook: seen.hook.name.as_ref().into(),
            id: seen.hook.id.as_ref().into(),
            file: seen.origin.file.clone(),
            path: seen.origin.path.clone(),
            patch,
            drops_cluster_scoped,
        }
    };
    let finding = |found: Found| Finding {
        rule: found.rule,
        severity: found.severity,
        hooks: found.mends.iter().map(|(hook, _)| concerned(*hook)).collect(),
        what: found.what,
        outages: found.outages,
    };
    found.into_iter().map(finding).collect()
}
