//! Unasked: mutating hooks whose turn did not come, because the request's time was over before it.

use crate::{model::StatusCause, telemetry::HookOutcome};

/// The most of them that are named one by one.
const MOST: usize = 64;

/// Reason that each of them has.
pub(super) const WHY: &str = "not called: the request's time was over";

/// Hooks that were not asked, in order.
#[derive(Debug, Default)]
pub(super) struct Unasked<'a> {
    named: Vec<(&'a str, HookOutcome)>,
    more: usize,
}

impl<'a> Unasked<'a> {
    /// Adds a hook, with the outcome that it counts as.
    pub(super) fn add(&mut self, hook: &'a str, outcome: HookOutcome) {
        if self.named.len() < MOST {
            self.named.push((hook, outcome));
        } else {
            self.more += 1;
        }
    }

    /// The first of them.
    pub(super) fn named(&self) -> &[(&'a str, HookOutcome)] {
        &self.named
    }

    /// Number of those behind them.
    pub(super) fn more(&self) -> usize {
        self.more
    }

    /// Causes of the rejection: each hook, and how many more there are.
    pub(super) fn causes(&self) -> Vec<StatusCause> {
        let cause = |field: &str, message| StatusCause { reason: "Timeout".into(), message, field: field.to_owned() };
        let each = self.named.iter().map(|(hook, _)| cause(hook, WHY.to_owned()));
        let more = Some(self.more).filter(|more| *more > 0).map(|more| cause("", format!("{more} more hooks {WHY}")));
        each.chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FailureKind;

    #[test]
    fn so_many_are_named_and_the_others_counted() {
        let names: Vec<_> = (0..MOST + 3).map(|n| format!("h{n}.example.com")).collect();
        let mut unasked = Unasked::default();
        for (at, name) in names.iter().enumerate() {
            unasked.add(name, HookOutcome::FailedOpen(FailureKind::Timeout));
            assert_eq!(unasked.causes().len(), (at + 1).min(MOST + 1));
        }
        assert_eq!((unasked.named().len(), unasked.more()), (MOST, 3));
        let causes = unasked.causes();
        assert_eq!((&*causes[0].field, &*causes[0].message), ("h0.example.com", WHY));
        assert_eq!(causes[MOST].message, "3 more hooks not called: the request's time was over");
    }
}
