//! Parallel calls: initializers that say `parallel` are asked at once, about the object as it is when the first has its turn.
//!
//! Each is to touch fields of its own. An answer counts when its turn comes, unless it touches fields that the answers
//! before it have touched, or something else has acted in between: then the initializer is asked again, in order. The
//! turn of the first does not wait for the answers of the others.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Instant};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout_at;

use super::act::{Answer, Failure, Turn, end_of, labels, until};
use crate::{
    clock::now,
    initialize::Initialization,
    model::{Initializer, ResourceInitializers},
    patch::TouchedFields,
    review::{case::Case, lookup::Lookup, patched::Patched},
};

/// Answer of one, once it is there, by its name.
type Awaited = (Arc<str>, Option<Result<Answer, Failure>>);

/// Answer of one, by its name.
type Asking<'a> = Pin<Box<dyn Future<Output = (Arc<str>, Result<Answer, Failure>)> + Send + 'a>>;

/// Initializers that were asked before their turns.
#[derive(Default)]
pub(super) struct ParallelCalls<'a> {
    /// In the order of their turns, each with its answer once that is there.
    answers: VecDeque<Awaited>,
    /// Calls of initializers without an answer.
    asking: FuturesUnordered<Asking<'a>>,
    /// The object that they are about.
    of: Option<Arc<Patched>>,
    /// Time at which they were asked.
    pub(super) began: Option<Instant>,
    /// Fields that the initializers before have touched, in their turns so far.
    touched: TouchedFields,
}

/// Initializers from the head on that may be asked at once; none where that is not more than one.
fn group<'e>(entry: &'e ResourceInitializers, way: &Initialization) -> Vec<&'e Initializer> {
    let mut group = Vec::new();
    for name in way.pending() {
        let Some(one) = entry.initializers.iter().find(|one| *one.name == *name) else { break };
        let behind = |other: &&Initializer| one.after.contains(&Box::from(&*other.name));
        if !one.parallel || one.attach.is_none() || group.iter().any(behind) {
            break;
        }
        group.push(one);
    }
    if group.len() > 1 { group } else { Vec::new() }
}

impl<'a> ParallelCalls<'a> {
    /// Asks the head and those beside it.
    pub(super) async fn ask(
        &mut self,
        case: Case<'a>,
        entry: &'a ResourceInitializers,
        way: &Initialization,
        (object, lookup): (Option<&Arc<Patched>>, &mut Lookup<'_>),
    ) {
        let group = group(entry, way);
        let Some(longest) = group.iter().map(|one| one.timeout).max() else { return };
        let began = now();
        let found = timeout_at(end_of(case).min(began + longest).into(), labels(lookup)).await;
        let together = group.len();
        for one in group {
            let until = until(case, (entry, one), (way, together), began);
            let (name, turn) =
                (Arc::clone(&one.name), Turn { case, one, before: object.cloned(), began, until, creator: None });
            let Ok(labels) = &found else {
                self.answers.push_back((name, Some(Err(turn.late()))));
                continue;
            };
            self.answers.push_back((Arc::clone(&name), None));
            let labels = labels.clone();
            self.asking.push(Box::pin(async move { (name, turn.answer(labels).await) }));
        }
        (self.of, self.began, self.touched) = (object.cloned(), Some(began), TouchedFields::default());
    }

    /// Answer of the initializer whose turn it is, where it counts for the object as it is. Waits for it.
    ///
    /// # Errors
    /// One of them refuses the object, and which: it is not created, whatever the others say.
    pub(super) async fn take(
        &mut self,
        name: &str,
        object: Option<&Arc<Patched>>,
    ) -> Result<Option<Result<Answer, Failure>>, (Arc<str>, Failure)> {
        let same = match (&self.of, object) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !same || self.answers.front().is_none_or(|(first, _)| **first != *name) {
            self.answers.clear();
            self.asking.clear();
            return Ok(None);
        }
        while let Some((_, None)) = self.answers.front() {
            match self.asking.next().await {
                Some((name, Err(failure))) if failure.is_rejection() => return Err((name, failure)),
                Some((name, answer)) => {
                    if let Some(place) = self.answers.iter_mut().find(|(asked, _)| *asked == name) {
                        place.1 = Some(answer);
                    }
                }
                None => break,
            }
        }
        let Some((_, Some(answer))) = self.answers.pop_front() else { return Ok(None) };
        if let Ok(found) = &answer {
            if self.touched.overlaps(&found.fields) {
                return Ok(None);
            }
            self.touched.join(found.fields.clone());
        }
        Ok(Some(answer))
    }

    /// The object as an answer that counted has left it: the others' answers still count for it.
    pub(super) fn is_now(&mut self, object: Option<&Arc<Patched>>) {
        self.of = object.cloned();
    }

    /// Has everyone had its turn who was asked?
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
