//! `read-proxy`: LIST, GET and WATCH of a real kube-apiserver through `gatepost read-proxy`, beside the same directly.
//!
//! One apiserver and one proxy for the whole run. The two sides take turns within each repetition, the order alternates,
//! and every figure is a median over the repetitions. `list`, `get` and `watch` have a figure each.

mod get;
mod list;
mod objects;
mod proxied;
mod sides;
mod watch;

use std::path::PathBuf;

use clap::ValueEnum;
use proxied::Proxied;
use sides::Sides;

use crate::{Fallible, apiserver::cluster::Cluster, product::ProductArgs, results::Findings, size::Size};

/// `read-proxy`: where the parts are, and how much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The folder of a running tests/e2e/kube/cluster.sh
    #[arg(long, value_name = "FOLDER")]
    cluster: PathBuf,
    #[command(flatten)]
    product: ProductArgs,
    /// A minute: 500 objects, few repetitions; shows that it works, nothing to quote
    #[arg(long)]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES")]
    only: Vec<Measured>,
    /// ConfigMaps in the list
    #[arg(long, value_name = "NUMBER")]
    objects: Option<usize>,
    /// Size of each, without what the apiserver adds
    #[arg(long, default_value = "1K")]
    size: Size,
    /// Repetitions; every figure is a median over them
    #[arg(long, value_name = "NUMBER")]
    reps: Option<usize>,
    /// Direct access on both sides: what then differs is noise
    #[arg(long)]
    control: bool,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measured {
    /// LIST, through the proxy / direct
    List,
    /// GET, through the proxy less direct
    Get,
    /// Arrival of a watch event, through the proxy less direct
    Watch,
}

impl Settings {
    fn objects(&self) -> usize {
        self.objects.unwrap_or(if self.quick { 500 } else { 5000 }).max(1)
    }

    fn reps(&self) -> usize {
        self.reps.unwrap_or(if self.quick { 3 } else { 21 }).max(1)
    }

    /// A number of requests in one repetition.
    fn of(&self, usual: usize) -> usize {
        if self.quick { usual.div_ceil(5) } else { usual }
    }
}

/// Measures and writes a dated folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let cluster = Cluster::read(&settings.cluster)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(settings, &cluster))
}

async fn measure(settings: &Settings, cluster: &Cluster) -> Fallible<()> {
    let command = if settings.quick { "loadtest/read-proxy/run --quick" } else { "loadtest/read-proxy/run" };
    let label = if settings.quick { "read-proxy-quick" } else { "read-proxy" };
    let pinning = "nothing pinned: all processes share all cores";
    let mut findings = Findings::begin(&settings.results, label, command, pinning)?;
    let version = objects::version(cluster).await?;
    let proxied = Proxied::start(settings, cluster)?;
    objects::write(cluster, settings.objects(), settings.size).await?;
    objects::check_hidden(cluster, &proxied.cluster, settings.objects()).await?;
    let other = if settings.control { cluster } else { &proxied.cluster };
    let sides = Sides { direct: cluster, proxied: other };
    let is_wanted = |figure| settings.only.is_empty() || settings.only.contains(&figure);
    if is_wanted(Measured::Get) {
        get::measure(settings, &sides, &mut findings).await?;
    }
    if is_wanted(Measured::Watch) {
        watch::measure(settings, &sides, &mut findings).await?;
    }
    if is_wanted(Measured::List) {
        list::measure(settings, &sides, &mut findings).await?;
    }
    let mut notes = vec![
        format!("kube-apiserver {version}"),
        format!("{} ConfigMaps of {} and what the apiserver adds", settings.objects(), settings.size),
        format!("{} repetitions", settings.reps()),
    ];
    if settings.control {
        notes.push("CONTROL: direct access on both sides; all of it is noise".to_owned());
    }
    findings.finish(&notes)
}
