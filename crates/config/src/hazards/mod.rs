//! Hazards: configurations that are sound and can still take a cluster down, or that miss what they surely mean.
//!
//! Each finding is a function that looks at the hooks through a [`View`] and adds a [`FindingDraft`]. Here they are put
//! in order, and the mends of each hook are joined into one patch, since a merge patch replaces lists as a whole.
//! Advice for operators about each finding is in `docs/runlevels.md`.

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
    finding::{Concerned, Finding, Remedy},
    levels::{HOOKS, LABEL, SYSTEM},
    mend::written_selector,
    runlevel::{Advice, levels},
    severity::Severity,
};
use super::{NO_PAUSE, Pause, Snapshot};

impl Snapshot {
    /// Hazards of these hooks, whose entries are sound: the worst first, then in the order of the hooks.
    ///
    /// Labels of namespaces are those of the configuration's own documents. Of any other namespace only its name is
    /// taken for granted: where its other labels could keep a hook away, the finding is a [`Severity::Gap`] that says
    /// so.
    pub fn hazards(&self) -> Vec<Finding> {
        self.hazards_with(NO_PAUSE)
    }

    /// The same, with pauses.
    pub fn hazards_with(&self, pause: Pause<'_>) -> Vec<Finding> {
        let initializers = initializers::as_hooks(self);
        let view = View::new(self, &initializers, pause);
        let mut found: Vec<FindingDraft> = Vec::new();
        for look in [
            startup::blocks_own_pods,
            startup::need_each_other,
            startup::over_system_pods,
            startup::over_vital_objects,
            runlevel::look,
            reach::over_admission_config,
            reach::over_reviews_of_access,
            gaps::misses_ephemeral_containers,
            gaps::misses_updates,
            gaps::misses_versions,
            gaps::misses_scale,
            gaps::never_matches,
            reach::called_by_nobody,
            startup::look_everywhere,
            turns::turns_too_long,
        ] {
            look(&view, &mut found);
            pause();
        }
        finding::finished(&view, found)
    }
}

#[cfg(test)]
mod tests;
