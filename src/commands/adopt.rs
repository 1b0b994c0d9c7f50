//! `adopt` and `release`: select the webhooks and policies of a cluster that Gatepost uses in place of the apiserver.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use gatepost_operator::command::{CommandExit, access, block_on, counted, duration, finish, misused, with_fix};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::source::kubernetes::{Kind, adopting};
use gatepost_adopt::{
    AdoptionRequests, AdoptionScope, AdoptionSettings, AssessedEntry, CONDITION, ClusterEntry, EVENTS_PATH, EntryKind,
    FinalizerChange, LEADER_LEASE, Lease, MANAGER, OwnRegistration, REPLICA_LEASE_DURATION, Reason, change_finalizer,
    conditions_document, event, remove_mark, version_without_conditions,
};
use gatepost_api::HookType;
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError};

/// Timeout of `status` for reading the leases and what can be adopted.
const LEASES_TIMEOUT: Duration = Duration::from_secs(2);

/// Default namespace of the leases.
pub(super) const ADOPT_NAMESPACE: &str = "gatepost";

const ADOPT_EXAMPLES: &str = "\
Examples:
  gatepost adopt --plan                      # what could be taken over, what not, and why; changes nothing
  gatepost adopt --plan --selector team=shop
  gatepost adopt policy-webhook              # every kind of that name, a policy too
  gatepost adopt validating/policy-webhook
  gatepost adopt validating-policy/require-labels
  gatepost adopt --all                       # webhooks and policies

Replicas that serve with --adopt do the work; this command tells them what is wanted, and waits. A name counts more than
the selector of --adopt and than --all, until `gatepost release` takes it back.

Exit codes:
  0  everything that was named is taken; with --plan: shown
  1  one is not, or no replica serves with --adopt: why is on stderr. It stays wanted, and is taken once that is possible;
     gatepost release ends that";

const RELEASE_EXAMPLES: &str = "\
Examples:
  gatepost release policy-webhook
  gatepost release validating-policy/require-labels
  gatepost release --all                     # before you remove Gatepost's registration, or Gatepost

Where no replica with --adopt is alive, this command gives back by itself, as it does with a parked binding whose policy
has been deleted. Do not remove Gatepost's registration before it has ended with 0: until then nobody would call these
webhooks, or decide by these policies.

Exit codes:
  0  the apiserver uses everything that was named
  1  one still carries the condition, or is still parked: why is on stderr";

/// Flags that select a cluster and the leases of its replicas.
#[derive(Debug, clap::Args)]
struct ClusterArgs {
    /// The kubeconfig, or "in-cluster" for the Pod's service account [default: as kubectl has it]
    #[arg(long, value_name = "FILE|in-cluster")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The namespace of the leases, as serve --adopt-namespace has it
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE)]
    adopt_namespace: String,

    /// The name of Gatepost's registration, as serve --registration has it, if several Gateposts have one
    #[arg(long, value_name = "NAME")]
    registration: Option<String>,

    /// Time to wait until it is done
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    timeout: Duration,
}

/// Take webhooks and policies over: Gatepost calls or evaluates them, and the apiserver does not
///
/// Nothing is deleted: each webhook gets the match condition gatepost.dev/served, and each binding of a policy another
/// policyName, which ends with .parked.gatepost.dev. `gatepost release` undoes that. Both use the webhook or the policy
/// for a few seconds, so that no request misses it during the change.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ADOPT_EXAMPLES)]
pub struct AdoptCommand {
    /// Webhook configurations and policies: NAME, validating/NAME, mutating/NAME, validating-policy/NAME or
    /// mutating-policy/NAME
    #[arg(value_name = "NAME", conflicts_with_all = ["all", "plan"])]
    names: Vec<String>,

    /// Take over every webhook and policy that can be taken over
    #[arg(long, conflicts_with = "plan")]
    all: bool,

    /// Only show the state of each webhook and policy
    #[arg(long)]
    plan: bool,

    /// With --plan: only show configurations and policies with these labels
    #[arg(long, value_name = "SELECTOR", requires = "plan", value_parser = AdoptionScope::parse)]
    selector: Option<AdoptionScope>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Give webhooks and policies back: the apiserver uses them again
///
/// Gatepost still uses them for a few seconds, until every apiserver has read the change.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RELEASE_EXAMPLES)]
pub struct Release {
    /// Webhook configurations and policies: NAME, validating/NAME, mutating/NAME, validating-policy/NAME or
    /// mutating-policy/NAME
    #[arg(value_name = "NAME", conflicts_with = "all")]
    names: Vec<String>,

