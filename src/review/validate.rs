//! Validation: the phase of the hooks that may only say no.

use super::{
    case::Case,
    outcome::Outcome,
    round::{self, Until},
    select::Selected,
    status::{self, StatusError},
};
use crate::{clock::now, model::Review};

/// Result of the validating phase.
#[derive(Debug, Default)]
pub(super) struct Validation<'a> {
    /// Hooks that were selected.
    pub(super) selected: Selected<'a>,
    /// One for each hook that was asked.
    pub(super) outcomes: Vec<Outcome<'a>>,
    /// Rejection, where no hook's answer gives one.
    pub(super) refusal: Option<StatusError>,
}

/// Asks the validating hooks that this request is for, all at once.
pub(super) async fn validate<'a>(case: Case<'a>, review: &Review) -> Validation<'a> {
    let Case { gate, caller, bypass, .. } = case;
    let selected = match case.selected(review).await {
        Ok(selected) => selected,
        Err(refusal) => return Validation { refusal: Some(refusal), ..Validation::default() },
    };
    let outcomes = if selected.asked.is_empty() {
        Vec::new()
    } else if caller.deadline.left(now()).is_zero() && !bypass.opens_everything() {
        let refusal = Some(Box::new(status::out_of_time()));
        return Validation { selected, refusal, ..Validation::default() };
    } else {
        round::ask(&selected.asked, review, caller, Until::Rejected(gate.reasons)).await
    };
    Validation { selected, outcomes, refusal: None }
}
