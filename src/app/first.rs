//! First: generation that a start puts in force, of the source's documents and of those in force before.

use std::time::{Duration, SystemTime};

use super::{Settings, StartError};
use crate::{
    clock::Moment,
    live::{Current, Rejection, current::STALE_AFTER, last_good::InUse},
    rotate::{Candidate, OnInvalid, OwnAddresses, candidate::CandidateCache},
    snapshot::{CheckedFile, Kept, NO_PAUSE, Problem},
    source::{Contents, LastGood, ReadError},
};

/// Configuration that a start puts in force.
#[derive(Debug)]
pub(super) struct First {
    /// Or why there is nothing to decide by.
    pub(super) candidate: Result<Candidate, StartError>,
    /// The states of documents that were in force when the process before this one ended.
    pub(super) kept: Kept,
    /// Time at which the source was found in that state; `None` where that must not decide anything yet.
    pub(super) as_of: Option<Moment>,
}

/// A configuration that was in force before.
struct Restored {
    candidate: Candidate,
    written: SystemTime,
    age: Option<Duration>,
}

impl First {
    /// The first generation: of the read, and of the copy on disk. The state of both is reported to `current`.
    pub(super) fn find(
        settings: &Settings,
        current: &Current,
        (read, read_at): (&Result<Contents, ReadError>, Moment),
        found: Option<LastGood>,
    ) -> Self {
        let own = OwnAddresses::new([settings.listen, settings.admin], settings.uds.as_deref());
        let mut known = CandidateCache::listening_at(own).with_authorizer(settings.cluster().is_some());
        let restored = found.and_then(|found| match restored(&mut known, found, settings) {
            Ok(restored) => Some(restored),
            Err(problems) => {
                refused(current, &problems);
                None
            }
        });
        let kept = restored.as_ref().map(|restored| restored.candidate.kept.clone()).unwrap_or_default();
        let around = (restored.is_some() || settings.on_invalid == OnInvalid::Skip).then_some(&kept);
        // Webhooks that are given back first may be called by nobody, whatever was in force before.
        let undated = read.as_ref().err().and_then(ReadError::contents);
        let dated = undated.is_none().then_some(read_at);
        let contents = match (read, undated) {
            (Ok(contents), _) | (Err(_), Some(contents)) => contents,
            (Err(error), None) => {
                let age = restored.as_ref().and_then(|restored| restored.age).filter(|age| *age < STALE_AFTER);
                let since = age.and_then(|age| read_at.instant.checked_sub(age));
                return match (restored, since) {
                    (Some(restored), Some(instant)) => {
                        in_use(current, &restored, format!("the configuration cannot be read: {error}"));
                        let as_of = Moment { instant, ..read_at };
                        Self { candidate: Ok(restored.candidate), kept, as_of: Some(as_of) }
                    }
                    _ => Self { candidate: Err(error.clone().into()), kept, as_of: None },
                };
            }
        };
        match (known.candidate(contents, settings.on_hazard, around), restored) {
            (Ok(candidate), restored) => {
                if let Some(restored) = restored.filter(|_| candidate.held.iter().any(|held| held.keeps)) {
                    in_use(current, &restored, "documents of the newest configuration cannot be served".to_owned());
                }
                Self { candidate: Ok(candidate), kept, as_of: dated }
            }
            (Err(problems), restored) => {
                current.set_rejected(Some(Rejection {
                    problems: problems.clone(),
                    revision: contents.revision.clone(),
                    since: SystemTime::now(),
                    held: Vec::new(),
                }));
                let Some(restored) = restored else {
                    return Self { candidate: Err(StartError::Invalid(problems)), kept, as_of: None };
                };
                problems.iter().take(100).for_each(|problem| tracing::error!("{problem}"));
                in_use(current, &restored, "the newest configuration is rejected".to_owned());
                Self { candidate: Ok(restored.candidate), kept, as_of: dated }
            }
        }
    }
}

