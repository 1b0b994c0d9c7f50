//! Reporting: log lines and states about failed reads, and about documents that are not in force.

use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

use tokio::time::Instant;

use super::Rotator;
use crate::{
    live::{FailedRead, QuarantinedDocument, Rejection},
    model::Revision,
    rotate::Candidate,
    snapshot::{HeldBackDocument, Problem},
    source::ReadError,
};

/// Problems of one rejected configuration that are logged.
const MAX_LOGGED_PROBLEMS: usize = 100;
/// Most causes of failed reads that are logged until one is good again.
const MAX_LOGGED_CAUSES: usize = 16;

/// Failures of reads since the last good one.
#[derive(Debug, Default)]
pub(super) struct ReadFailures {
    pub(super) logged: Vec<ReadError>,
    logged_stale: bool,
}

impl Rotator {
    /// The newest configuration is sound.
    fn accept(&self) {
        if self.status.rejected.get().is_some() {
            tracing::info!("configuration is valid again");
            self.status.rejected.set(None);
        }
    }

    /// Once all that is in force is what the source holds, nothing on disk is in use any more.
    pub(super) fn report_source(&self, candidate: &Candidate) {
        let in_use = self.status.last_good.get().is_some_and(|state| state.in_use.is_some());
        if in_use && candidate.quarantined.iter().all(|held| !held.keeps) {
            tracing::info!("the last good configuration on disk is no longer in use");
            self.status.update_last_good(|state| state.in_use = None);
        }
    }

    /// Which documents of the newest configuration are held back; where none is, it is sound.
    pub(super) fn report_quarantined(&self, candidate: &Candidate) {
        if candidate.quarantined.is_empty() {
            return self.accept();
        }
        let (before, revision) = (self.status.rejected.get(), candidate.read.1.clone());
        let reported: HashMap<_, _> =
            before.iter().flat_map(|before| &before.quarantined).map(|held| (&*held.document, held)).collect();
        let held_back = |held: &HeldBackDocument| {
            let problem = held.problems.first()?.clone();
            let since = reported.get(&*held.file).map_or_else(SystemTime::now, |last| last.since);
            let (document, problems) = (held.file.clone(), held.problems.len());
            Some(QuarantinedDocument { document, keeps: held.keeps, since, problem, problems })
        };
        let held: Vec<_> = candidate.quarantined.iter().filter_map(held_back).collect();
        let news = held.iter().filter(|held| {
            reported.get(&*held.document).is_none_or(|last| last.problem != held.problem || last.keeps != held.keeps)
        });
        for held in news.take(MAX_LOGGED_PROBLEMS) {
            let (document, problems, problem) = (&held.document, held.problems, &held.problem);
            tracing::error!(document, problems, %problem, "document held back: {}", held.means());
        }
        let documents: HashSet<_> = held.iter().map(|held| &*held.document).collect();
        for gone in reported.keys().filter(|document| !documents.contains(**document)).take(MAX_LOGGED_PROBLEMS) {
            tracing::info!(document = gone, "document is no longer held back");
        }
        let problems: Vec<_> = candidate.quarantined.iter().flat_map(|held| held.problems.iter().cloned()).collect();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.quarantined == held) {
            return self.rename_rejected(revision);
        }
        let since = before.as_ref().map_or_else(SystemTime::now, |before| before.since);
        self.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: held }));
    }

    /// The same for what was rejected.
    pub(super) fn rename_rejected(&self, revision: Revision) {
        if let Some(rejected) = self.status.rejected.get().filter(|rejected| rejected.revision != revision) {
            self.status.rejected.set(Some(Rejection { revision, ..Rejection::clone(&rejected) }));
        }
    }

    pub(super) fn reject(&self, problems: Vec<Problem>, revision: Revision) {
        debug_assert!(
            problems.iter().all(Problem::is_whole),
            "{problems:?} have one without a reason, or without advice"
        );
        let before = self.status.rejected.get();
        if before.as_ref().is_some_and(|before| before.problems == problems && before.is_whole()) {
            return self.rename_rejected(revision);
        }
        tracing::error!(problems = problems.len(), "configuration rejected; the last good one stays in force");
        for problem in problems.iter().take(MAX_LOGGED_PROBLEMS) {
            tracing::error!("{problem}");
        }
        if let Some(more) = problems.len().checked_sub(MAX_LOGGED_PROBLEMS).filter(|more| *more > 0) {
            tracing::error!(more, "more problems: see /configz or `gatepost check`");
        }
        let since = before.map_or_else(SystemTime::now, |before| before.since);
        self.status.rejected.set(Some(Rejection { problems, revision, since, quarantined: Vec::new() }));
    }

    /// Warning that hooks are guaranteed more connections than this process may have. It serves all the same: one that
    /// does not start lets no write pass.
    pub(super) fn report_missing_connections(&mut self, hooks: usize) {
        /// Of so many files more, hooks get one at least (`runtime::resources`).
        const FILES_PER_CONNECTION: usize = 4;
        let connections = &self.placements.resources.connections;
        let (missing, limit) = (connections.missing(), connections.limit());
        if std::mem::replace(&mut self.logged_missing, missing) == missing || missing == 0 {
            return;
        }
        let effect = if hooks > limit { "calls to some hooks always fail" } else { "calls fail under load" };
        tracing::error!(
            hooks,
            connections = limit,
            missing,
            "too few open files for connections to this many hooks: {effect}; raise the hard limit of RLIMIT_NOFILE \
             (LimitNOFILE=, ulimit -Hn) by {}, which is always enough",
            FILES_PER_CONNECTION * missing
        );
    }

    pub(super) fn report_failed_read(&mut self, error: ReadError) {
        // A peer that is no store of ours fails in several ways, in turn.
        if !self.read_failures.logged.contains(&error) && self.read_failures.logged.len() < MAX_LOGGED_CAUSES {
            tracing::warn!(%error, "cannot read the configuration; the one in force is getting old");
            self.read_failures.logged.push(error.clone());
        }
        let before = self.status.failed_read.get();
        self.status.failed_read.set(Some(FailedRead {
            error: error.to_string(),
            since: before.as_ref().map_or_else(SystemTime::now, |before| before.since),
            count: before.map_or(0, |before| before.count) + 1,
        }));
        let stale = !self.current.is_fresh(Instant::now().into_std());
        if stale && !self.read_failures.logged_stale {
            tracing::error!(after = ?self.current.trusted_for(), "the configuration is stale: every request is refused until it \
                                                   can be read");
            self.read_failures.logged_stale = true;
        }
    }

    pub(super) fn report_recovery(&mut self) {
        if !std::mem::take(&mut self.read_failures.logged).is_empty() {
            tracing::info!(was_stale = self.read_failures.logged_stale, "reading the configuration again");
            self.status.failed_read.set(None);
        }
        self.read_failures.logged_stale = false;
    }
}
