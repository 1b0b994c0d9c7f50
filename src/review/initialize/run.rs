//! Run: one initializer's turn at the object, and what is reported of it.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    model::{Initializer, Verdict},
    telemetry::InitializerOutcome,
};

/// Prefix of the audit annotations that name the initializers which acted.
const INITIALIZED: &str = "initialize.gatepost.dev";

/// One initializer's turn at the object.
#[derive(Clone, Debug)]
pub(in super::super) struct Run {
    /// Its name.
    pub(in super::super) name: Arc<str>,
    /// Outcome of the turn.
    pub(in super::super) outcome: InitializerOutcome,
    /// Duration of the turn.
    pub(in super::super) took: Duration,
    /// Failure text where it failed and is passed over.
    pub(in super::super) passed_over: Option<String>,
}

/// The initializer before that has used up the request's time, where one that had its turn for `after` had less than its
/// own timeout.
pub(super) fn slowest<'r>(runs: &'r [Run], after: Duration, one: Option<&Initializer>) -> Option<(&'r str, Duration)> {
    let cut = one.is_some_and(|one| after < one.timeout);
    let slowest = runs.iter().max_by_key(|run| run.took);
    slowest.filter(|run| cut && run.took > after).map(|run| (&*run.name, run.took))
}

/// Says in the verdict which initializers acted, and warns of those that were passed over. The warning that the object
/// waits comes before all others: no limit cuts it.
pub(in super::super) fn report(runs: &[Run], pending: Option<String>, verdict: &mut Verdict) {
    // As upstream's limit for all warnings of a request, in characters.
    const ALL_WARNINGS: usize = 4096;
    if let Some(pending) = pending {
        verdict.warnings.insert(0, pending);
    }
    for (index, run) in runs.iter().enumerate() {
        let said = json!({"initializer": &*run.name, "outcome": run.outcome.as_str()});
        verdict.audit_annotations.push((format!("{INITIALIZED}/index_{index}"), said.to_string()));
        let Some(warning) = &run.passed_over else { continue };
        let so_far: usize = verdict.warnings.iter().map(|warning| warning.chars().count()).sum();
        if so_far + warning.chars().count() <= ALL_WARNINGS {
            verdict.warnings.push(warning.clone());
        }
    }
}