    /// Give back every webhook and policy, and take over none from now on
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

impl ClusterArgs {
    async fn open(self) -> Result<(Cluster, Duration), String> {
        let access = access(self.kubeconfig, self.context);
        Ok((Cluster::open(&access, self.adopt_namespace, self.registration).await?, self.timeout))
    }
}

/// Returns the state of other owners' webhooks in that cluster, as the leader reports it; `None` if there is nothing to
/// report, or the cluster cannot be read in time.
pub(super) fn standing(access: &KubeAccess, namespace: String) -> Option<String> {
    let reading = async { Cluster::open(access, namespace, None).await.ok()?.standing().await };
    block_on(async { timeout(LEASES_TIMEOUT, reading).await.ok()? }).ok()?
}

/// Runs the future of a command and prints its result.
fn run(work: impl Future<Output = Result<String, String>>) -> CommandExit {
    finish(block_on(work).flatten().map(|text| (text, CommandExit::Good)))
}

impl AdoptCommand {
    /// Publishes the request and waits until the webhooks are taken over. With `--plan`, only prints their state.
    pub fn run(self) -> CommandExit {
        if self.names.is_empty() && !self.all && !self.plan {
            return misused("adopt", &"name a webhook configuration or a policy, or give --all or --plan");
        }
        let Self { names, all, plan, selector, cluster } = self;
        run(async move {
            let (mut cluster, within) = cluster.open().await?;
            if plan {
                return cluster.plan(selector.as_ref().unwrap_or(&AdoptionScope::All)).await;
            }
            cluster.change_requests(|requests| requests.adopt(&names, all)).await?;
            cluster.wait(&names, within, TargetState::Taken).await
        })
    }
}

impl Release {
    /// Publishes the request and waits until the webhooks are given back.
    pub fn run(self) -> CommandExit {
        if self.names.is_empty() && !self.all {
            return misused("release", &"name a webhook configuration or a policy, or give --all");
        }
        let Self { names, all, cluster } = self;
        run(async move {
            let (mut cluster, within) = cluster.open().await?;
            cluster.change_requests(|requests| requests.release(&names, all)).await?;
            cluster.wait(&names, within, TargetState::Released).await
        })
    }
}

/// Interval of reads of the leases and webhooks while a command waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of attempts to write the leader's lease, whose other writers cause conflicts.
const MAX_WRITE_ATTEMPTS: usize = 10;
/// Maximum size of the patch with all requests, in bytes. The lease also contains other data.
const MAX_REQUESTS_BYTES: usize = 64 << 10;

/// Prefix of the text of `Reason::NotWanted`.
const NOT_SELECTED_PREFIX: &str = "not selected";
/// Prefix of the text of `Reason::Released`.
const RELEASED_PREFIX: &str = "released;";
/// Time without a renewal after which no replica leads. Any other live replica would have taken the lease by then.
const LEADER_TIMEOUT: Duration = REPLICA_LEASE_DURATION.saturating_add(Duration::from_secs(5));
/// Maximum time for which replicas still call a webhook that was given back.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// State of webhooks that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    Taken,
    Released,
}

/// Client of one cluster, with the settings of its replicas' leases.
#[derive(Debug)]
struct Cluster {
    client: KubeClient,
    adopt: AdoptionSettings,
    /// Progress message that was printed last.
    last_progress: String,
}

impl Cluster {
    async fn open(access: &KubeAccess, namespace: String, registration: Option<String>) -> Result<Self, String> {
        let client = KubeClient::open(access).await.map_err(with_fix)?;
        let adopt = AdoptionSettings { scope: AdoptionScope::Named, namespace, replica: String::new(), registration };
        Ok(Self { client, adopt, last_progress: String::new() })
    }

    async fn leases(&self) -> Result<Vec<Lease>, String> {
        self.adopt.read_leases(&self.client).await.map_err(with_fix)
    }

