//! `peers`: the same ten policies in Gatepost, Kyverno and Gatekeeper, as webhooks beside one kube-apiserver.
//!
//! In each repetition the engines take turns, each started anew, and no policies at all is one of the turns. Before
//! anything is measured an engine must reject ten Pods that break one policy each, by the name of that policy, and let
//! the Pods of the measurement through.

mod engine;
mod pods;
mod summary;
mod turn;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use engine::{Engine, Running};
use http::{Method, StatusCode};
use turn::{Cpu, Memory, Turn};

use crate::{
    Fallible,
    apiserver::{
        cluster::Cluster,
        connection::{Connection, text},
        writers::Writers,
    },
    machine,
    process::{cpu_time, resident},
    results::Results,
    size::Size,
};

/// Time for the apiserver to call the engine, and for it to know all policies.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Time between two looks at whether it does.
const SETTLE_INTERVAL: Duration = Duration::from_millis(500);

/// Writers, each with its own connection.
const WRITERS: usize = 8;

/// `peers`: where the parts are, and how much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// The folder of a running tests/e2e/kube/cluster.sh
    #[arg(long, value_name = "FOLDER")]
    cluster: PathBuf,
    /// The script that starts and stops an engine
    #[arg(long, value_name = "PATH")]
    script: PathBuf,
    /// Only these engines; without policies is always measured beside them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINES")]
    engines: Vec<Engine>,
    /// Sizes of the Pods
    #[arg(long, value_delimiter = ',', default_value = "4K,50K", value_name = "SIZES")]
    sizes: Vec<Size>,
    /// Writes a second of each size
    #[arg(long, value_delimiter = ',', default_value = "40,8", value_name = "NUMBERS")]
    rates: Vec<u32>,
    /// Measured seconds of a turn; a fifth as many before them warm up
    #[arg(long, default_value_t = 20, value_name = "NUMBER")]
    seconds: u32,
    /// Repetitions; CPU and memory are medians over them
    #[arg(long, default_value_t = 5, value_name = "NUMBER")]
    reps: usize,
    /// Parent of the dated folder
    #[arg(long, default_value = "loadtest/results", value_name = "FOLDER")]
    results: PathBuf,
}

/// Measures and writes a dated folder.
pub(crate) fn run(settings: &Settings) -> Fallible<()> {
    let cluster = Cluster::read(&settings.cluster)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(settings, &cluster))
}

async fn measure(settings: &Settings, cluster: &Cluster) -> Fallible<()> {
    if settings.rates.len() != settings.sizes.len() {
        return Err("--rates needs one number for each of --sizes".into());
    }
    let start = Instant::now();
    let pinning = "nothing pinned: all processes share all cores";
    let results = Results::folder(&settings.results, "peers", "loadtest/peers/run", pinning)?;
    results.write("repetitions.csv", turn::HEADER)?;
    let engines: Vec<Engine> = Engine::ALL
        .into_iter()
        .filter(|engine| *engine == Engine::None || settings.engines.is_empty() || settings.engines.contains(engine))
        .collect();
    let mut turns = Vec::new();
    let mut checked = String::new();
    for number in 0..settings.reps {
        let mut engines = engines.clone();
        let first = number % engines.len();
        engines.rotate_left(first);
        for engine in engines {
            let at = |error| format!("repetition {number}, {}: {error}", engine.label());
            let running = Running::start(&settings.script, engine).map_err(at)?;
            let answers = settle(settings, cluster, engine).await.map_err(at)?;
            if number == 0 {
                checked.push_str(&answers);
            }
            for (size, rate) in settings.sizes.iter().zip(&settings.rates) {
                let load = (*rate, settings.seconds);
                let turn = one(cluster, &running, load, (engine, *size, number)).await.map_err(at)?;
                print!("{}", turn.csv());
                results.append("repetitions.csv", &turn.csv())?;
                turns.push(turn);
            }
        }
    }
    for size in &settings.sizes {
        let of_size: Vec<&Turn> = turns.iter().filter(|turn| turn.size == *size).collect();
        results.keep(&format!("pods-{size}"), &of_size)?;
    }
    results.write("check.csv", &format!("engine,pod,answer\n{checked}"))?;
    let (csv, text) = summary::write(&turns, &settings.sizes)?;
    results.write("summary.csv", &csv)?;
    results.write("summary.md", &text)?;
    let readme = format!(
        "\n- {:?} writes a second for {} s, {} repetitions, {WRITERS} writers\n- the whole run took {} s\n- load \
         average when it ended: {}\n\n{text}",
        settings.rates,
        settings.seconds,
        settings.reps,
        start.elapsed().as_secs(),
        machine::load_average()
    );
    results.append("README.md", &readme)?;
    println!("\n{text}\n{}", results.path().display());
    Ok(())
}

