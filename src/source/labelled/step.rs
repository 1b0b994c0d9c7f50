//! Step: from the initializer at the head of an object to the write of its effect.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    act::{ActFailure, StoredTurnEffect},
    turn::{ReadMarks, ReadOutcome, Turn, TurnEnd, WriteOutcome},
};
use crate::{
    live::Generation,
    telemetry::{InitializerMetrics, InitializerOutcome, Throttle, UnreadableObjects},
};
use gatepost_api::{FailurePolicy, Initializer};
use gatepost_base::clock::now;
use gatepost_initializers::{
    Correction, CorrectiveAction, TurnFailure,
    marks::{InitPhase as LabelPhase, InitState as State, MarkedObject as Standing, MarksStep},
    unfinished::StoredObject,
};
use gatepost_kube_support::KubeError;

/// Attempts to write a step while others change the object.
const MAX_TRIES: usize = 4;
/// Rate limiter for logs about objects that cannot be read.
static UNREADABLE_LOG: Throttle = Throttle::new();

/// Initializer at the head, as it was configured when the turn began.
struct Head {
    one: Initializer,
    /// All initializer names of the resource.
    names: Vec<Arc<str>>,
    metrics: Option<Arc<InitializerMetrics>>,
}

impl Head {
    /// Copies the configuration of a head, so that the generation is not kept alive while a process acts.
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
    /// Runs the initializer at the head, and writes its effect.
    pub(super) async fn go_on(self) -> TurnEnd {
        for _ in 0..MAX_TRIES {
            match self.step().await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(failure) => return TurnEnd::Retry(Some(failure)),
            }
        }
        TurnEnd::Retry(None)
    }

    /// Carries out a correction if the object is unchanged since the decision.
    pub(super) async fn correct(self, correction: Correction) -> TurnEnd {
        match self.apply_correction(correction).await {
            Ok(ended) => ended,
            Err(failure) => TurnEnd::Retry(Some(failure)),
        }
    }

    /// Makes one attempt; `None` if the object has changed meanwhile.
    async fn step(&self) -> Result<Option<TurnEnd>, KubeError> {
        let (read, object) = match self.read().await? {
            ReadOutcome::Present(read, object) => (read, object),
            ReadOutcome::Gone => return Ok(Some(TurnEnd::Settled)),
            ReadOutcome::NoRoom => return Ok(Some(TurnEnd::Retry(None))),
        };
        let state = match read.marks.object() {
            Standing::Visible => return Ok(Some(TurnEnd::Settled)),
            Standing::Unreadable => {
                return self.write(&read, MarksStep::Uncover, Vec::new()).await.map(WriteOutcome::turn_end);
            }
            Standing::Unfinished(state) => state,
        };
        if state.phase() == LabelPhase::Failed {
            return self.delete().await.map(Some);
        }
        // `since` belongs to the former head; the watch reports the change.
        if state.list.head() != self.stored.list.head() {
            return Ok(Some(TurnEnd::Settled));
        }
        let began = now();
        if !self.engine.current.freshness().is_fresh(began) {
            return Ok(Some(TurnEnd::Retry(None)));
        }
        let name = state.list.head().unwrap_or_default();
        let head = Head::of(&self.engine.current.load(), &self.stored, name);
        let Some(head) = head else { return Ok(Some(TurnEnd::Waiting)) };
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
                Err(ActFailure::unable(format!("the object cannot be read: it is nested too deep, or no JSON ({at})")))
            }),
        };
        let Some(acted) = acted else { return Ok(Some(TurnEnd::Waiting)) };
        let known = |add: &str| head.names.iter().any(|name| **name == *add);
        let after = match acted {
            Err(ActFailure::Turn(failure)) if failure.is_no_room() && now() < end => {
                return Ok(Some(TurnEnd::Retry(None)));
            }
            Err(ActFailure::Unread(why)) if now() < end => return Ok(Some(TurnEnd::Retry(Some(why)))),
            Err(ActFailure::Turn(failure)) => Err(failure),
            Err(ActFailure::Unread(_)) => Err(TurnFailure::Late(head.one.timeout)),
            Ok(StoredTurnEffect { changes, adds }) if adds.iter().all(|add| known(add)) => match state.done(name, adds)
            {
                Ok(after) => Ok((after, changes)),
                Err(_) => Err(TurnFailure::Unable("it adds initializers that had a turn, or too many".into())),
            },
            Ok(_) => Err(TurnFailure::Unable("it adds initializers that this resource has not".into())),
        };
        let failure = match after {
            Ok((after, changes)) => {
                let outcome = match changes.is_empty() {
                    true => InitializerOutcome::Unchanged,
                    false => InitializerOutcome::Changed,
                };
                match self.write(&read, MarksStep::to(&after), changes).await? {
                    WriteOutcome::Done => {
                        head.record(outcome, began);
                        return Ok(Some(TurnEnd::Settled));
                    }
                    WriteOutcome::Outdated => return Ok(None),
                    WriteOutcome::Refused(why, _) => {
                        TurnFailure::Unable(format!("the apiserver does not take what it makes of the object: {why}"))
                    }
                }
            }
            Err(failure) => failure,
        };
        let rejected = matches!(failure, TurnFailure::Rejected(_));
        // The process might have left because the initializer was removed from the configuration. No object fails for
        // that.
        if !rejected && Head::of(&self.engine.current.load(), &self.stored, name).is_none() {
            return Ok(Some(TurnEnd::Waiting));
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
                let passed = self.remove_head(&read, &state, name).await?;
                Ok(passed.map(|(ended, outcome)| {
                    head.record(outcome, began);
                    ended
                }))
            }
        }
    }

    async fn apply_correction(&self, Correction { object, remedy }: Correction) -> Result<TurnEnd, KubeError> {
        let Some(read) = self.read_marks().await? else { return Ok(TurnEnd::Settled) };
        let state = match read.marks.object() {
            Standing::Unfinished(state) if read.version == *object.resource_version => state,
            // The object has changed, so its head is not overdue.
            _ => return Ok(TurnEnd::Settled),
        };
        let ended = match remedy {
            CorrectiveAction::RemoveHead(head) => self.remove_head(&read, &state, &head).await?.map(|(ended, _)| ended),
            CorrectiveAction::Fail(status) if state.phase() == LabelPhase::Pending => {
                self.fail(&read, &state.failed(*status)).await?
            }
            CorrectiveAction::Fail(_) | CorrectiveAction::Delete if state.phase() == LabelPhase::Failed => {
                Some(self.delete().await?)
            }
            CorrectiveAction::Fail(_) | CorrectiveAction::Delete => Some(TurnEnd::Settled),
        };
        Ok(ended.unwrap_or(TurnEnd::Settled))
    }

    /// Removes the head, which did not act. If the apiserver rejects the object without it as well, the object fails.
    async fn remove_head(
        &self,
        read: &ReadMarks,
        state: &State,
        head: &str,
    ) -> Result<Option<(TurnEnd, InitializerOutcome)>, KubeError> {
        let passed = |ended| (ended, InitializerOutcome::FailedOpen);
        let Ok(after) = state.done(head, Vec::new()) else { return Ok(Some(passed(TurnEnd::Settled))) };
        match self.write(read, MarksStep::to(&after), Vec::new()).await? {
            WriteOutcome::Refused(why, _) => {
                let why = format!("the apiserver no longer accepts the object: {why}");
                let result = TurnFailure::Unable(why).result(head, FailurePolicy::Fail).unwrap_or_default();
                let ended = self.fail(read, &state.failed(result)).await?;
                Ok(ended.map(|ended| (ended, InitializerOutcome::FailedClosed)))
            }
            written => Ok(written.turn_end().map(passed)),
        }
    }

    /// Marks the object as failed, so that watchers see the reason, and deletes it. If the mark cannot be written, the
    /// object is deleted anyway.
    async fn fail(&self, read: &ReadMarks, failed: &State) -> Result<Option<TurnEnd>, KubeError> {
        match self.write(read, MarksStep::to(failed), Vec::new()).await? {
            WriteOutcome::Done | WriteOutcome::Refused(..) => self.delete().await.map(Some),
            WriteOutcome::Outdated => Ok(None),
        }
    }
}
