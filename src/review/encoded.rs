//! Encoded: the encodings of a review that a round's hooks want.

use std::{collections::HashSet, time::Duration};

use tokio::time::timeout_at;

use super::{caller::Caller, select::Asked};
use crate::{
    clock::now,
    model::{CallFailure, Review},
    offload::{self, LARGE},
    wire::encodings::{Encodings, HookEncoding},
};

/// Encodings of the review for these hooks. Where it is large, those that must be written are written beside the
/// worker; one that is not written in time fails the calls that want it.
pub(super) async fn encodings<'r>(asked: &[Asked<'_>], review: &'r Review, caller: &Caller) -> Encodings<'r> {
    if review.bytes.len() < LARGE {
        return Encodings::of(review);
    }
    let forms = asked.iter().map(|asked| HookEncoding::from(asked.live.target.protocol()));
    let forms: HashSet<_> = forms.filter(|form| Encodings::must_write(review, *form)).collect();
    if forms.is_empty() {
        return Encodings::of(review);
    }
    let began = now();
    let (copy, wanted) = (review.clone(), forms.clone());
    let writing = offload::run(review.bytes.len(), move || {
        let encodings = Encodings::of(&copy);
        wanted.into_iter().map(|form| (form, encodings.get(form))).collect()
    });
    let written = timeout_at(caller.deadline.instant().into(), writing).await.unwrap_or_else(|_| {
        let late = CallFailure::Timeout(Duration::from_millis((now() - began).as_millis() as u64));
        forms.into_iter().map(|form| (form, Err(late.clone()))).collect()
    });
    Encodings::with(review, written)
}
