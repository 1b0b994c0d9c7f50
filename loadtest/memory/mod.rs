//! `memory`: the most memory that the product takes, beside its budget.
//!
//! Each attack of `tests/hostile/greedy.rs` meets a `gatepost serve` of its own, so that the most resident memory that
//! it ever had is that attack's. Resident memory is read twenty times a second besides.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what is shared with the tests is used in part"
)]

#[path = "../../tests/hostile/bytes/mod.rs"]
mod bytes;
#[path = "../../tests/hostile/greedy.rs"]
mod greedy;
#[path = "../../tests/hostile/hook.rs"]
mod hook;
#[path = "../../tests/hostile/notes.rs"]
mod notes;
mod served;
mod summary;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use greedy::Greedy;
use served::Served;

use crate::{Fallible, machine, process, product::ProductArgs, results::Results};

/// Time between two looks at what is resident.
const LOOK: Duration = Duration::from_millis(50);
/// Memory of the process besides twice its budget.
const BESIDES: u64 = 64 << 20;

/// `memory`: how hard it is pressed.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The budget that `gatepost serve` is given, in MiB
    #[arg(long, default_value_t = 64)]
    budget: u64,
    /// Load as a multiple of the least that shows the attack
    #[arg(long, default_value_t = 4)]
    times: usize,
    /// Repetitions of each attack; the largest peak counts
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Once, and no more than it takes: shows that it works, nothing to quote
    #[arg(long)]
    quick: bool,
    /// Only attacks with this in their names
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    product: ProductArgs,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

/// One attack on one process.
#[derive(Debug)]
struct Peak {
    attack: &'static str,
    holds: &'static str,
    repetition: usize,
    /// Resident bytes before.
    before: u64,
    /// The most resident bytes ever.
    peak: u64,
    /// Resident bytes five seconds after.
    left: u64,
}

impl Peak {
    /// In multiples of the budget, less what the process may take besides.
    fn factor(&self, budget: u64) -> f64 {
        self.peak.saturating_sub(BESIDES) as f64 / budget as f64
    }
}

/// Measures and writes a dated folder; an error where the bound is missed.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let gatepost = settings.product.workshop()?.gatepost;
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let command = format!("loadtest/memory/run {}", arguments.join(" "));
    let label = if settings.quick { "memory-quick" } else { "memory" };
    let results = Results::folder(&settings.results, label, command.trim_end(), "nothing pinned")?;
    let (reps, times) = if settings.quick { (1, 1) } else { (settings.reps, settings.times) };
    let mut peaks = Vec::new();
    for attack in greedy::ALL.iter().filter(|attack| attack.name.contains(&settings.only)) {
        for repetition in 0..reps {
            let peak = measure(settings, &gatepost, attack, (repetition, times), &results)?;
            println!("{}", summary::line(&peak, settings.budget << 20));
            peaks.push(peak);
        }
    }
    summary::write(settings, times, &results, &peaks, &machine::load_average())
}

/// One attack on a process of its own.
fn measure(
    settings: &Settings,
    gatepost: &std::path::Path,
    attack: &Greedy,
    (repetition, times): (usize, usize),
    results: &Results,
) -> Fallible<Peak> {
    let notes = notes::Notes::default();
    let hooks = (attack.hooks)(&notes);
    let served = Served::start(gatepost, settings, &hooks)?;
    let before = process::resident(served.pid())?;
    let began = Instant::now();
    let mut looks = String::from("seconds,resident_bytes\n");
    let look = |looks: &mut String| -> Fallible<u64> {
        let resident = process::resident(served.pid())?;
        looks.push_str(&format!("{:.2},{resident}\n", began.elapsed().as_secs_f64()));
        thread::sleep(LOOK);
        Ok(resident)
    };
    let address = served.address;
    let press = attack.press;
    let pressing = thread::spawn(move || press(address, times));
    while !pressing.is_finished() {
        look(&mut looks)?;
    }
    pressing.join().map_err(|_| "the attack itself panicked")?;
    let until = Instant::now() + Duration::from_secs(5);
    let mut left = before;
    while Instant::now() < until {
        left = look(&mut looks)?;
    }
    results.write(&format!("raw/{}-{repetition}.csv", attack.name), &looks)?;
    let peak = process::peak_resident(served.pid())?;
    Ok(Peak { attack: attack.name, holds: attack.holds, repetition, before, peak, left })
}
