//! `policy bench`: measures policies on the requests of their tests, and compares them with a baseline.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use clap::ValueEnum;
use gatepost_api::Phase;
use gatepost_operator::command::{CommandExit, block_on, complain, duration, finish};
use gatepost_wire::json_view;
use serde_json::{Value, json};

use super::{
    cluster::text_at,
    decision::{caller_of, deps_with_cluster},
    search::find,
    suite::Suite,
    test::{DECISION_TIMEOUT, with_namespaces},
};
use crate::review::{PolicyTrial, try_policies};

const EXAMPLES: &str = "\
Costs and steps are the same on every machine, and times are not: compare times on one machine only,
and let a build server compare costs alone, by a --min-threshold that no policy reaches.

Examples:
  gatepost policy bench policies
  gatepost policy bench policies --save baseline.json
  gatepost policy bench policies --compare baseline.json --threshold 10 --min-threshold 1s

Exit codes:
  0  measured, and no policy is slower than the baseline allows
  1  a policy is slower, or has no request; or a file has problems";

/// Measure policies on the requests of their tests
///
/// Evaluates each policy on the requests of the tests that `gatepost policy test` finds, and prints for each the median
/// and the 99th percentile of its times, and for one round of its requests the cost in the units of kube-apiserver and
/// the steps in Gatepost's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PolicyBenchArgs {
    /// Folders to search, with the folders in them; or files
    #[arg(required = true, value_name = "FOLDER")]
    paths: Vec<PathBuf>,

    /// Evaluations of each request
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,

    /// Write the results to a file, as a baseline
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Compare with a baseline
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,

    /// Percentage by which a median, a cost or the steps may grow; a whole number
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    threshold: u32,

    /// Growth of a median that is never too much
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    min_threshold: Duration,

    /// Format of the report
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: BenchFormat,
}

/// Value of `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchFormat {
    /// One line for each policy.
    Text,
    /// Content that `--save` writes, with policies that are slower than the baseline or missing in it.
    Json,
}

/// Measures of one policy on the requests of one suite.
#[derive(Debug, Default)]
struct Measures {
    name: String,
    /// Times of all evaluations, in nanoseconds.
    times: Vec<u64>,
    /// Cost of one round, in units of kube-apiserver.
    cost: u64,
    /// Steps of one round.
    steps: u64,
}

impl Measures {
    fn percentile(&self, percent: usize) -> u64 {
        let rank = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(rank).copied().unwrap_or_default()
    }

    fn value(&self) -> Value {
        json!({
            "policy": self.name,
            "evaluations": self.times.len(),
            "p50Nanoseconds": self.percentile(50),
            "p99Nanoseconds": self.percentile(99),
            "cost": self.cost,
            "steps": self.steps,
        })
    }
}

impl PolicyBenchArgs {
    /// Measures, and prints the results.
    pub(super) fn run(&self) -> CommandExit {
        finish(block_on(self.report()).and_then(|report| report))
    }

