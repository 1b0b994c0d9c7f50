//! `apiserver`: cost of hooks to a real kube-apiserver, asked by its own dispatcher and asked through Gatepost.
//!
//! One apiserver for the whole run. For each number of hooks a rig: the same hooks once for each way to reach them, and
//! a sidecar for each way that has one. In each cell the ways take turns, so that the machine's noise hits all alike.

mod api;
mod cell;
pub(crate) mod cluster;
pub(crate) mod connection;
mod hooks;
mod judge;
mod mutating;
mod object;
mod plan;
pub(crate) mod plot;
mod programs;
mod registration;
mod repetition;
mod rig;
mod service;
mod sidecar;
mod summary;
mod tally;
mod task;
mod variant;
pub(crate) mod writers;

use std::{path::PathBuf, time::Instant};

use api::Api;
use cell::Cell;
use cluster::Cluster;
use plan::Plan;
use programs::Programs;
use rig::Rig;
use task::Task;
use variant::Variant;

use crate::{Fallible, machine, product::ProductArgs, results::Results, size::Size};

/// `apiserver`: where the parts are, and how much of the table is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The folder of a running tests/e2e/kube/cluster.sh
    #[arg(long, value_name = "FOLDER")]
    cluster: PathBuf,
    /// The program of loadtest/apiserver/hook
    #[arg(long, value_name = "PATH")]
    hook: PathBuf,
    #[command(flatten)]
    product: ProductArgs,
    /// Some minutes: 1 and 16 hooks, a few hundred writes; p99 indicative, targets not judged
    #[arg(long)]
    quick: bool,
    /// Another build of Gatepost, in ways of its own: what a change costs
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// The folder of a second cluster.sh, whose apiserver has the admission plugin, which asks at `gatepost.sock` in it
    #[arg(long, value_name = "FOLDER")]
    plugin: Option<PathBuf>,
    /// Eight hooks that may change the object, instead of hooks that judge it
    #[arg(long, conflicts_with = "hooks")]
    mutating: bool,
    /// Road from the apiserver to Gatepost: over loopback, or that and beside it through a Service, as in the cluster
    #[arg(long, value_enum, default_value = "loopback")]
    form: Addressing,
    /// Only these object sizes, such as 2K,50K
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    sizes: Vec<Size>,
    /// Only these numbers of hooks, such as 1,16
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    hooks: Vec<usize>,
    /// Only these ways to reach the hooks; without hooks is always measured beside them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAYS")]
    ways: Vec<Variant>,
    /// Repetitions; CPU is a median over them
    #[arg(long, value_name = "NUMBER")]
    reps: Option<usize>,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

/// Road from the apiserver to Gatepost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Addressing {
    /// A URL of this machine
    Loopback,
    /// The same, and a Service in ways of their own
    Service,
}

/// Runs every cell and writes the folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let cluster = Cluster::read(&settings.cluster)?;
    let plugged = settings.plugin.as_deref().map(Cluster::read).transpose()?;
    let programs = Programs::new(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(settings, (&cluster, plugged.as_ref()), &programs))
}

async fn measure(
    settings: &Settings,
    (cluster, plugged): (&Cluster, Option<&Cluster>),
    programs: &Programs,
) -> Fallible<()> {
    let start = Instant::now();
    let plan = Plan::new(settings);
    let (mut what, mut option) = (String::new(), String::new());
    if settings.mutating {
        (what, option) = ("-mutating".to_owned(), " --mutating".to_owned());
    }
    if settings.form == Addressing::Service {
        what.push_str("-service");
        option.push_str(" --form service");
    }
    if plugged.is_some() {
        what.push_str("-plugin");
        option.push_str(" --plugin");
    }
    let (label, command) = match settings.quick {
        true => (format!("apiserver{what}-quick"), format!("loadtest/apiserver/run{option} --quick")),
        false => (format!("apiserver{what}"), format!("loadtest/apiserver/run{option}")),
    };
    let mut api = Api::of(cluster, plugged);
    let results =
        Results::folder(&settings.results, &label, &command, "nothing pinned: all processes share all cores")?;
    let go = machine::output("go", &["version"]);
    results.append("README.md", &format!("\n- kube-apiserver {}\n- {go}\n", api.version().await?))?;
    results.write("repetitions.csv", repetition::HEADER)?;
    if settings.mutating {
        let cells = mutating::measure(&plan, programs, &mut api, &results).await?;
        let summary = mutating::markdown(&cells, &plan);
        results.write("summary.csv", &summary::csv(&cells))?;
        return conclude(&results, &summary, start);
    }
    let (mut cells, mut hop, mut idle) = (Vec::new(), None, Vec::new());
    for hooks in plan.hooks() {
        let variants = plan.course(plan.sizes()[0]).variants;
        let rig = Rig::start(programs, &variants, (Task::ALLOW, hooks), api.pids())?;
        idle.push(rig.idle()?);
        for size in plan.sizes() {
            let cell = Cell::measure(&mut api, &rig, &plan.course(size), &results).await?;
            println!("{}", summary::lines(&cell));
            cells.push(cell);
        }
        if hooks == 1 {
            hop = Some(Cell::measure(&mut api, &rig, &plan.hop(), &results).await?);
        }
        api.unregister().await?;
    }
    let summary = summary::markdown(&cells, hop.as_ref(), &idle, &plan);
    results.write("summary.csv", &summary::csv(&cells))?;
    results.write("cost.svg", &plot::svg(&summary::csv(&cells))?)?;
    conclude(&results, &format!("{summary}\n![what hooks cost a write](cost.svg)\n"), start)
}

/// Writes the summary, in a file of its own and at the end of the folder's README.
fn conclude(results: &Results, summary: &str, start: Instant) -> Fallible<()> {
    results.write("summary.md", summary)?;
    results.append("README.md", &summary::readme(summary, start.elapsed(), &machine::load_average()))?;
    println!("\n{summary}\n{}", results.path().display());
    Ok(())
}
