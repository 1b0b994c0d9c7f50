//! Summary: a line for each engine and size, and what the others take for each unit that Gatepost takes.
//!
//! Percentiles are those of all writes. What an engine adds is apiserver and engine less the apiserver without policies
//! in the same repetition; it and memory are medians over the repetitions, and the ratios are of these medians.

use std::fmt::Write;

use super::{
    engine::Engine,
    turn::{self, Cpu, Turn},
};
use crate::{
    Fallible,
    figures::{ENOUGH, median},
    size::Size,
    targets::Target,
};

/// Aim of each ratio.
const TARGET: Target = Target::AtLeast(3.0);

/// Turns of one size.
#[derive(Debug)]
struct Turns<'a>(Vec<&'a Turn>);

impl Turns<'_> {
    fn of(&self, engine: Engine) -> impl Iterator<Item = &Turn> {
        self.0.iter().copied().filter(move |turn| turn.engine == engine)
    }

    /// Median over the repetitions.
    fn median(&self, engine: Engine, figure: impl Fn(&Turn) -> f64) -> f64 {
        median(self.of(engine).map(figure).collect())
    }

    /// What the engine adds to a write in each repetition.
    fn added(&self, engine: Engine) -> Vec<f64> {
        let sum = |turn: &Turn| turn.cpu_us_per_write.sum();
        self.of(engine).map(sum).zip(self.of(Engine::None).map(sum)).map(|(with, without)| with - without).collect()
    }

    /// CPU of the engine alone in each repetition.
    fn used(&self, engine: Engine) -> Vec<f64> {
        self.of(engine).map(|turn| turn.cpu_us_per_write.engine).collect()
    }

    /// Resident memory after the writes in each repetition.
    fn resident(&self, engine: Engine) -> Vec<f64> {
        self.of(engine).map(|turn| turn.rss_mib.loaded).collect()
    }
}

/// What another takes for each unit of ours.
#[derive(Debug, PartialEq)]
struct Ratio {
    /// Of the medians over the repetitions
    value: f64,
    /// Repetitions in which ours is below zero, and so smaller than the noise
    lost: usize,
}

impl Ratio {
    fn of(peer: Vec<f64>, ours: Vec<f64>) -> Self {
        let lost = ours.iter().filter(|ours| **ours <= 0.0).count();
        Self { value: median(peer) / median(ours), lost }
    }

    fn verdict(&self) -> String {
        let verdict = if TARGET.is_met(self.value) { "yes" } else { "**no**" };
        match self.lost {
            0 => verdict.to_owned(),
            _ if self.value.is_nan() || self.value <= 0.0 => "not judged: lost in noise".to_owned(),
            lost => format!("{verdict}; ours is below zero in {lost} of the repetitions"),
        }
    }
}

/// `summary.csv` and `summary.md`.
pub(super) fn write(turns: &[Turn], sizes: &[Size]) -> Fallible<(String, String)> {
    let mut csv = String::from(
        "size,engine,writes,p50_ms,p99_ms,apiserver_cpu_us_per_write,engine_cpu_us_per_write,added_cpu_us_per_write,\
         rss_started_mib,rss_mib\n",
    );
    let mut text = String::new();
    let mut judged = String::from(
        "## Others ÷ Gatepost\n\n| size | engine | figure | ratio | target | met |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for size in sizes {
        let turns = Turns(turns.iter().filter(|turn| turn.size == *size).collect());
        let _ = write!(
            text,
            "## Pods of {size}iB\n\n| engine | writes | p50 ms | p99 ms | apiserver | engine | added | RSS started, MiB | RSS, MiB |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        );
        for engine in Engine::ALL {
            let latencies = turn::latencies(turns.of(engine))?;
            if latencies.is_empty() {
                continue;
            }
            let [p50, p99] = [0.5, 0.99].map(|quantile| latencies.value_at_quantile(quantile) as f64 / 1e6);
            let cpu = Cpu {
                apiserver: turns.median(engine, |turn| turn.cpu_us_per_write.apiserver),
                engine: turns.median(engine, |turn| turn.cpu_us_per_write.engine),
            };
            let added = median(turns.added(engine));
            let [started, loaded] =
                [turns.median(engine, |turn| turn.rss_mib.started), turns.median(engine, |turn| turn.rss_mib.loaded)];
            let (writes, few) = (latencies.len(), if latencies.len() < ENOUGH { " \\*" } else { "" });
            let (apiserver, engine_cpu) = (cpu.apiserver, cpu.engine);
            let _ = writeln!(
                csv,
                "{size},{},{writes},{p50:.3},{p99:.3},{apiserver:.1},{engine_cpu:.1},{added:.1},{started:.1},{loaded:.1}",
                engine.as_str()
            );
            let _ = writeln!(
                text,
                "| {} | {writes} | {p50:.2} | {p99:.2}{few} | {apiserver:.0} | {engine_cpu:.0} | {added:.0} | {started:.0} | {loaded:.0} |",
                engine.label()
            );
            if matches!(engine, Engine::None | Engine::Gatepost) {
                continue;
            }
            let figures = [
                ("added CPU", Ratio::of(turns.added(engine), turns.added(Engine::Gatepost))),
                ("CPU of the engine", Ratio::of(turns.used(engine), turns.used(Engine::Gatepost))),
                ("RSS", Ratio::of(turns.resident(engine), turns.resident(Engine::Gatepost))),
            ];
            for (figure, ratio) in figures {
                let (label, value, verdict) = (engine.label(), ratio.value, ratio.verdict());
                let _ = writeln!(judged, "| {size} | {label} | {figure} | {value:.2} | {TARGET} | {verdict} |");
            }
        }
        text.push('\n');
    }
    text.push_str(LEGEND);
    text.push_str(&judged);
    Ok((csv, text))
}

const LEGEND: &str = "\
CPU is user and system time of the whole process, in microseconds a write, the median of the repetitions. *Added* is
apiserver and engine, less the apiserver without policies in the same repetition. \\* marks a p99 of fewer than 10,000
writes: indicative.\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_of_medians_and_tells_where_ours_is_noise() {
        let clear = Ratio::of(vec![6.0, 8.0, 30.0], vec![2.0, 4.0, 5.0]);
        assert_eq!((clear.value, clear.verdict().as_str()), (2.0, "**no**"));
        let noisy = Ratio::of(vec![6.0, 8.0, 30.0], vec![-2.0, 1.0, 5.0]);
        assert_eq!((noisy.value, noisy.verdict().as_str()), (8.0, "yes; ours is below zero in 1 of the repetitions"));
        let lost = Ratio::of(vec![6.0, 8.0, 30.0], vec![-2.0, -1.0, 5.0]);
        assert_eq!(lost.verdict(), "not judged: lost in noise");
    }
}
