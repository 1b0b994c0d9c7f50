//! `--mutating`: eight hooks that may change the object; none of them does, or the fourth.
//!
//! The apiserver asks mutating hooks one after another. With eight writers on few cores that shows as CPU; with one
//! writer and hooks that wait, as they do for a database or a registry, it shows as latency.

use std::{fmt::Write, time::Duration};

use super::{
    api::Api,
    cell::Cell,
    judge,
    plan::{FOURTH_PATCHES, FOURTH_PATCHES_ALL_WAIT, NONE_PATCHES, NONE_PATCHES_ALL_WAIT, Plan},
    programs::Programs,
    repetition::Cpu,
    rig::Rig,
    summary,
    tally::Tally,
    task::{Kind, Task},
    variant::Variant,
};
use crate::{Fallible, figures::ENOUGH, results::Results};

const HOOKS: usize = 8;
const FOURTH: Option<usize> = Some(4);
const WAIT: Duration = Duration::from_millis(5);

/// Title and task of the cells by that name.
fn series(name: &str) -> (&'static str, Task) {
    let task = |wait, patching| Task { kind: Kind::Mutating, wait, patching };
    match name {
        NONE_PATCHES => ("Eight writers, no hook patches", task(Duration::ZERO, None)),
        FOURTH_PATCHES => ("Eight writers, the fourth hook patches", task(Duration::ZERO, FOURTH)),
        NONE_PATCHES_ALL_WAIT => ("One writer, no hook patches, each waits 5 ms", task(WAIT, None)),
        _ => ("One writer, the fourth hook patches, each waits 5 ms", task(WAIT, FOURTH)),
    }
}

const ALL: [&str; 4] = [NONE_PATCHES, FOURTH_PATCHES, NONE_PATCHES_ALL_WAIT, FOURTH_PATCHES_ALL_WAIT];

/// Measures every cell.
pub(super) async fn measure(
    plan: &Plan<'_>,
    programs: &Programs,
    api: &mut Api<'_>,
    results: &Results,
) -> Fallible<Vec<Cell>> {
    let mut cells = Vec::new();
    for name in ALL {
        let (title, task) = series(name);
        println!("{title}");
        let alone = !task.wait.is_zero();
        let variants = plan.mutating(name, plan.sizes()[0], alone).variants;
        let rig = Rig::start(programs, &variants, (task, HOOKS), api.pids())?;
        for size in plan.sizes() {
            let cell = Cell::measure(api, &rig, &plan.mutating(name, size, alone), results).await?;
            println!("{}", summary::lines(&cell));
            cells.push(cell);
        }
        api.unregister().await?;
    }
    Ok(cells)
}

/// `summary.md`: a table a series, and the targets.
pub(super) fn markdown(cells: &[Cell], plan: &Plan<'_>) -> String {
    let mut text = String::new();
    if plan.is_quick() {
        text.push_str("**A quick run: too few writes to quote. It shows that everything works.**\n\n");
    }
    for name in ALL {
        let _ = writeln!(text, "## {}\n", series(name).0);
        table(&mut text, cells.iter().filter(|cell| cell.course == name));
    }
    text.push_str(LEGEND);
    summary::targets(&mut text, cells.iter().flat_map(judge::mutating));
    text
}

const LEGEND: &str = "\
Eight JSON hooks. CPU is user and system time of the whole process, in microseconds a write. *Added* is apiserver and
sidecar, less the apiserver without hooks beside it. ÷ (a) is that part of what direct adds or takes. *calls* are the
calls of hooks a write: more than eight where hooks were asked about an object that another then patched. \\* marks a p99
of fewer than 10,000 writes: indicative.\n";

fn table<'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell>) {
    text.push_str(
        "| object | way | writes/s | p50 ms | p99 ms | apiserver | sidecar | hooks | calls | added | added ÷ (a) | \
         p50 ÷ (a) | p99 ÷ (a) |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for cell in cells {
        for tally in cell.tallies() {
            let Tally { variant, writes, rate, p50, p99, cpu, added, calls, .. } = tally;
            let Cpu { apiserver, sidecar, hooks } = cpu;
            let few = if writes < ENOUGH { "\\*" } else { "" };
            let ratios = match variant {
                none if none.is_none() => " |  |  | ".to_owned(),
                _ => format!(
                    "{added:.0} | {:.2} | {:.2} | {:.2}",
                    cell.added_ratio(variant, Variant::Direct),
                    cell.p50_ratio(variant, Variant::Direct),
                    cell.p99_ratio(variant, Variant::Direct)
                ),
            };
            let _ = writeln!(
                text,
                "| {}iB | {} | {rate:.0} | {p50:.2} | {p99:.2}{few} | {apiserver:.0} | {sidecar:.0} | {hooks:.0} | \
                 {calls:.1} | {ratios} |",
                cell.size,
                variant.label(),
            );
        }
    }
    text.push('\n');
}
