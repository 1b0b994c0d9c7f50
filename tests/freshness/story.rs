//! The story: start everything, change and ask, break what the plan says, and hold the logs against each other.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{Instant, interval, sleep},
};

use crate::{
    Fallible, Plan,
    asking::{Answers, ask},
    bound::{Findings, judge},
    etcd::Cluster,
    records,
    sidecars::{Hook, Sidecar, signal},
    writing::{Writer, now},
};

/// Time for the sidecars to have the last change in force.
const LAST: Duration = Duration::from_secs(30);

/// Runs the plan.
pub(crate) fn run(plan: &Plan, etcd: &Path) -> Fallible<Findings> {
    if plan.kill_leader && plan.nodes < 3 {
        return Err("a cluster of fewer than three nodes does not outlive its leader: give --nodes 3".into());
    }
    let temporary = tempfile::tempdir()?;
    let folder = plan.keep.as_deref().unwrap_or(temporary.path());
    fs::create_dir_all(folder)?;
    eprintln!(
        "{} sidecars over {} of etcd ({}), {} changes, {} a second",
        plan.sidecars,
        if plan.nodes == 1 { "one node".to_owned() } else { format!("{} nodes", plan.nodes) },
        etcd.display(),
        plan.changes,
        plan.per_second
    );
    let mut cluster = Cluster::start(etcd, plan.nodes);
    let hook = Hook::start(plan, folder)?;
    let runtime = Runtime::new()?;
    let mut writer = runtime.block_on(Writer::open(cluster.urls()))?;
    if plan.hooks > 0 {
        runtime.block_on(writer.put_constant("others.yaml", hook.others(plan.hooks)))?;
    }
    runtime.block_on(writer.put(&hook.document(0)))?;
    let start = |number| Sidecar::start(plan, number, &cluster.urls(), folder);
    let sidecars = (0..plan.sidecars).map(start).collect::<Fallible<Vec<_>>>()?;
    let answers: Vec<Arc<Answers>> = sidecars.iter().map(|_| Arc::default()).collect();

    let stopped = runtime.block_on(async {
        let enough = Arc::new(AtomicBool::new(false));
        let mut asking = JoinSet::new();
        for (sidecar, answers) in sidecars.iter().zip(&answers) {
            asking.spawn(ask(sidecar.address, plan.reviews, Arc::clone(answers), Arc::clone(&enough)));
        }
        let changing = async {
            let stopped = change(plan, &mut cluster, &hook, &sidecars[0], &mut writer).await?;
            let last = writer.changes.last().map_or(0, |change| change.revision);
            until_in_force(&answers, last).await;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(stopped)
        };
        let stopped = tokio::select! {
            stopped = changing => stopped?,
            Some(ended) = asking.join_next() => {
                ended??;
                return Err("asking has ended by itself".into());
            }
        };
        enough.store(true, Relaxed);
        while let Some(ended) = asking.join_next().await {
            ended??;
        }
        Fallible::Ok(stopped)
    })?;

    let count = sidecars.len();
    let mut verdicts = Vec::new();
    let mut findings = Findings::default();
    for (number, (sidecar, answers)) in sidecars.into_iter().zip(&answers).enumerate() {
        let read = records::read(number, &sidecar.stop()?)?;
        findings.compare(&answers.named(), &read);
        verdicts.extend(read);
    }
    fs::write(folder.join("changes.jsonl"), log(&writer)?)?;
    let Findings { lost, otherwise, .. } = findings;
    Ok(Findings { lost, otherwise, ..judge(&writer.changes, &verdicts, count, stopped) })
}

/// Makes every change, and breaks etcd in between as the plan says; when it was stopped and went on.
async fn change(
    plan: &Plan,
    cluster: &mut Cluster,
    hook: &Hook,
    first: &Sidecar,
    writer: &mut Writer,
) -> Fallible<Option<(u64, u64)>> {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / plan.per_second));
    let mut stopped = None;
    let mut asleep = JoinSet::new();
    for number in 1..=plan.changes {
        ticks.tick().await;
        if plan.kill_leader && number == plan.changes / 3 {
            let leader = cluster.leader();
            cluster.kill(leader);
            eprintln!("killed the leader, node {leader}, before change {number}");
        }
        if let Some(pause) = plan.stop_sidecar
            && number == plan.changes / 2
        {
            asleep.spawn(pause_all(vec![first.pid()], pause, "one sidecar"));
        }
        if let Some(pause) = plan.stop_etcd
            && number == plan.changes * 2 / 3
        {
            let nodes = cluster.nodes.iter().filter_map(|node| node.pid()).collect();
            stopped = Some(pause_all(nodes, pause, "etcd").await?);
        }
        writer.put(&hook.document(number)).await?;
    }
    while let Some(awake) = asleep.join_next().await {
        awake??;
    }
    Ok(stopped)
}

/// Stops these processes for so long; from when to when.
async fn pause_all(processes: Vec<u32>, pause: Duration, who: &'static str) -> Fallible<(u64, u64)> {
    processes.iter().try_for_each(|pid| signal("STOP", *pid))?;
    let from = now();
    eprintln!("stopped {who} for {}", humantime::format_duration(pause));
    sleep(pause).await;
    let to = now();
    processes.iter().try_for_each(|pid| signal("CONT", *pid))?;
    Ok((from, to))
}

/// Waits until every sidecar has answered by that revision; what has not by then is found in the logs.
async fn until_in_force(answers: &[Arc<Answers>], revision: u64) {
    let until = Instant::now() + LAST;
    while answers.iter().any(|answers| answers.revision.load(Relaxed) < revision) && Instant::now() < until {
        sleep(Duration::from_millis(20)).await;
    }
}

/// The writer's log, one JSON object a change.
fn log(writer: &Writer) -> Fallible<String> {
    let mut log = String::new();
    for (number, change) in writer.changes.iter().enumerate() {
        let line = serde_json::json!({
            "change": number, "revision": change.revision, "known_us": change.known, "again": change.again,
        });
        writeln!(log, "{line}")?;
    }
    Ok(log)
}