    async fn lists(&self) -> Result<Vec<(Kind, Vec<Value>)>, String> {
        let mut lists = Vec::new();
        for hook_type in [HookType::Validating, HookType::Mutating] {
            for kind in [Kind::Webhooks(hook_type), Kind::Policies(hook_type), Kind::Bindings(hook_type)] {
                match self.client.list(&kind.path()).await {
                    Ok(list) => lists.push((kind, list.items)),
                    // The apiserver does not know policies of this type, or the user may not read them.
                    Err(KubeError::Refused { code: 403 | 404, .. }) if kind.is_of_policies() => {}
                    Err(error) => return Err(with_fix(error)),
                }
            }
        }
        // Their bypass rules count, if there are any.
        if let Ok(list) = self.client.list(&Kind::Configuration.path()).await {
            lists.push((Kind::Configuration, list.items));
        }
        Ok(lists)
    }

    async fn seen(&self, wanted: &AdoptionScope, leases: &[Lease]) -> Result<Vec<AssessedEntry>, String> {
        let requests = leases.iter().find(|lease| lease.is_leader()).map(Lease::requests).unwrap_or_default();
        let lists = self.lists().await?;
        let adopt = AdoptionSettings { scope: wanted.clone(), ..self.adopt.clone() };
        let judging = tokio::task::spawn_blocking(move || adopting::judged(&lists, &adopt, &requests));
        judging.await.map_err(|error| format!("judging webhooks and policies failed: {error}; report this bug"))
    }

    /// Returns a line with the state of each webhook, and a summary line.
    async fn plan(&self, wanted: &AdoptionScope) -> Result<String, String> {
        let version = self.client.get("/version").await.map_err(with_fix)?;
        let leases = self.leases().await?;
        let leader = leases.iter().find(|lease| lease.is_leader());
        let status = leader.map(Lease::status).unwrap_or_default();
        let mut text = String::new();
        let mut words = Vec::new();
        for seen in self.seen(wanted, &leases).await? {
            let key = seen.standing.key.to_string();
            let against = seen.against().map(ToString::to_string);
            // The leader also knows of fights, and of replicas that do not call the webhook.
            let from_leader = status.iter().find(|[name, state, reason]| {
                let known = !reason.is_empty()
                    && !reason.starts_with(NOT_SELECTED_PREFIX)
                    && !reason.starts_with(RELEASED_PREFIX);
                *name == key && matches!(&**state, "left" | "giving back") && known
            });
            let old = version_without_conditions(&version).filter(|_| !seen.standing.key.kind.is_binding());
            let old = old.map(|version| format!("the apiserver ({version}) knows no match conditions"));
            let uncalled = uncalled(&seen, &leases, SystemTime::now());
            let word = match (&seen.standing.carries, &against) {
                (true, _) if uncalled.is_some() => "NOT CALLED",
                (true, None) => "taken",
                (true, Some(_)) => "to be given back",
                (false, None) if old.is_none() && from_leader.is_none() => "can be taken",
                (false, _) => "left",
            };
            words.push(word);
            let why = uncalled.or(against).or(old).or_else(|| from_leader.map(|[_, _, reason]| reason.clone()));
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word:<16}  {key}{why}");
        }
        let replicas = leases.iter().filter(|lease| !lease.is_leader()).count();
        let replicas = counted(replicas, "replica");
        let [taken, can, left] =
            ["taken", "can be taken", "left"].map(|wanted| words.iter().filter(|word| **word == wanted).count());
        let _ = writeln!(text, "{taken} taken, {can} can be taken, {left} left; {replicas} with --adopt");
        Ok(text)
    }

    /// Returns a line for each webhook that some replicas might not call, then the state of each webhook as the leader
    /// reports it. Returns `None` if there is nothing to report.
    async fn standing(&self) -> Option<String> {
        let leases = self.leases().await.ok()?;
        let mut lines = String::new();
        for seen in self.seen(&AdoptionScope::All, &leases).await.unwrap_or_default() {
            if let Some(who) = uncalled(&seen, &leases, SystemTime::now()) {
                // Writing to a String cannot fail.
                let _ = writeln!(lines, "NOT CALLED    {}: {who}", seen.standing.key);
            }
        }
        let leader = leases.iter().find(|lease| lease.is_leader());
        let status = leader.map(Lease::status).unwrap_or_default();
        // Skip webhooks that are not selected.
        for [key, state, reason] in &status {
            if state != "left" || !reason.starts_with(NOT_SELECTED_PREFIX) {
                let colon = if reason.is_empty() { "" } else { ": " };
                let _ = writeln!(lines, "{state:<12}  {key}{colon}{reason}");
            }
        }
        let by = leader.map(|lease| format!("as {} wrote at {}", lease.replica(), lease.renewed));
        (!lines.is_empty())
            .then(|| format!("\nWEBHOOKS AND POLICIES OF OTHERS, {}\n{lines}", by.unwrap_or_else(|| "now".to_owned())))
    }

