//! Tally: the repetitions of one variant taken together.
//!
//! Percentiles are those of all writes. CPU is the median over the repetitions, and what hooks add the median of the
//! differences to the run without hooks in the same repetition: a noisy neighbour then spoils both sides or neither.

use super::{
    cell::Cell,
    repetition::{Cpu, Repetition},
    variant::Variant,
};
use crate::{figures::median, generate::histogram};

/// One line of the table. Milliseconds, microseconds a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) variant: Variant,
    pub(super) writes: u64,
    pub(super) rate: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) cpu: Cpu,
    /// Time that the hooks add to apiserver and sidecar; not a number where no run without hooks stands beside it.
    pub(super) added: f64,
    /// Calls of hooks a write.
    pub(super) calls: f64,
}

impl Cell {
    /// The variants that were measured, in the order of the tables.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        Variant::ALL.into_iter().filter_map(|variant| self.tally(variant)).collect()
    }

    /// One variant; none if it was not measured.
    pub(super) fn tally(&self, variant: Variant) -> Option<Tally> {
        let mut all = histogram().ok()?;
        for repetition in self.of(variant) {
            all.add(&repetition.latencies).ok()?;
        }
        if all.is_empty() {
            return None;
        }
        let over =
            |figure: fn(&Cpu) -> f64| median(self.of(variant).map(|repetition| figure(&repetition.cpu())).collect());
        let seconds: f64 = self.of(variant).map(|repetition| repetition.seconds).sum();
        let at = |quantile| all.value_at_quantile(quantile) as f64 / 1e6;
        Some(Tally {
            variant,
            writes: all.len(),
            rate: all.len() as f64 / seconds,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            cpu: Cpu {
                apiserver: over(|cpu| cpu.apiserver),
                sidecar: over(|cpu| cpu.sidecar),
                hooks: over(|cpu| cpu.hooks),
            },
            added: median(self.added(variant)),
            calls: median(self.of(variant).map(|repetition| repetition.calls).collect()),
        })
    }

    /// Cost that the hooks of one variant add, as a part of another's: the median of each repetition's ratio.
    pub(super) fn added_ratio(&self, variant: Variant, over: Variant) -> f64 {
        let pairs = self.added(variant).into_iter().zip(self.added(over));
        median(pairs.map(|(one, other)| one / other).collect())
    }

    /// The p99 of all writes of one variant as a part of another's.
    pub(super) fn p99_ratio(&self, variant: Variant, over: Variant) -> f64 {
        self.ratio(variant, over, |tally| tally.p99)
    }

    /// The median of all writes of one variant as a part of another's.
    pub(super) fn p50_ratio(&self, variant: Variant, over: Variant) -> f64 {
        self.ratio(variant, over, |tally| tally.p50)
    }

    fn ratio(&self, variant: Variant, over: Variant, figure: fn(&Tally) -> f64) -> f64 {
        let figure = |variant| self.tally(variant).map_or(f64::NAN, |tally| figure(&tally));
        figure(variant) / figure(over)
    }

    /// In each repetition, in the order of their numbers.
    fn added(&self, variant: Variant) -> Vec<f64> {
        let none = self.of(variant.without_hooks()).map(|repetition| repetition.cpu().counted());
        self.of(variant)
            .map(|repetition| repetition.cpu().counted())
            .zip(none)
            .map(|(with, without)| with - without)
            .collect()
    }

    fn of(&self, variant: Variant) -> impl Iterator<Item = &Repetition> {
        self.repetitions.iter().filter(move |repetition| repetition.variant == variant)
    }
}

#[cfg(test)]
mod tests;
