//! Emergency: what the source opens, whatever else is wrong with what was read.

use std::time::SystemTime;

use tokio::time::Instant;

use super::Rotator;
use crate::{live::break_glass::GlassOrigin, model::BreakGlass, snapshot::break_glass, source::Contents};

impl Rotator {
    /// Takes contents that must not decide anything yet, for what they let past unasked. A configuration that a former
    /// process has had in force decides while it is fresh.
    pub(super) async fn take_undated(&mut self, contents: Contents) {
        if self.current.is_fresh(Instant::now().into_std()) {
            self.heed(break_glass(&contents.files));
        } else {
            self.judge(contents).await;
        }
    }

    /// These are the break-glass documents that the source holds now.
    pub(super) fn open(&mut self, documents: Vec<BreakGlass>) {
        let documents = if self.may_be_cut { self.glasses.heeded(documents) } else { documents };
        self.heed(documents);
    }

    pub(super) fn heed(&self, documents: Vec<BreakGlass>) {
        let now = Instant::now().into_std();
        self.current.break_glass().take(GlassOrigin::Source, documents, now, SystemTime::now());
    }
}