    /// Changes the requests in the leader's lease, from which the replicas read them.
    async fn change_requests(&self, change: impl Fn(&mut AdoptionRequests)) -> Result<(), String> {
        let path = format!("{}/{LEADER_LEASE}", self.adopt.leases());
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let leases = self.leases().await?;
            let Some(leader) = leases.iter().find(|lease| lease.is_leader()) else {
                self.adopt.create_leader_lease(&self.client).await.map_err(with_fix)?;
                continue;
            };
            let mut requests = leader.requests();
            change(&mut requests);
            let mut patch = requests.patch();
            if patch.to_string().len() > MAX_REQUESTS_BYTES {
                return Err("too many names; give --all, or a selector to serve --adopt".to_owned());
            }
            patch["metadata"]["resourceVersion"] = leader.version.as_str().into();
            match self.client.patch(&path, "application/merge-patch+json", &patch).await {
                Ok(()) => return Ok(()),
                Err(KubeError::WriteRefused { code: 409, .. }) => sleep(POLL_INTERVAL / 5).await,
                Err(error) => return Err(with_fix(error)),
            }
        }
        Err("the lease of the replicas changes all the time; try again".to_owned())
    }

    /// Waits until every named webhook, or every webhook if none is named, is in the wanted state.
    async fn wait(&mut self, names: &[String], within: Duration, wanted: TargetState) -> Result<String, String> {
        let began = Instant::now();
        let mut renewed: Option<(String, Instant)> = None;
        let mut leads = false;
        loop {
            let leases = self.leases().await?;
            let leader = leases.iter().find(|lease| lease.is_leader());
            let state = leader.map(|lease| format!("{} {}", lease.holder, lease.renewed)).unwrap_or_default();
            if renewed.as_ref().is_none_or(|(known, _)| *known != state) {
                leads = renewed.is_some();
                renewed = Some((state, Instant::now()));
            }
            let alone = leader.is_none_or(|lease| lease.holder.is_empty())
                || !leases.iter().any(|lease| is_alive(lease, SystemTime::now()))
                || renewed.as_ref().is_some_and(|(_, at)| at.elapsed() > LEADER_TIMEOUT);
            let mut seen = self.seen(&AdoptionScope::All, &leases).await?;
            seen.retain(|seen| names.is_empty() || is_named(&seen.standing, names));
            if let Some(missing) =
                names.iter().find(|name| !seen.iter().any(|seen| is_named(&seen.standing, &[(*name).clone()])))
            {
                return Err(format!(
                    "there is no webhook configuration {missing} with webhooks in it, and no policy {missing} with a binding"
                ));
            }
            let (done, open): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| is_in(wanted, &seen.standing));
            // Replicas leave parked what has no policy, for want of the rights to write its params.
            let why = match open.iter().all(|seen| seen.standing.orphaned) {
                true => Some("no policy in the cluster"),
                false => alone.then_some("no replica with --adopt is alive"),
            };
            let why = why.filter(|_| wanted == TargetState::Released && !open.is_empty() && began.elapsed() < within);
            if let Some(why) = why {
                self.report_progress(format!("{why}: giving back {}", named_count(&open)));
                give_back(&self.client, &open).await.map_err(with_fix)?;
                sleep(POLL_INTERVAL).await;
                continue;
            }
            let status = leader.map(Lease::status).unwrap_or_default();
            let own = |seen: &AssessedEntry| seen.unservable.clone().or_else(|| seen.reason_not_to_adopt.clone());
            let reason = |seen: &AssessedEntry| {
                let (key, own) = (seen.standing.key.to_string(), own(seen));
                let reported = status.iter().find(|[name, state, _]| *name == key && state == "left");
                own.map(|own| own.to_string()).or_else(|| reported.map(|[_, _, reason]| reason.clone()))
            };
            // Do not wait for webhooks that cannot be taken over. Wait for those that only the leader leaves for now.
            let waiting = open.iter().filter(|seen| wanted == TargetState::Released || own(seen).is_none()).count();
            let over = began.elapsed() >= within;
            // The leader's report may at first be older than the request.
            let settled = began.elapsed() > Duration::from_secs(5);
            if open.is_empty() || over || settled && (waiting == 0 || alone) {
                if wanted == TargetState::Released && open.is_empty() {
                    self.await_apiservers(&done, names.is_empty() && alone).await?;
                }
                return outcome(&done, &open, (wanted, names.is_empty(), alone), reason);
            }
            self.report_progress(match leader.filter(|_| leads) {
                Some(leader) => {
                    let act = if wanted == TargetState::Taken { "take" } else { "give back" };
                    format!("waiting for {} to {act} {}", leader.replica(), named_count(&open))
                }
                None => {
                    let longest = humantime::format_duration(LEADER_TIMEOUT);
                    let then = match wanted {
                        TargetState::Taken => "this command ends",
                        TargetState::Released => "this command gives back by itself",
                    };
                    format!("waiting for a sign of life of a replica with --adopt; without one, {then} after {longest}")
                }
            });
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Prints the condition that the command waits for on stderr, unless that was printed last.
    fn report_progress(&mut self, what: String) {
        if self.last_progress != what {
            // Ignore a closed stderr.
            let _ = writeln!(io::stderr(), "{what}");
            self.last_progress = what;
        }
    }

    /// Waits until every apiserver calls the webhooks again and no replica does. With `alone`, then removes our
    /// finalizer from our registrations, because no replica is alive to remove it.
    async fn await_apiservers(&mut self, given_back: &[AssessedEntry], alone: bool) -> Result<(), String> {
        let held_back = given_back.iter().map(|seen| seen.in_flight).max().unwrap_or_default();
        let goes_on = humantime::format_duration(Duration::from_secs((SETTLE_TIME + held_back).as_secs()));
        self.report_progress(format!("given back; waiting {goes_on} until every apiserver has heard of it"));
        sleep(SETTLE_TIME + held_back).await;
        if !alone {
            return Ok(());
        }
        for (kind, items) in self.lists().await? {
            let Some(hook_type) = kind.hook_type() else { continue };
            let ours = items.iter().filter(|item| self.adopt.is_our_own(item));
            for registered in ours.filter_map(|item| OwnRegistration::of(hook_type, item)).filter(|it| it.guarded) {
                change_finalizer(&self.client, &FinalizerChange { registration: registered, add: false })
                    .await
                    .map_err(with_fix)?;
            }
        }
        Ok(())
    }
}