    async fn report(&self) -> Result<(String, CommandExit), String> {
        let (suites, mut problems) = find(&self.paths);
        let mut all = Vec::new();
        for suite in suites {
            match self.measured(suite).await {
                Ok(measures) => all.extend(measures),
                Err(more) => problems.extend(more),
            }
        }
        if !problems.is_empty() {
            problems.iter().for_each(|problem| _ = complain(problem));
            return Ok((String::new(), CommandExit::Failed));
        }
        if all.is_empty() {
            return Err(
                "no policy is about a request of a test, so nothing is measured; see `gatepost policy test`".to_owned()
            );
        }
        let mut results =
            json!({"iterations": self.iterations, "policies": all.iter().map(Measures::value).collect::<Vec<_>>()});
        // Read before --save, which may name the same file.
        let baseline = self.compare.as_deref().map(baseline).transpose()?;
        let written = |path: &PathBuf| {
            fs::write(path, format!("{results:#}\n")).map_err(|error| format!("{}: {error}", path.display()))
        };
        self.save.as_ref().map_or(Ok(()), written)?;
        let (slower, new) =
            baseline.map_or_else(|| Ok(Default::default()), |baseline| self.compared(&all, &baseline))?;
        let exit = if slower.is_empty() { CommandExit::Good } else { CommandExit::Failed };
        let mut text = match self.output {
            BenchFormat::Json => {
                (results["slower"], results["notInBaseline"]) = (slower.into(), new.into());
                return Ok((format!("{results:#}\n"), exit));
            }
            BenchFormat::Text => String::new(),
        };
        for measures in &all {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{}\n  {} evaluations, p50 {:?}, p99 {:?}, cost {}, steps {}",
                measures.name,
                measures.times.len(),
                Duration::from_nanos(measures.percentile(50)),
                Duration::from_nanos(measures.percentile(99)),
                measures.cost,
                measures.steps
            );
        }
        slower.iter().for_each(|line| text.push_str(&format!("SLOWER  {line}\n")));
        new.iter().for_each(|name| text.push_str(&format!("note    {name} is not in the baseline\n")));
        Ok((text, exit))
    }

    /// Measures the policies of a suite.
    async fn measured(&self, suite: Suite) -> Result<Vec<Measures>, Vec<gatepost_config::Problem>> {
        let Suite { file, name, policies, cluster, tests, .. } = suite;
        let snapshot = gatepost_config::load(&policies, &|_| Err(std::io::ErrorKind::NotFound.into()))?;
        let deps = deps_with_cluster(with_namespaces(snapshot, &cluster, &tests), cluster);
        let mut all: Vec<Measures> = Vec::new();
        for test in &tests {
            // `policy test` reports the problem of such a request.
            let Ok(review) = json_view::view(Bytes::from(test.review.to_string())) else { continue };
            for iteration in 0..self.iterations {
                let caller = caller_of(Phase::Review, DECISION_TIMEOUT);
                for PolicyTrial { policy, outcome, steps, took, .. } in
                    try_policies(&deps, &review, &caller, false).await
                {
                    let name = format!("{file} ({name}) {}", policy.definition.name);
                    let at = all.iter().position(|own| own.name == name).unwrap_or_else(|| {
                        all.push(Measures { name, ..Measures::default() });
                        all.len() - 1
                    });
                    let own = &mut all[at];
                    own.times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                    if iteration == 0 {
                        own.cost += outcome.cost;
                        own.steps += steps;
                    }
                }
            }
        }
        all.iter_mut().for_each(|own| own.times.sort_unstable());
        Ok(all)
    }

    /// Returns what has grown by more than the threshold, and the names of policies that the baseline does not have.
    fn compared<'m>(&self, all: &'m [Measures], baseline: &Value) -> Result<(Vec<String>, Vec<&'m str>), String> {
        let before: Vec<&Value> = baseline["policies"].as_array().into_iter().flatten().collect();
        let (mut slower, mut new) = (Vec::new(), Vec::new());
        for own in all {
            let Some(before) = before.iter().find(|before| text_at(before, "/policy") == own.name) else {
                new.push(&*own.name);
                continue;
            };
            let now = own.value();
            for (key, least) in [("cost", 0), ("steps", 0), ("p50Nanoseconds", self.min_threshold.as_nanos())] {
                let (Some(now), Some(before)) = (now[key].as_u64(), before[key].as_u64()) else {
                    return Err(format!("the baseline has no {key} of {}; write it by --save", own.name));
                };
                let (now, before) = (u128::from(now), u128::from(before));
                if now * 100 > before * u128::from(100 + u64::from(self.threshold)) && now - before > least {
                    slower.push(format!("{}: {key} {before} before, {now} now", own.name));
                }
            }
        }
        match new.len() == all.len() {
            true => {
                Err("the baseline has none of these policies, so nothing is compared; write it by --save".to_owned())
            }
            false => Ok((slower, new)),
        }
    }
}

fn baseline(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string());
    let baseline = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    baseline.map_err(|error| format!("{}: {error}; write it by --save", path.display()))
}
