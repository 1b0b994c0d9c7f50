//! PatchRates: how often a hook's answers carry a patch, by resource and operation.
//!
//! A call that is sent together with the call of an earlier hook is discarded if that hook patches. So the rates decide
//! which hooks are called speculatively. They are kept with the channel to the hook: they outlive a generation,
//! and are dropped when the hook moves.
//!
//! The table has a fixed size, one word for each entry, and no locks. Two threads that write one entry at the same time
//! might lose an observation. The estimate is then a little worse; no verdict depends on it.

use std::{
    hash::{Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustc_hash::FxHasher;

use gatepost_api::Review;

/// Number of entries. A kind that is never patched has none.
const ENTRIES: usize = 64;
/// Number of entries that one key can use: a free one, or the one with the lowest rate.
const WAYS: usize = 4;
/// Maximum rate, and the mask of the rate in an entry. A rate is in 65,535ths. The other bits are the key. An entry of
/// 0 is free.
const MAX_RATE: u64 = 0xffff;
/// Number of answers that a rate averages, roughly: each answer moves it by an eighth.
const AVERAGED_ANSWERS: u64 = 8;

/// Kind of request: resource, subresource and operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKind(u64);

impl RequestKind {
    /// Returns the kind of this request. Two kinds collide in about one of 10^14 pairs.
    pub fn of(review: &Review) -> Self {
        let mut hasher = FxHasher::default();
        let (resource, operation) = (&review.resource, review.operation);
        (&*resource.group, &*resource.resource, &*review.sub_resource, operation).hash(&mut hasher);
        Self(hasher.finish())
    }

    fn key(self) -> u64 {
        self.0 & !MAX_RATE
    }
}

/// Share of a hook's answers that carry a patch.
#[derive(Debug)]
pub struct PatchRates([AtomicU64; ENTRIES]);

impl Default for PatchRates {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl PatchRates {
    /// Returns the probability, 0 to 1, that the next answer to such a request carries a patch; 0 if nothing is known.
    pub fn chance(&self, kind: RequestKind) -> f32 {
        let known = self.ways(kind).map(|entry| entry.load(Relaxed)).find(|entry| entry & !MAX_RATE == kind.key());
        known.map_or(0.0, |entry| (entry & MAX_RATE) as f32 / MAX_RATE as f32)
    }

    /// Records whether an answer to such a request carried a patch.
    pub fn record(&self, kind: RequestKind, patched: bool) {
        let known = self.ways(kind).find(|entry| entry.load(Relaxed) & !MAX_RATE == kind.key());
        let least = || self.ways(kind).min_by_key(|entry| entry.load(Relaxed) & MAX_RATE).filter(|_| patched);
        let Some(entry) = known.or_else(least) else { return };
        let rate = if known.is_some() { entry.load(Relaxed) & MAX_RATE } else { 0 };
        let rate = match patched {
            true => rate + (MAX_RATE - rate).div_ceil(AVERAGED_ANSWERS),
            false => rate - rate.div_ceil(AVERAGED_ANSWERS),
        };
        // A kind that is no longer patched frees its entry.
        entry.store(if rate == 0 { 0 } else { kind.key() | rate }, Relaxed);
    }

    fn ways(&self, kind: RequestKind) -> impl Iterator<Item = &AtomicU64> {
        // The upper half, as the lower bits of a product vary little.
        let first = (kind.0 >> 32) as usize % (ENTRIES / WAYS) * WAYS;
        self.0.iter().skip(first).take(WAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(number: u64) -> RequestKind {
        let mut hasher = FxHasher::default();
        number.hash(&mut hasher);
        RequestKind(hasher.finish())
    }

    #[test]
    fn patch_rates_follow_the_last_answers() {
        let rates = PatchRates::default();
        let (pods, services) = (kind(1), kind(2));
        assert_eq!(rates.chance(pods), 0.0);
        let answers = (1..20).find(|_| {
            rates.record(pods, true);
            rates.chance(pods) > 0.5
        });
        assert_eq!(answers, Some(6));
        (0..200).for_each(|_| rates.record(pods, true));
        assert_eq!(rates.chance(pods), 1.0);
        assert_eq!(rates.chance(services), 0.0, "another kind of request");
        let answers = (1..20).find(|_| {
            rates.record(pods, false);
            rates.chance(pods) < 0.5
        });
        assert_eq!(answers, Some(6));
        (0..200).for_each(|_| rates.record(pods, false));
        assert!(rates.0.iter().all(|entry| entry.load(Relaxed) == 0), "what patches no longer takes no room");
    }

    #[test]
    fn occasional_patches_have_an_intermediate_rate() {
        let rates = PatchRates::default();
        (0..4000).for_each(|n| rates.record(kind(1), n % 4 == 0));
        let chance = rates.chance(kind(1));
        assert!((0.1..0.4).contains(&chance), "{chance}");
    }

    #[test]
    fn the_patch_rate_table_keeps_the_highest_rates() {
        let rates = PatchRates::default();
        (0..50).for_each(|_| rates.record(kind(1), true));
        for other in 2..5000 {
            rates.record(kind(other), true);
            rates.record(kind(other), false);
        }
        assert_eq!(rates.0.len(), ENTRIES);
        assert!(rates.chance(kind(1)) > 0.9, "{}", rates.chance(kind(1)));
    }
}