/// Warms up, and measures. Nothing is under way at either end.
async fn one(
    cluster: &Cluster,
    running: &Running<'_>,
    (rate, seconds): (u32, u32),
    (engine, size, number): (Engine, Size, usize),
) -> Fallible<Turn> {
    let pod = pods::good(size);
    let writers = Writers::paced(cluster, pods::PATH, rate);
    let writes = usize::try_from(rate * seconds)?;
    let started = memory(running)?;
    writers.write(&pod, WRITERS, writes.div_ceil(5)).await?;
    let before = cpu(cluster, running)?;
    let written = writers.write(&pod, WRITERS, writes).await?;
    let after = cpu(cluster, running)?;
    let used = Cpu { apiserver: after.apiserver - before.apiserver, engine: after.engine - before.engine };
    Turn::new((engine, size, number), written, used, Memory { started, loaded: memory(running)? })
}

/// CPU seconds so far.
fn cpu(cluster: &Cluster, running: &Running<'_>) -> Fallible<Cpu> {
    let seconds = |pid: u32| -> Fallible<f64> { Ok(cpu_time(pid)?.as_secs_f64()) };
    Ok(Cpu { apiserver: seconds(cluster.pid)?, engine: running.pid.map(seconds).transpose()?.unwrap_or_default() })
}

/// Resident memory of the engine in MiB; zero without one.
fn memory(running: &Running<'_>) -> Fallible<f64> {
    Ok(running.pid.map(resident).transpose()?.unwrap_or_default() as f64 / f64::from(1 << 20))
}

/// Returns once all Pods are answered as they should be: a line for each with the answer.
async fn settle(settings: &Settings, cluster: &Cluster, engine: Engine) -> Fallible<String> {
    let start = Instant::now();
    let good = settings.sizes.iter().map(|size| ("good", pods::good(*size)));
    let pods: Vec<(&str, Bytes)> = good.chain(pods::bad()).collect();
    loop {
        match check(cluster, engine, &pods).await {
            Ok(answers) => return Ok(answers),
            Err(error) if start.elapsed() > SETTLE_TIMEOUT => return Err(error),
            Err(_) => tokio::time::sleep(SETTLE_INTERVAL).await,
        }
    }
}

async fn check(cluster: &Cluster, engine: Engine, pods: &[(&str, Bytes)]) -> Fallible<String> {
    let mut connection = Connection::open(cluster).await?;
    let mut answers = String::new();
    for (policy, pod) in pods {
        let (status, body) = connection.ask(Method::POST, pods::PATH, pod.clone()).await?;
        let is_right = match engine == Engine::None || *policy == "good" {
            true => status == StatusCode::CREATED,
            false => status.is_client_error() && only_policy_named(&body, policy, pods),
        };
        if !is_right {
            return Err(format!("the Pod {policy:?} was answered {status} {}", text(&body)).into());
        }
        answers.push_str(&format!("{},{policy},{}\n", engine.as_str(), status.as_u16()));
    }
    Ok(answers)
}

/// True when the message of a rejection names that policy and none of the others.
fn only_policy_named(body: &[u8], policy: &str, pods: &[(&str, Bytes)]) -> bool {
    let body = String::from_utf8_lossy(body);
    pods.iter().filter(|(other, _)| *other != "good").all(|(other, _)| body.contains(other) == (*other == policy))
}
