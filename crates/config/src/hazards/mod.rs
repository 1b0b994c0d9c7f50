//! Hazards: valid configurations that can take a cluster down, or that miss requests which they surely mean.
//!
//! Each finding is a function that inspects the hooks through a [`View`] and adds a [`FindingDraft`]. The module
//! `finding` sorts the findings and joins the changes of each hook into one patch, since a merge patch replaces whole
//! lists. `docs/runlevels.md` has advice for operators about each finding.

mod finding;
mod gaps;
mod initializers;
mod levels;
mod mend;
mod reach;
mod runlevel;
mod severity;
mod startup;
mod turns;
mod view;

use self::{finding::FindingDraft, view::View};
pub use self::{
    finding::{AffectedHook, Finding, Remedy},
    levels::{HOOKS, LABEL, SYSTEM},
    mend::written_selector,
    runlevel::{Advice, levels},
    severity::Severity,
};
use super::{NO_PAUSE, Pause, Snapshot};

impl Snapshot {
    /// Returns the hazards of these hooks, whose entries are valid: the worst first, then in the order of the hooks.
    ///
    /// Labels of namespaces are those of the configuration's own documents. Of any other namespace, only the name is
    /// known: if its other labels could exclude it from a hook, the finding is a [`Severity::Gap`], and its text states
    /// this.
    pub fn hazards(&self) -> Vec<Finding> {
        self.hazards_with(NO_PAUSE)
    }

    /// Returns the [hazards](Self::hazards), with pauses.
    pub fn hazards_with(&self, pause: Pause<'_>) -> Vec<Finding> {
        let initializers = initializers::as_hooks(self);
        let view = View::new(self, &initializers, pause);
        let mut found: Vec<FindingDraft> = Vec::new();
        for analyze in [
            startup::blocks_own_pods,
            startup::need_each_other,
            startup::over_system_pods,
            startup::over_vital_objects,
            runlevel::guards_lower_runlevel,
            reach::over_admission_config,
            reach::over_reviews_of_access,
            gaps::misses_ephemeral_containers,
            gaps::misses_updates,
            gaps::misses_versions,
            gaps::misses_scale,
            gaps::never_matches,
            reach::called_by_nobody,
            startup::initializes_own_pods,
            turns::turns_too_long,
        ] {
            analyze(&view, &mut found);
            pause();
        }
        finding::finish(&view, found)
    }
}

#[cfg(test)]
mod tests;
