//! Hazards: configurations that are sound and can still take a cluster down, or that miss what they surely mean.
//!
//! Each finding has a file of its own, which looks at the hooks through a [`View`] and returns what it [`Found`]; here
//! they are put in order, and each hook's mends are joined into one patch, since a merge patch replaces lists as a
//! whole. Advice for operators about each finding is in `docs/runlevels.md`.

mod admission_config;
mod called_by_nobody;
mod each_other;
mod ephemeral;
mod finding;
mod graph;
mod initializers;
mod kept_away;
mod level;
mod mend;
mod never_matches;
mod own_pods;
mod requests;
mod runlevel;
mod scale;
mod severity;
mod system;
mod turns;
mod updates;
mod versions;
mod view;
mod vital;

use self::{finding::Found, view::View};
pub use self::{
    finding::{Concerned, Finding, Remedy},
    level::{HOOKS, LABEL, SYSTEM},
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
        let mut found: Vec<Found> = Vec::new();
        for look in [
            own_pods::look,
            each_other::look,
            system::look,
            vital::look,
            runlevel::look,
            admission_config::look,
            kept_away::look,
            ephemeral::look,
            updates::look,
            versions::look,
            scale::look,
            never_matches::look,
            called_by_nobody::look,
            own_pods::look_everywhere,
            turns::look,
        ] {
            look(&view, &mut found);
            pause();
        }
        finding::finished(&view, found)
    }
}

#[cfg(test)]
mod tests;
