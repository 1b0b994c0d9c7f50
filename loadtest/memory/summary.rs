//! Summary: the peaks of a run, against the bound.

use super::{BESIDES, Peak, Settings};
use crate::{Fallible, results::Results};

/// Resident memory may be so many times the budget, besides what is said beside it.
const TARGET: f64 = 2.0;

/// One repetition, for whoever watches.
pub(super) fn line(peak: &Peak, budget: u64) -> String {
    format!(
        "{} {}: {} MiB before, {} MiB at the peak ({:.2} times the budget and 64 MiB), {} MiB after",
        peak.attack,
        peak.repetition + 1,
        peak.before >> 20,
        peak.peak >> 20,
        peak.factor(budget),
        peak.left >> 20
    )
}

/// Ends the README; an error where the bound is missed.
pub(super) fn write(
    settings: &Settings,
    times: usize,
    results: &Results,
    peaks: &[Peak],
    load_average: &str,
) -> Fallible<()> {
    let budget = settings.budget << 20;
    let mut csv = String::from("attack,repetition,before_bytes,peak_bytes,left_bytes,budget_bytes,factor,target,met\n");
    for peak in peaks {
        let factor = peak.factor(budget);
        csv.push_str(&format!(
            "{},{},{},{},{},{budget},{factor:.3},{TARGET},{}\n",
            peak.attack,
            peak.repetition + 1,
            peak.before,
            peak.peak,
            peak.left,
            if factor <= TARGET { "yes" } else { "no" }
        ));
    }
    let mut table = format!(
        "| attack | what is held | peak RSS, MiB | (peak − {} MiB) ÷ budget | met | RSS 5 s after, MiB |\n| --- | --- | --- | --- | --- | --- |\n",
        BESIDES >> 20
    );
    let mut missed = 0;
    for first in peaks.iter().filter(|peak| peak.repetition == 0) {
        let of_it = peaks.iter().filter(|peak| peak.attack == first.attack);
        let Some(worst) = of_it.max_by_key(|peak| peak.peak) else { continue };
        let met = worst.factor(budget) <= TARGET;
        missed += usize::from(!met);
        table.push_str(&format!(
            "| `{}` | {} | {} | {:.2} | {} | {} |\n",
            worst.attack,
            worst.holds,
            worst.peak >> 20,
            worst.factor(budget),
            if met { "yes" } else { "no" },
            worst.left >> 20
        ));
    }
    let text = format!(
        "\n- load average when it ended: {load_average}\n- budget: {} MiB; each attack {times} times what it takes to show it\n\n\
         The worst repetition of each; all of them are in `summary.csv`, and `raw/` has what was resident, 20 times a second.\n\n{table}\n\
         Target: at most {TARGET} times the budget and {} MiB. Missed: {missed}\n",
        settings.budget,
        BESIDES >> 20
    );
    println!("{text}");
    results.write("summary.csv", &csv)?;
    results.append("README.md", &text)?;
    match missed {
        0 => Ok(()),
        _ => Err(format!("{missed} attack(s) made it hold more than its bound").into()),
    }
}
