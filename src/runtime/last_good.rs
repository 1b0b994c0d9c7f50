//! Last good configuration on disk: its use at the start, and its writes afterwards.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::watch, task::spawn_blocking};

use super::{StartError, settings::Settings};
use crate::{
    live::{
        ConfigurationStatus, LastGoodState, Rejection, ReplicaHealth, STALE_AFTER, break_glass::BreakGlassOrigin,
        configuration_status::LastGoodUse,
    },
    rotate::{Candidate, InForce, OnInvalid, OwnAddresses, candidate::CandidateCache},
    source::{Contents, LastGood, LastGoodFile, ReadError, Source, break_glass},
};
use gatepost_base::{
    clock::{BootMoment, Moment, suspended_time},
    files::BlockingReads,
};
use gatepost_config::{CheckedFile, LastGoodDocuments, NO_PAUSE, Problem};

/// Timeout of reading the file at the start.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration that is put in force at the start.
#[derive(Debug)]
pub(super) struct FirstGeneration {
    /// `None` if every review is refused until the source can be read.
    pub(super) candidate: Option<Candidate>,
    /// States of documents that were in force when the previous process ended.
    pub(super) last_good: LastGoodDocuments,
}

impl FirstGeneration {
    /// Reads the source and the copy on disk, and sets the age of the chosen configuration.
    ///
    /// # Errors
    /// Returns an error if no configuration can be used, and retrying would not help.
    pub(super) async fn read(
        settings: &Settings,
        source: &mut Source,
        health: &ReplicaHealth,
        last_good: Option<&LastGoodFile>,
    ) -> Result<Self, StartError> {
        let read_at = Moment::now(suspended_time);
        let read = source.read().await;
        let contents = read.as_ref().map_or_else(ReadError::contents, Some);
        let emergency = is_break_glass_open(health, contents, settings.break_glass_file.as_deref());
        let found = match last_good {
            Some(file) => read_copy(file, health).await,
            None => None,
        };
        let Choice { candidate, kept, as_of } = Choice::make(settings, health, (&read, read_at), found);
        let candidate = match candidate {
            // Reviews are refused until the source can be read, except those that break-glass allows. After an
            // emergency was declared, a restarted sidecar must start.
            Err(error) if settings.source.can_start_without_configuration() || emergency => {
                tracing::error!(%error, "no configuration yet; trying again every second");
                None
            }
            candidate => Some(candidate?),
        };
        match (as_of.filter(|_| candidate.is_some()), &read) {
            (Some(as_of), _) => health.current.freshness().stamp(as_of),
            (None, Err(error)) if candidate.is_some() => {
                tracing::error!(%error, "no review is accepted yet")
            }
            (None, _) => {}
        }
        Ok(Self { candidate, last_good: kept })
    }
}

/// Choice between the newest configuration and the copy on disk.
#[derive(Debug)]
struct Choice {
    /// Configuration to put in force, or why there is none.
    candidate: Result<Candidate, StartError>,
    /// States of documents that were in force when the previous process ended.
    kept: LastGoodDocuments,
    /// Time at which the source was in that state; `None` if the configuration must not decide reviews yet.
    as_of: Option<Moment>,
}

/// Configuration that was in force before.
struct Restored {
    candidate: Candidate,
    written: SystemTime,
    age: Option<Duration>,
}

impl Choice {
    /// Chooses the first generation from the read and the copy on disk, and reports the state of both to `health`.
    fn make(
        settings: &Settings,
        health: &ReplicaHealth,
        (read, read_at): (&Result<Contents, ReadError>, Moment),
        found: Option<LastGood>,
    ) -> Self {
        let own = OwnAddresses::new([settings.listen, settings.admin], settings.uds.as_deref());
        let mut known = CandidateCache::listening_at(own).with_authorizer(settings.cluster().is_some());
        let restored = found.and_then(|found| match check_copy(&mut known, found, settings) {
            Ok(restored) => Some(restored),
            Err(problems) => {
                report_refused(health, &problems);
                None
            }
        });
        let kept = restored.as_ref().map(|restored| restored.candidate.documents.clone()).unwrap_or_default();
        let around = (restored.is_some() || settings.on_invalid == OnInvalid::Skip).then_some(&kept);
        // A `GivesBack` read sets no age: its webhooks must be given back to the apiserver before anybody calls them.
        let undated = read.as_ref().err().and_then(ReadError::contents);
        let dated = undated.is_none().then_some(read_at);
        let contents = match (read, undated) {
            (Ok(contents), _) | (Err(_), Some(contents)) => contents,
            (Err(error), None) => {
                let age = restored.as_ref().and_then(|restored| restored.age).filter(|age| *age < STALE_AFTER);
                let since = age.and_then(|age| read_at.instant.checked_sub(age));
                return match (restored, since) {
                    (Some(restored), Some(instant)) => {
                        report_in_use(health, &restored, format!("the configuration cannot be read: {error}"));
                        let as_of = Moment { instant, ..read_at };
                        Self { candidate: Ok(restored.candidate), kept, as_of: Some(as_of) }
                    }
                    _ => Self { candidate: Err(error.clone().into()), kept, as_of: None },
                };
            }
        };
        match (known.candidate(contents, settings.on_hazard, around), restored) {
            (Ok(candidate), restored) => {
                if let Some(restored) = restored.filter(|_| candidate.quarantined.iter().any(|document| document.keeps))
                {
                    report_in_use(
                        health,
                        &restored,
                        "documents of the newest configuration cannot be served".to_owned(),
                    );
                }
                Self { candidate: Ok(candidate), kept, as_of: dated }
            }
            (Err(problems), restored) => {
                health.status.rejected.set(Some(Rejection {
                    problems: problems.clone(),
                    revision: contents.revision.clone(),
                    since: SystemTime::now(),
                    quarantined: Vec::new(),
                }));
                let Some(restored) = restored else {
                    return Self { candidate: Err(StartError::Invalid(problems)), kept, as_of: None };
                };
                problems.iter().take(100).for_each(|problem| tracing::error!("{problem}"));
                report_in_use(health, &restored, "the newest configuration is rejected".to_owned());
                Self { candidate: Ok(restored.candidate), kept, as_of: dated }
            }
        }
    }
}

