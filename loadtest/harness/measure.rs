//! The orchestrator: each group of figures in turn, then the table.

use std::time::Instant;

use crate::{
    Fallible, figures,
    plan::{Figure, Plan},
    results::Results,
    rig::Workshop,
};

/// Measures what the plan asks for.
pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    let start = Instant::now();
    let workshop = Workshop::new(plan)?;
    let label = if plan.quick { "compare-quick" } else { "compare" };
    let mut results = Results::begin(&plan.results, label, &workshop.pinning.describe())?;
    for (figure, measure) in FIGURES {
        if plan.includes(*figure) {
            measure(plan, &workshop, &mut results)?;
        }
    }
    results.note(format!("the whole run took {} s", start.elapsed().as_secs()));
    results.finish()
}

type Measure = fn(&Plan, &Workshop, &mut Results) -> Fallible<()>;

/// The quick and plain ones first; latency takes longest.
const FIGURES: &[(Figure, Measure)] = &[
    (Figure::Cpu, figures::cpu::plain),
    (Figure::Mtls, figures::cpu::mutual_tls),
    (Figure::Allocations, figures::allocations::measure),
    (Figure::Memory, figures::memory::measure),
    (Figure::Hung, figures::hung::measure),
    (Figure::Latency, figures::latency::measure),
];