/// Checked and compiled again: this may be another version of the program.
fn restored(known: &mut CandidateCache, found: LastGood, settings: &Settings) -> Result<Restored, Vec<Problem>> {
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

fn refused(current: &Current, problems: &[Problem]) {
    let why = problems.first().map_or_else(|| "its documents contradict each other".to_owned(), ToString::to_string);
    tracing::warn!(why, problems = problems.len(), "the last good configuration on disk is not valid, and not used");
    current.with_last_good(|state| state.refused = Some(why));
}

fn in_use(current: &Current, restored: &Restored, why: String) {
    let written = humantime::format_rfc3339_seconds(restored.written);
    tracing::error!(%written, why, "the last good configuration on disk is in use");
    current.with_last_good(|state| state.in_use = Some(InUse { written: restored.written, why }));
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc, time::Instant};

    use super::*;
    use crate::{clock::slept, snapshot::SourceFile};

    fn file(text: &str) -> SourceFile {
        SourceFile { name: "a.yaml".to_owned(), bytes: text.to_owned().into() }
    }

    const GOOD: &str = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                        externalAdmissionHooks: [{name: one.x, rules: [], clientConfig: {url: 'grpc://127.0.0.1:1'}}]\n";

    /// Generation, age and state in force after a start that reads this, `None` being nothing, and that found the good
    /// one on disk, of that age.
    fn found(read: Option<&str>, age: Option<u64>, disk: &str) -> (Option<usize>, Duration, Current) {
        let current = Current::new(Instant::now());
        current.keeps_last_good("disk".to_owned());
        let read_at = Moment::now(slept);
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
        let first = First::find(&Settings::new("/x"), &current, (&read, read_at), Some(disk));
        let age = first.as_of.map_or(Duration::ZERO, |as_of| read_at.since(as_of));
        let hooks = first.candidate.ok().map(|candidate| candidate.snapshot.hooks.len());
        (hooks, age, current)
    }

    #[test]
    fn what_cannot_be_read_is_served_from_disk_as_long_as_it_is_fresh() {
        let (hooks, age, current) = found(None, Some(3), GOOD);
        assert_eq!((hooks, age), (Some(1), Duration::from_secs(3)), "it is as old as it is");
        assert!(current.last_good().unwrap().in_use.is_some());
        for age in [Some(5), Some(3600), None] {
            let (hooks, _, current) = found(None, age, GOOD);
            assert!(hooks.is_none() && current.last_good().unwrap().in_use.is_none(), "{age:?}");
        }
    }

    #[test]
    fn what_is_read_while_something_is_given_back_is_in_force_and_decides_nothing() {
        let start = |text: &str| {
            let current = Current::new(Instant::now());
            current.keeps_last_good("disk".to_owned());
            let contents = Arc::new(Contents::new(vec![file(text)], BTreeMap::new()));
            let disk = LastGood {
                written: SystemTime::UNIX_EPOCH,
                digest: "d".to_owned(),
                revision: "7".to_owned(),
                age: Some(Duration::ZERO),
                documents: vec![(file(GOOD), BTreeMap::new())],
            };
            let read = Err(ReadError::GivesBack { webhooks: "validating/c/w".to_owned(), contents });
            First::find(&Settings::new("/x"), &current, (&read, Moment::now(slept)), Some(disk))
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
    fn what_is_invalid_is_served_from_disk_however_old_that_is() {
        let (hooks, age, current) = found(Some("]"), None, GOOD);
        assert_eq!((hooks, age), (Some(1), Duration::ZERO), "the source was read");
        assert!(current.last_good().unwrap().in_use.is_some());
        let (hooks, _, current) = found(Some(GOOD), Some(1), GOOD);
        assert!(hooks == Some(1) && current.last_good().unwrap().in_use.is_none());
    }

    #[test]
    fn what_is_on_disk_is_checked_as_everything_is() {
        let (hooks, _, current) = found(Some("]"), Some(1), "]");
        assert!(hooks.is_none() && current.last_good().unwrap().refused.is_some());
        assert!(found(Some(GOOD), Some(1), "]").0.is_some(), "and stops no sound start");
    }
}