/// Checks and compiles the copy again, since another version of the program may have written it.
fn check_copy(known: &mut CandidateCache, found: LastGood, settings: &Settings) -> Result<Restored, Vec<Problem>> {
    let (written, age) = (found.written, found.age);
    let parts: Result<Vec<_>, _> = found
        .documents
        .iter()
        .map(|(file, references)| {
            let read = |path: &str| {
                references.get(path).map(|bytes| bytes.to_vec()).ok_or(std::io::ErrorKind::NotFound.into())
            };
            CheckedFile::checked(file, &read, NO_PAUSE)
        })
        .collect();
    let candidate = known.restored(parts?, (found.digest, &found.revision), settings.on_hazard)?;
    Ok(Restored { candidate, written, age })
}

fn report_refused(health: &ReplicaHealth, problems: &[Problem]) {
    let why = problems.first().map_or_else(|| "its documents contradict each other".to_owned(), ToString::to_string);
    tracing::warn!(why, problems = problems.len(), "the last good configuration on disk is not valid, and not used");
    health.status.update_last_good(|state| state.refused = Some(why));
}

fn report_in_use(health: &ReplicaHealth, restored: &Restored, why: String) {
    let written = humantime::format_rfc3339_seconds(restored.written);
    tracing::error!(%written, why, "the last good configuration on disk is in use");
    health.status.update_last_good(|state| state.in_use = Some(LastGoodUse { written: restored.written, why }));
}

/// Reads the configuration that was in force when the previous process ended; `None` if it cannot be read.
async fn read_copy(file: &LastGoodFile, health: &ReplicaHealth) -> Option<LastGood> {
    health.status.last_good.set(Some(LastGoodState { path: file.shown(), ..LastGoodState::default() }));
    let theirs = file.clone();
    let why = match BlockingReads::default().run(READ_TIMEOUT, move || theirs.read()).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => error.to_string(),
        Err(unread) => unread.to_string(),
    };
    tracing::warn!(why, "the last good configuration on disk is not used");
    health.status.update_last_good(|state| state.refused = Some(why));
    None
}

/// Returns true if a break-glass document is open, in the source (even if that is invalid) or in the local file.
fn is_break_glass_open(health: &ReplicaHealth, contents: Option<&Contents>, file: Option<&Path>) -> bool {
    let break_glasses = &health.break_glass;
    if let Some(contents) = contents {
        break_glasses.set_documents(
            BreakGlassOrigin::Source,
            gatepost_config::break_glass(&contents.files),
            Instant::now(),
            SystemTime::now(),
        );
    }
    file.into_iter().for_each(|file| break_glass::read_at_start(break_glasses, file));
    !break_glasses.open(Instant::now()).is_empty()
}

/// Writer of the last good configuration. A disk that hangs blocks only this loop, which then writes the newest state.
pub(super) struct LastGoodWriter {
    pub(super) file: LastGoodFile,
    pub(super) status: Arc<ConfigurationStatus>,
    pub(super) news: watch::Receiver<Option<InForce>>,
}

impl LastGoodWriter {
    /// Writes each change until all senders are dropped.
    pub(super) async fn run(mut self) {
        let mut saved = None::<String>;
        while self.news.changed().await.is_ok() {
            let Some(wanted) = self.news.borrow_and_update().clone() else { continue };
            let (file, is_saved) = (self.file.clone(), saved.as_ref() == Some(&wanted.digest));
            let digest = wanted.digest.clone();
            let writing = spawn_blocking(move || {
                // If the boot id of the machine is unknown, the age is unknown.
                let read = BootMoment::of(wanted.read).unwrap_or_else(BootMoment::unknown);
                match is_saved {
                    true => file.confirm(read),
                    false => file.write(&wanted.documents, &wanted.digest, &wanted.revision.to_string(), read),
                }
            });
            let failure = match writing.await {
                Ok(written) => written.err().map(|error| error.to_string()),
                Err(panic) => Some(format!("writing it failed; this is a bug in gatepost: {panic}")),
            };
            saved = failure.is_none().then_some(digest);
            self.report(failure, is_saved);
        }
    }

