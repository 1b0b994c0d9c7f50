//! Summary: the tables, the targets and what one must know to read them.

use std::{fmt::Write, time::Duration};

use super::{
    cell::Cell,
    judge::{self, Judged},
    plan::Plan,
    repetition::Cpu,
    tally::Tally,
    variant::Variant,
};
use crate::figures::ENOUGH;

/// `summary.csv`.
pub(super) fn csv(cells: &[Cell]) -> String {
    let mut text = String::from(
        "cell,size,hooks,variant,writes,writes_per_s,p50_ms,p99_ms,p999_ms,apiserver_cpu_us_per_write,\
         sidecar_cpu_us_per_write,hooks_cpu_us_per_write,added_cpu_us_per_write,calls_per_write\n",
    );
    for (cell, tally) in rows(cells) {
        let Tally { variant, writes, rate, p50, p99, p999, cpu, added, calls } = tally;
        let Cpu { apiserver, sidecar, hooks } = cpu;
        let _ = writeln!(
            text,
            "{},{},{},{},{writes},{rate:.1},{p50:.3},{p99:.3},{p999:.3},{apiserver:.1},{sidecar:.1},{hooks:.1},{added:.1},\
             {calls:.2}",
            cell.course,
            cell.size,
            cell.hooks,
            variant.as_str()
        );
    }
    text
}

/// `summary.md`: a table a size, the extra hop, the targets.
pub(super) fn markdown(cells: &[Cell], hop: Option<&Cell>, idle: &[Cpu], plan: &Plan<'_>) -> String {
    let mut text = String::new();
    if plan.is_quick() {
        text.push_str("**A quick run: too few writes to quote. It shows that everything works.**\n\n");
    }
    for size in plan.sizes() {
        let _ = writeln!(text, "## {size}iB objects\n");
        let of_size: Vec<&Cell> = cells.iter().filter(|cell| cell.size == size).collect();
        table(&mut text, &of_size);
    }
    text.push_str(LEGEND);
    if let Some(hop) = hop {
        extra_hop(&mut text, hop);
    }
    targets(&mut text, cells.iter().flat_map(judge::cell).chain(hop.and_then(judge::hop)));
    text.push_str("\n## While nobody writes\n\nCPU milliseconds a second of the apiserver, all sidecars, all hooks: ");
    let idle =
        idle.iter().map(|cpu| format!("{:.0}, {:.0}, {:.0}", cpu.apiserver * 1e3, cpu.sidecar * 1e3, cpu.hooks * 1e3));
    let _ = writeln!(text, "{}.", idle.collect::<Vec<_>>().join("; "));
    text
}

/// The end of the folder's README.
pub(super) fn readme(summary: &str, took: Duration, load_average: &str) -> String {
    format!("- the whole run took {} s\n- load average when it ended: {load_average}\n\n{summary}", took.as_secs())
}

/// A cell for the terminal.
pub(super) fn lines(cell: &Cell) -> String {
    let lines = cell.tallies().into_iter().map(|tally| {
        let Tally { variant, rate, p50, p99, added, cpu, .. } = tally;
        format!(
            "{:>5} {:>3} {:<28} {rate:>7.0} writes/s  p50 {p50:>7.2} ms  p99 {p99:>7.2} ms  added {added:>8.0} us \
             (sidecar {:.0})",
            cell.size.to_string(),
            cell.hooks,
            variant.label(),
            cpu.sidecar
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

const LEGEND: &str = "\
CPU is user and system time of the whole process, in microseconds a write. *Added* is apiserver and sidecar, less the
same apiserver without hooks beside it. ÷ (a) is that part of what direct adds; of p99, that part of direct's p99. \\* marks a
p99 of fewer than 10,000 writes: indicative.\n";

fn rows(cells: &[Cell]) -> impl Iterator<Item = (&Cell, Tally)> {
    cells.iter().flat_map(|cell| cell.tallies().into_iter().map(move |tally| (cell, tally)))
}

fn table(text: &mut String, cells: &[&Cell]) {
    text.push_str(
        "| hooks | way | writes/s | p50 ms | p99 ms | p99.9 ms | apiserver | sidecar | hooks | added | added ÷ (a) | p99 ÷ (a) |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for cell in cells {
        for tally in cell.tallies() {
            let Tally { variant, rate, p50, p99, p999, cpu, added, writes, .. } = tally;
            let few = if writes < ENOUGH { "\\*" } else { "" };
            let (added, ratios) = match variant {
                none if none.is_none() => ("".to_owned(), " | ".to_owned()),
                _ => {
                    let cpu = cell.added_ratio(variant, Variant::Direct);
                    (format!("{added:.0}"), format!("{cpu:.2} | {:.2}", cell.p99_ratio(variant, Variant::Direct)))
                }
            };
            let Cpu { apiserver, sidecar, hooks } = cpu;
            let _ = writeln!(
                text,
                "| {} | {} | {rate:.0} | {p50:.2} | {p99:.2}{few} | {p999:.2} | {apiserver:.0} | {sidecar:.0} | {hooks:.0} \
                 | {added} | {ratios} |",
                if variant.is_none() { 0 } else { cell.hooks },
                variant.label()
            );
        }
    }
    text.push('\n');
}

fn extra_hop(text: &mut String, hop: &Cell) {
    let _ = writeln!(text, "\n## The extra hop: one hook, {}iB, one writer\n", hop.size);
    text.push_str("| way | writes | p50 ms | p99 ms | p50 over (a), us | p99 over (a), us |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    let direct = hop.tally(Variant::Direct);
    for Tally { variant, writes, p50, p99, .. } in hop.tallies() {
        let over = direct.as_ref().filter(|_| variant != Variant::Direct);
        let over = over.map_or(" | ".to_owned(), |direct| {
            format!("{:.0} | {:.0}", (p50 - direct.p50) * 1e3, (p99 - direct.p99) * 1e3)
        });
        let _ = writeln!(text, "| {} | {writes} | {p50:.3} | {p99:.3} | {over} |", variant.label());
    }
}

pub(super) fn targets(text: &mut String, judged: impl Iterator<Item = Judged>) {
    text.push_str("\n## Targets\n\n| target | measured | at most | |\n| --- | --- | --- | --- |\n");
    for judged in judged {
        let _ =
            writeln!(text, "| {} | {:.2} | {:.2} | {} |", judged.what, judged.value, judged.at_most, judged.verdict());
    }
}