/// Returns a message if the webhook carries the condition and some requests might not reach it: our registration does
/// not send all requests that it matches, or live replicas do not claim it. Returns `None` otherwise. Replicas whose
/// lease is older than [`DEAD_REPLICA_AGE`] do not count. If there are no other replicas, the message says so.
fn uncalled(seen: &AssessedEntry, leases: &[Lease], now: SystemTime) -> Option<String> {
    let AssessedEntry { standing, unsent, reason_not_to_adopt, .. } = seen;
    if !standing.carries {
        return None;
    }
    let replicas: Vec<_> = leases.iter().filter(|lease| !lease.is_leader() && is_alive(lease, now)).collect();
    let calls = |lease: &Lease| lease.claims().is_some_and(|claims| claims.ids.contains(&standing.id));
    let silent = replicas.iter().filter(|lease| !calls(lease));
    let silent: Vec<_> = silent.map(|lease| lease.replica()).collect();
    let who = match (replicas.is_empty(), silent.is_empty()) {
        (true, _) => {
            "no replica with --adopt has renewed its lease in the last minute: nobody may use it; start one, or \
                      run gatepost release --all"
                .to_owned()
        }
        (false, false) => format!("{} may not use it", silent.join(", ")),
        (false, true) if *unsent => {
            let gap = reason_not_to_adopt.as_ref().filter(|reason| matches!(reason, Reason::Uncovered(_)));
            gap.map_or_else(
                || "Gatepost's registration does not send all that it wants".to_owned(),
                ToString::to_string,
            )
        }
        (false, true) => return None,
    };
    Some(match standing.key.kind {
        EntryKind::Webhook(_) => format!("it carries the condition {CONDITION}, and {who}"),
        EntryKind::Binding(_) => format!("it is parked, and {who}"),
    })
}

