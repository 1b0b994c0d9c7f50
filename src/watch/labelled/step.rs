//! Step: from whose turn it is to what is written of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    act::{Failure, StoredTurnEffect},
    turn::{Ended, Found, Read, Turn, Written, now},
};
use crate::{
    live::Generation,
    telemetry::{InitializerMetrics, InitializerOutcome, Throttle, UnreadableObjects},
};
use gatepost_api::{FailurePolicy, Initializer};
use gatepost_initializers::{
    Correction, CorrectiveAction, HeadRule,
    marks::{InitPhase as LabelPhase, InitState as State, MarkedObject as Standing, MarksStep},
    unfinished::StoredObject,
};
use gatepost_kube_support::KubeError;

/// Tries to write a step while others change the object.
const TRIES: usize = 4;
/// Log lines about objects that cannot be read.
static UNREADABLE_LOG: Throttle = Throttle::new();

/// The initializer whose turn it is, as it was configured when the turn began.
struct Head {
    one: Initializer,
    /// All names of the resource.
    names: Vec<Arc<str>>,
    metrics: Option<Arc<InitializerMetrics>>,
}

impl Head {
    /// Taken out of the generation, which is not to be held for as long as a process takes.
    fn of(generation: &Generation, object: &StoredObject, name: &str) -> Option<Self> {
        let entry = generation.snapshot.initializers_of(&object.group, &object.resource)?;
        let one = entry.initializers.iter().find(|one| *one.name == *name)?.clone();
        let names = entry.initializers.iter().map(|one| Arc::clone(&one.name)).collect();
        Some(Self { metrics: generation.initializers.get(&one.name).cloned(), names, one })
    }

    fn record(&self, outcome: InitializerOutcome, began: Instant) {
        if let Some(metrics) = &self.metrics {
            metrics.record(0, outcome, now().saturating_duration_since(began));
        }
    }
}

