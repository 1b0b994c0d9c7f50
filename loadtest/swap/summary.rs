//! Summary: the figures of a run, against the target.

use std::{fmt::Write, time::Duration};

use super::{Phase, Repetition, Settings};
use crate::{
    Fallible,
    figures::{ENOUGH, median},
    generate::{Report, histogram},
    machine,
    results::Results,
};

/// p99 while the configuration is swapped may be so many times that of a quiet phase.
const TARGET: f64 = 1.10;

/// One repetition, for whoever watches.
pub(super) fn line(number: usize, Repetition { quiet, swapping }: &Repetition) -> String {
    let one = |phase: &Phase| {
        let (p50, p99) = (phase.report.p50() / 1e3, phase.report.p99() / 1e3);
        format!("p50 {p50:.0} us, p99 {p99:.0} us, {} swaps", phase.swaps)
    };
    format!("{:>3}  quiet: {}; swapping: {}", number + 1, one(quiet), one(swapping))
}

/// Ends the README and prints the table.
pub(super) fn write(
    settings: &Settings,
    results: &Results,
    repetitions: &[Repetition],
    took: Duration,
) -> Fallible<()> {
    let of = |value: &dyn Fn(&Repetition) -> f64| median(repetitions.iter().map(value).collect());
    let mut table = String::from("| figure | quiet | swapping | ratio |\n| --- | --- | --- | --- |\n");
    let mut csv = String::from("figure,quiet,swapping,ratio\n");
    let mut row = |figure: &str, quiet: f64, swapping: f64, ratio: f64| {
        let _ = writeln!(table, "| {figure} | {quiet:.2} | {swapping:.2} | {ratio:.3} |");
        let _ = writeln!(csv, "{figure},{quiet:.3},{swapping:.3},{ratio:.4}");
    };
    type Figure = (&'static str, fn(&Report) -> f64);
    let figures: [Figure; 4] = [
        ("p50_us", |report| report.p50() / 1e3),
        ("p99_us", |report| report.p99() / 1e3),
        ("cpu_us_per_review", |report| report.cpu_us_per_review.unwrap_or(f64::NAN)),
        ("reviews_per_second", |report| report.rate),
    ];
    let mut p99_ratio = f64::NAN;
    for (figure, value) in figures {
        let ratio = of(&|rep| value(&rep.swapping.report) / value(&rep.quiet.report));
        row(figure, of(&|rep| value(&rep.quiet.report)), of(&|rep| value(&rep.swapping.report)), ratio);
        if figure == "p99_us" {
            p99_ratio = ratio;
        }
    }
    let mut all = [histogram()?, histogram()?];
    for repetition in repetitions {
        repetition.quiet.report.add_to(&mut all[0])?;
        repetition.swapping.report.add_to(&mut all[1])?;
    }
    for (figure, quantile) in [("p99_us_all_samples", 0.99), ("p999_us_all_samples", 0.999)] {
        let [quiet, swapping] = all.each_ref().map(|all| all.value_at_quantile(quantile) as f64 / 1e3);
        row(figure, quiet, swapping, swapping / quiet);
    }
    let swaps: u64 = repetitions.iter().map(|repetition| repetition.swapping.swaps).sum();
    let idle: u64 = repetitions.iter().map(|repetition| repetition.quiet.swaps).sum();
    let few = all.iter().any(|all| all.len() / (repetitions.len().max(1) as u64) < ENOUGH);
    let met = match (few, p99_ratio < TARGET) {
        (true, _) => "too few samples",
        (false, true) => "yes",
        (false, false) => "no",
    };
    let text = format!(
        "\n- load average when it ended: {}\n- {} hooks, of which a review concerns {}; {} reviews a second of {}\n\
         - {} repetitions of {:?} a phase; {} and {} reviews in all; swaps: {idle} and {swaps}\n- the whole run took {} s\n\n\
         Medians over the repetitions of each one's figure and ratio.\n\n{table}\n\
         p99 swapping ÷ quiet: {p99_ratio:.3}, target < {TARGET}, met: {met}\n",
        machine::load_average(),
        settings.hooks,
        settings.matched,
        settings.rate,
        settings.size,
        repetitions.len(),
        settings.window,
        all[0].len(),
        all[1].len(),
        took.as_secs(),
    );
    println!("{text}");
    results.write("summary.csv", &csv)?;
    results.append("README.md", &text)
}
