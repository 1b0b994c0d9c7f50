//! Uncovered: taken webhooks that our registration does not cover, for a moment.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::adopt::{Reason, SeenWebhook};

/// Time for our registration to cover a taken webhook again before the webhook is given back.
const FOLLOWS: Duration = Duration::from_secs(3);

/// Time from which our registration has not covered a taken webhook, by its id.
#[derive(Debug, Default)]
pub(super) struct Uncovered(BTreeMap<String, Instant>);

impl Uncovered {
    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops the objection that our registration does not cover a taken webhook, for [`FOLLOWS`]: meanwhile the
    /// registration is brought up to date. Not so where somebody has put a condition on it, which may come back each time.
    pub(super) fn forgive(&mut self, seen: &mut Cow<'_, [SeenWebhook]>) {
        let uncovered =
            |seen: &SeenWebhook| seen.standing.carries && matches!(seen.objection, Some(Reason::Uncovered(_)));
        let places: Vec<_> = (0..seen.len()).filter(|place| seen.get(*place).is_some_and(uncovered)).collect();
        let ids: BTreeSet<_> = places.iter().filter_map(|place| Some(seen.get(*place)?.standing.id.clone())).collect();
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            self.0.entry(id).or_insert_with(Instant::now);
        }
        for place in places {
            let Some(one) = seen.to_mut().get_mut(place) else { continue };
            if self.0.get(&one.standing.id).is_some_and(|since| since.elapsed() < FOLLOWS) {
                one.objection = None;
            }
        }
    }
}