impl Turn {
    /// Has the initializer act whose turn it is, and writes what comes of it.
    pub(super) async fn go_on(self) -> Ended {
        for _ in 0..TRIES {
            match self.step().await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(failure) => return Ended::Again(Some(failure)),
            }
        }
        Ended::Again(None)
    }

    /// Carries out a correction, where the object is still as it was when that was decided.
    pub(super) async fn correct(self, correction: Correction) -> Ended {
        match self.corrected(correction).await {
            Ok(ended) => ended,
            Err(failure) => Ended::Again(Some(failure)),
        }
    }

    /// One try; `None` where the object has changed meanwhile.
    async fn step(&self) -> Result<Option<Ended>, KubeError> {
        let (read, object) = match self.read().await? {
            Found::There(read, object) => (read, object),
            Found::Gone => return Ok(Some(Ended::Settled)),
            Found::NoRoom => return Ok(Some(Ended::Again(None))),
        };
        let state = match read.marks.object() {
            Standing::Visible => return Ok(Some(Ended::Settled)),
            Standing::Unreadable => {
                return self.write(&read, MarksStep::Uncover, Vec::new()).await.map(Written::settled);
            }
            Standing::Unfinished(state) => state,
        };
        if state.phase() == LabelPhase::Failed {
            return self.delete().await.map(Some);
        }
        // The time that its head has is that of another one: the watch tells of the change.
        if state.list.head() != self.stored.list.head() {
            return Ok(Some(Ended::Settled));
        }
        let began = now();
        if !self.engine.current.freshness().is_fresh(began) {
            return Ok(Some(Ended::Again(None)));
        }
        let name = state.list.head().unwrap_or_default();
        let head = Head::of(&self.engine.current.load(), &self.stored, name);
        let Some(head) = head else { return Ok(Some(Ended::Waits)) };
        let end = self.since + head.one.timeout;
        let acted = match object {
            Ok(object) => self.act(&head.one, (&state, object), end.max(began + Duration::from_millis(1))).await,
            // Only a client of the apiserver can act on it.
            Err(at) => head.one.acts_in_flight().then(|| {
                UnreadableObjects::StoredUnfinished.count();
                if let Some(more) = UNREADABLE_LOG.pass() {
                    let (resource, fix) = (&*self.stored.resource, "have it made again, nested less than 128 deep");
                    tracing::warn!(
                        resource,
                        at,
                        more,
                        fix,
                        "a stored object cannot be read; its initializer has failed"
                    );
                }
                Err(Failure::Unable(format!("the object cannot be read: it is nested too deep, or no JSON ({at})")))
            }),
        };
        let Some(acted) = acted else { return Ok(Some(Ended::Waits)) };
        let known = |add: &str| head.names.iter().any(|name| **name == *add);
        let after = match acted {
            Err(Failure::NoRoom) if now() < end => return Ok(Some(Ended::Again(None))),
            Err(Failure::Unread(why)) if now() < end => return Ok(Some(Ended::Again(Some(why)))),
            Err(failure) => Err(failure),
            Ok(StoredTurnEffect { changes, adds }) if adds.iter().all(|add| known(add)) => match state.done(name, adds)
            {
                Ok(after) => Ok((after, changes)),
                Err(_) => Err(Failure::Unable("it adds initializers that had a turn, or too many".to_owned())),
            },
            Ok(_) => Err(Failure::Unable("it adds initializers that this resource has not".to_owned())),
        };
        let failure = match after {
            Ok((after, changes)) => {
                let outcome = match changes.is_empty() {
                    true => InitializerOutcome::Unchanged,
                    false => InitializerOutcome::Changed,
                };
                match self.write(&read, MarksStep::to(&after), changes).await? {
                    Written::Done => {
                        head.record(outcome, began);
                        return Ok(Some(Ended::Settled));
                    }
                    Written::Outdated => return Ok(None),
                    Written::Refused(why, _) => {
                        Failure::Unable(format!("the apiserver does not take what it makes of the object: {why}"))
                    }
                }
            }
            Err(failure) => failure,
        };
        let rejected = matches!(failure, Failure::Rejected(_));
        // Its process may have gone because it was taken out of the configuration meanwhile. No object fails for that.
        if !rejected && Head::of(&self.engine.current.load(), &self.stored, name).is_none() {
            return Ok(Some(Ended::Waits));
        }
        match failure.result(name, head.one.failure_policy) {
            Some(result) => {
                let outcome = if rejected { InitializerOutcome::Rejected } else { InitializerOutcome::FailedClosed };
                let ended = self.fail(&read, &state.failed(result)).await?;
                if ended.is_some() {
                    head.record(outcome, began);
                }
                Ok(ended)
            }
            None => {
                let passed = self.pass_over(&read, &state, name).await?;
                Ok(passed.map(|(ended, outcome)| {
                    head.record(outcome, began);
                    ended
                }))
            }
        }
    }

    async fn corrected(&self, Correction { object, remedy }: Correction) -> Result<Ended, KubeError> {
        let Some(read) = self.read_marks().await? else { return Ok(Ended::Settled) };
        let state = match read.marks.object() {
            Standing::Unfinished(state) if read.version == *object.resource_version => state,
            // Something has happened to it: its head has not been there for so long.
            _ => return Ok(Ended::Settled),
        };
        let ended = match remedy {
            CorrectiveAction::RemoveHead(head) => self.pass_over(&read, &state, &head).await?.map(|(ended, _)| ended),
            CorrectiveAction::Fail(status) if state.phase() == LabelPhase::Pending => {
                self.fail(&read, &state.failed(*status)).await?
            }
            CorrectiveAction::Fail(_) | CorrectiveAction::Delete if state.phase() == LabelPhase::Failed => {
                Some(self.delete().await?)
            }
            CorrectiveAction::Fail(_) | CorrectiveAction::Delete => Some(Ended::Settled),
        };
        Ok(ended.unwrap_or(Ended::Settled))
    }

    /// Removes the head, which has not acted. An object that the apiserver does not take without it either has failed.
    async fn pass_over(
        &self,
        read: &Read,
        state: &State,
        head: &str,
    ) -> Result<Option<(Ended, InitializerOutcome)>, KubeError> {
        let passed = |ended| (ended, InitializerOutcome::FailedOpen);
        let Ok(after) = state.done(head, Vec::new()) else { return Ok(Some(passed(Ended::Settled))) };
        match self.write(read, MarksStep::to(&after), Vec::new()).await? {
            Written::Refused(why, _) => {
                let why = format!("the apiserver does not take the object any more: {why}");
                let result = Failure::Unable(why).result(head, FailurePolicy::Fail).unwrap_or_default();
                let ended = self.fail(read, &state.failed(result)).await?;
                Ok(ended.map(|ended| (ended, InitializerOutcome::FailedClosed)))
            }
            written => Ok(written.settled().map(passed)),
        }
    }

    /// Says that the object has failed, so that whoever watches it sees why, and deletes it. Where even that cannot be said
    /// it is deleted.
    async fn fail(&self, read: &Read, failed: &State) -> Result<Option<Ended>, KubeError> {
        match self.write(read, MarksStep::to(failed), Vec::new()).await? {
            Written::Done | Written::Refused(..) => self.delete().await.map(Some),
            Written::Outdated => Ok(None),
        }
    }
}

/// Configuration of the head of an object.
pub(super) fn head_rule(generation: &Generation, object: &StoredObject) -> HeadRule {
    HeadRule::of(generation.snapshot.initializers_of(&object.group, &object.resource), object)
}