/// Returns true if the entry is in that state.
const fn is_in(wanted: TargetState, standing: &ClusterEntry) -> bool {
    match wanted {
        TargetState::Taken => standing.carries,
        TargetState::Released => !standing.carries && !standing.orphaned,
    }
}

fn is_named(standing: &ClusterEntry, names: &[String]) -> bool {
    standing.key.is_named(names.iter())
}

/// Returns text such as `2 webhooks and 1 binding`.
fn named_count(entries: &[AssessedEntry]) -> String {
    let bindings = entries.iter().filter(|seen| seen.standing.key.kind.is_binding()).count();
    let counts = [(entries.len() - bindings, "webhook"), (bindings, "binding")];
    let texts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(count, noun));
    texts.collect::<Vec<_>>().join(" and ")
}

fn outcome(
    done: &[AssessedEntry],
    open: &[AssessedEntry],
    (wanted, all, alone): (TargetState, bool, bool),
    reason: impl Fn(&AssessedEntry) -> Option<String>,
) -> Result<String, String> {
    let word = if wanted == TargetState::Taken { "taken" } else { "given back" };
    let mut text = String::new();
    for seen in done {
        let _ = writeln!(text, "{word}  {}", seen.standing.key);
    }
    let no_replica = "no replica that serves with --adopt is alive".to_owned();
    let why = |seen: &AssessedEntry| match reason(seen) {
        _ if alone && wanted == TargetState::Taken => no_replica.clone(),
        Some(why) => why,
        None => "not in time; `gatepost adopt --plan` shows how it stands".to_owned(),
    };
    // With `--all`, webhooks that cannot be taken over are no failure.
    let refused: Vec<_> =
        open.iter().filter(|seen| !all || wanted == TargetState::Released || reason(seen).is_none()).collect();
    if !refused.is_empty() {
        let lines = refused.iter().map(|seen| format!("not {word}: {}: {}", seen.standing.key, why(seen)));
        let lines = lines.take(20).collect::<Vec<_>>().join("\n");
        return Err(lines);
    }
    for seen in open {
        let _ = writeln!(text, "left  {}: {}", seen.standing.key, why(seen));
    }
    Ok(text)
}

/// Reporting component of the Events that this command creates.
const EVENT_COMPONENT: &str = "gatepost release";

/// Age of a lease, by our clock, from which its replica counts as dead. It allows for a difference between the clocks.
const DEAD_REPLICA_AGE: Duration = Duration::from_secs(60);

/// Returns true if the lease is younger than [`DEAD_REPLICA_AGE`] by our clock, or its renewal time is invalid.
fn is_alive(lease: &Lease, now: SystemTime) -> bool {
    let renewed = humantime::parse_rfc3339_weak(&lease.renewed).ok();
    renewed.is_none_or(|renewed| now.duration_since(renewed).unwrap_or_default() < DEAD_REPLICA_AGE)
}

/// Removes our mark from these entries, and creates an Event for each.
///
/// # Errors
/// [`KubeError`] of a write.
async fn give_back(client: &KubeClient, seen: &[AssessedEntry]) -> Result<(), KubeError> {
    for seen in seen {
        let ClusterEntry { key, uid, content, .. } = &seen.standing;
        if let EntryKind::Webhook(hook_type) = key.kind {
            // First withdraw the conditions that we applied: otherwise our next apply would restore the condition.
            let nothing = conditions_document(hook_type, &key.configuration, uid, None, &[]);
            match client.apply_conditions(MANAGER, &key.path(), &nothing).await {
                Ok(_) | Err(KubeError::WriteRefused { code: 404 | 409, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match remove_mark(client, &[key], &content["binding"]).await {
            Ok(()) => {}
            Err(KubeError::Refused { code: 404, .. }) => continue,
            Err(error) => return Err(error),
        }
        let event = event(key, Some(&Reason::Released.to_string()), EVENT_COMPONENT, uid);
        // Ignore errors: the user of this command may not have permission to create Events.
        let _ = client.create(EVENTS_PATH, &event).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