    fn report(&self, failure: Option<String>, only_confirmed: bool) {
        let before = self.status.last_good.get().and_then(|state| state.failure.clone());
        match &failure {
            Some(why) if before.as_ref() != Some(why) => {
                tracing::warn!(
                    why,
                    "cannot write the last good configuration to disk; a restart would find an older one"
                );
            }
            None if before.is_some() => tracing::info!("the last good configuration is written to disk again"),
            _ => {}
        }
        if failure != before || !only_confirmed {
            self.status.update_last_good(|state| {
                if failure.is_none() && !only_confirmed {
                    state.saved = Some(SystemTime::now());
                }
                state.failure = failure;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::live::Current;
    use gatepost_config::SourceFile;

    fn file(text: &str) -> SourceFile {
        SourceFile { name: "a.yaml".to_owned(), bytes: text.to_owned().into() }
    }

    const GOOD: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                        externalAdmissionHooks: [{name: one.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\n";

    /// Generation, age and state in force after a start that reads this, `None` being nothing, and that found the good
    /// one on disk, of that age.
    fn found(read: Option<&str>, age: Option<u64>, disk: &str) -> (Option<usize>, Duration, ReplicaHealth) {
        let health = ReplicaHealth::new(Arc::new(Current::new(Instant::now())));
        health.status.last_good.set(Some(LastGoodState::default()));
        let read_at = Moment::now(suspended_time);
        let read = match read {
            Some(text) => Ok(Contents::new(vec![file(text)], BTreeMap::new())),
            None => Err(ReadError::Hung(Duration::from_secs(1))),
        };
        let disk = LastGood {
            written: SystemTime::UNIX_EPOCH,
            digest: "d".to_owned(),
            revision: "7".to_owned(),
            age: age.map(Duration::from_secs),
            documents: vec![(file(disk), BTreeMap::new())],
        };
        let first = Choice::make(&Settings::new("/x"), &health, (&read, read_at), Some(disk));
        let age = first.as_of.map_or(Duration::ZERO, |as_of| read_at.since(as_of));
        let hooks = first.candidate.ok().map(|candidate| candidate.snapshot.hooks.len());
        (hooks, age, health)
    }

    #[test]
    fn unreadable_source_is_replaced_by_a_fresh_last_good() {
        let (hooks, age, health) = found(None, Some(3), GOOD);
        assert_eq!((hooks, age), (Some(1), Duration::from_secs(3)), "it is as old as it is");
        assert!(health.status.last_good.get().unwrap().in_use.is_some());
        for age in [Some(5), Some(3600), None] {
            let (hooks, _, health) = found(None, age, GOOD);
            assert!(hooks.is_none() && health.status.last_good.get().unwrap().in_use.is_none(), "{age:?}");
        }
    }

    #[test]
    fn first_read_while_webhooks_are_given_back_decides_nothing() {
        let start = |text: &str| {
            let health = ReplicaHealth::new(Arc::new(Current::new(Instant::now())));
            health.status.last_good.set(Some(LastGoodState::default()));
            let contents = Arc::new(Contents::new(vec![file(text)], BTreeMap::new()));
            let disk = LastGood {
                written: SystemTime::UNIX_EPOCH,
                digest: "d".to_owned(),
                revision: "7".to_owned(),
                age: Some(Duration::ZERO),
                documents: vec![(file(GOOD), BTreeMap::new())],
            };
            let read = Err(ReadError::GivesBack { webhooks: "validating/c/w".to_owned(), contents });
            Choice::make(&Settings::new("/x"), &health, (&read, Moment::now(suspended_time)), Some(disk))
        };
        let newest = GOOD.replace("one.x", "two.x");
        let first = start(&newest);
        assert_eq!(&*first.candidate.unwrap().snapshot.hooks[0].name, "two.x");
        assert!(first.as_of.is_none(), "although what is on disk is fresh");
        let first = start("]");
        assert_eq!(&*first.candidate.unwrap().snapshot.hooks[0].name, "one.x");
        assert!(first.as_of.is_none());
    }

    #[test]
    fn invalid_source_is_replaced_by_a_last_good_of_any_age() {
        let (hooks, age, health) = found(Some("]"), None, GOOD);
        assert_eq!((hooks, age), (Some(1), Duration::ZERO), "the source was read");
        assert!(health.status.last_good.get().unwrap().in_use.is_some());
        let (hooks, _, health) = found(Some(GOOD), Some(1), GOOD);
        assert!(hooks == Some(1) && health.status.last_good.get().unwrap().in_use.is_none());
    }

    #[test]
    fn last_good_is_checked_before_it_is_used() {
        let (hooks, _, health) = found(Some("]"), Some(1), "]");
        assert!(hooks.is_none() && health.status.last_good.get().unwrap().refused.is_some());
        assert!(found(Some(GOOD), Some(1), "]").0.is_some(), "and stops no sound start");
    }
}
