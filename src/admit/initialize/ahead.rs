//! Ahead: initializers that say `parallel` are asked at once, about the object as it is when the first has its turn.
//!
//! Each is to touch fields of its own. An answer counts when its turn comes, unless it touches fields that the answers
//! before it have touched, or something else has acted in between: then the initializer is asked again, in order.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::act::{Answer, Failure, Turn, labels};
use crate::{
    admit::{Case, lookup::Lookup, now, patched::Patched},
    initialize::Initialization,
    model::{Initializer, ResourceInitializers},
    patch::Fields,
};

/// Answers that came before their turns.
#[derive(Default)]
pub(super) struct Ahead {
    /// In the order of their turns.
    answers: VecDeque<(Arc<str>, Result<Answer, Failure>)>,
    /// The object that they are about.
    of: Option<Arc<Patched>>,
    /// Time at which they were asked.
    pub(super) began: Option<Instant>,
    /// Fields that the initializers before have touched, in their turns so far.
    touched: Fields,
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

/// Does the initializer refuse the object?
fn refuses(answer: &Result<Answer, Failure>) -> bool {
    matches!(answer, Err(failure) if failure.is_rejection())
}

impl Ahead {
    /// Asks the head and those beside it. Ends early with a refusal: the object is not created, whatever the others say.
    pub(super) async fn ask(
        &mut self,
        case: Case<'_>,
        entry: &ResourceInitializers,
        way: &Initialization,
        (object, lookup): (Option<&Arc<Patched>>, &mut Lookup<'_>),
    ) {
        let group = group(entry, way);
        if group.is_empty() {
            return;
        }
        let (began, labels) = (now(), labels(lookup).await);
        let mut asking = FuturesUnordered::new();
        for (at, one) in group.iter().copied().enumerate() {
            let (turn, labels) = (Turn { case, one, before: object.cloned(), began, creator: None }, labels.clone());
            asking.push(async move { (at, turn.asked(labels).await) });
        }
        let mut answers: Vec<_> = group.iter().map(|one| (Arc::clone(&one.name), None)).collect();
        while let Some((at, answer)) = asking.next().await {
            let refuses = refuses(&answer);
            if let Some(place) = answers.get_mut(at) {
                place.1 = Some(answer);
            }
            if refuses {
                // Initializers without an answer have no say.
                break;
            }
        }
        self.answers = answers.into_iter().filter_map(|(name, answer)| Some((name, answer?))).collect();
        (self.of, self.began, self.touched) = (object.cloned(), Some(began), Fields::default());
    }

    /// A refusal among the answers, and whose it is.
    pub(super) fn refusal(&mut self) -> Option<(Arc<str>, Failure)> {
        let at = self.answers.iter().position(|(_, answer)| refuses(answer))?;
        let (name, answer) = self.answers.remove(at)?;
        Some((name, answer.err()?))
    }

    /// Answer of the initializer, where it counts for the object as it is.
    pub(super) fn take(&mut self, name: &str, object: Option<&Arc<Patched>>) -> Option<Result<Answer, Failure>> {
        let same = match (&self.of, object) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !same || self.answers.front().is_none_or(|(first, _)| **first != *name) {
            self.answers.clear();
            return None;
        }
        let (_, answer) = self.answers.pop_front()?;
        if let Ok(found) = &answer {
            if self.touched.meet(&found.fields) {
                return None;
            }
            self.touched.join(found.fields.clone());
        }
        Some(answer)
    }

    /// The object as an answer that counted has left it: the others' answers still count for it.
    pub(super) fn is_now(&mut self, object: Option<&Arc<Patched>>) {
        self.of = object.cloned();
    }

    /// Are no answers left?
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
