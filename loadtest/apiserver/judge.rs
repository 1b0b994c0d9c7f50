//! Judge: targets, and whether they were reached.

use super::{
    cell::Cell,
    plan::{FOURTH_PATCHES_ALL_WAIT, LARGE, MEDIUM, NONE_PATCHES, NONE_PATCHES_ALL_WAIT, SMALL},
    variant::Variant,
};
use crate::figures::ENOUGH;

/// Microseconds that the extra hop may add at p99.
const HOP: f64 = 300.0;

/// One target.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) at_most: f64,
    is_ratio: bool,
    /// Of the side with fewer writes, where the figure is a percentile that takes many
    writes: Option<u64>,
}

impl Judged {
    /// Verdict on the target, with the number of writes that it rests on if they are few.
    pub(super) fn verdict(&self) -> String {
        // Hooks cost something; a ratio that says otherwise is of two numbers smaller than the noise.
        if self.is_ratio && (self.value.is_nan() || self.value <= 0.0) {
            return "not judged: lost in noise".to_owned();
        }
        let verdict = if self.value <= self.at_most { "hit" } else { "**missed**" };
        match self.writes {
            Some(writes) if writes < ENOUGH => format!("{verdict} (indicative: {writes} writes)"),
            _ => verdict.to_owned(),
        }
    }
}

/// Every target that is about `cell`, of those whose ways were measured.
pub(super) fn cell(cell: &Cell) -> Vec<Judged> {
    let Cell { size, hooks, .. } = cell;
    let at = format!("{size}, {hooks} hook{}", if *hooks == 1 { "" } else { "s" });
    let mut judged = Vec::new();
    let mut add = |what: &str, value: f64, at_most: f64, writes: Option<u64>| {
        judged.push(Judged { what: format!("{at}: {what}"), value, at_most, is_ratio: true, writes });
    };
    let writes = cell.tallies().iter().map(|tally| tally.writes).min();
    let both = |one, other| cell.tally(one).is_some() && cell.tally(other).is_some();
    if *hooks == 16 && both(Variant::Json, Variant::Direct) {
        let cpu = [(SMALL, 1.0 / 2.0), (MEDIUM, 1.0 / 3.0), (LARGE, 1.0 / 4.0)];
        if let Some((_, bound)) = cpu.iter().find(|(known, _)| known == size) {
            add("added CPU, (b) ÷ (a)", cell.added_ratio(Variant::Json, Variant::Direct), *bound, None);
        }
        if [MEDIUM, LARGE].contains(size) {
            add("p99, (b) ÷ (a)", cell.p99_ratio(Variant::Json, Variant::Direct), 0.5, writes);
        }
    }
    if both(Variant::Grpc, Variant::Json) {
        add("added CPU, (c) ÷ (b)", cell.added_ratio(Variant::Grpc, Variant::Json), 1.0, None);
        add("p99, (c) ÷ (b)", cell.p99_ratio(Variant::Grpc, Variant::Json), 1.0, writes);
    }
    judged
}

/// Targets of a cell with 8 mutating hooks. Where the hooks wait, the median alone is judged.
pub(super) fn mutating(cell: &Cell) -> Vec<Judged> {
    if cell.tally(Variant::Direct).is_none() || cell.tally(Variant::Json).is_none() {
        return Vec::new();
    }
    let mut judged = Vec::new();
    let mut add = |what: &str, value: f64, at_most: f64, writes: Option<u64>| {
        let what = format!("{}, {}: {what}, (b) ÷ (a)", cell.course, cell.size);
        judged.push(Judged { what, value, at_most, is_ratio: true, writes });
    };
    let p50 = cell.p50_ratio(Variant::Json, Variant::Direct);
    match cell.course {
        NONE_PATCHES => {
            let cpu = [(SMALL, 0.35), (MEDIUM, 0.25), (LARGE, 0.20)];
            if let Some((_, bound)) = cpu.iter().find(|(known, _)| *known == cell.size) {
                add("added CPU", cell.added_ratio(Variant::Json, Variant::Direct), *bound, None);
            }
            let writes = cell.tallies().iter().map(|tally| tally.writes).min();
            add("p50", p50, 0.7, None);
            add("p99", cell.p99_ratio(Variant::Json, Variant::Direct), 0.7, writes);
        }
        NONE_PATCHES_ALL_WAIT => add("p50", p50, 0.25, None),
        FOURTH_PATCHES_ALL_WAIT => add("p50", p50, 0.45, None),
        _ => {}
    }
    judged
}

/// Time that the extra hop adds at p99, in microseconds.
pub(super) fn hop(hop: &Cell) -> Option<Judged> {
    let (direct, json) = (hop.tally(Variant::Direct)?, hop.tally(Variant::Json)?);
    Some(Judged {
        what: "extra hop, one JSON hook, 50K, one writer: microseconds added at p99".to_owned(),
        value: (json.p99 - direct.p99) * 1e3,
        at_most: HOP,
        is_ratio: false,
        writes: Some(direct.writes.min(json.writes)),
    })
}
