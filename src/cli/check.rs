//! `check`: every problem of a configuration, or what would be in force.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::ValueEnum;
use serde_json::Value;

use super::{CommandExit, complain, plural::counted, register, yaml::yaml};
use crate::{
    app::{Settings, UnwaitedRuntime},
    cli::plural::counted,
    hooks::ProbeFailure,
    model::{
        FailurePolicy, Hook, HookType, Initializer, Protocol, ResourceInitializers, SideEffects, Step, Transport,
        hook::Address,
    },
    rotate::{
        Candidate, OnHazard, OwnAddresses,
        candidate::CandidateCache,
        trial::{Tried, trial},
    },
    snapshot::{
        Snapshot,
        hazards::{Concerned, Finding, Remedy, Severity},
    },
    source::{FileSource, ReadError},
    tls::expiry::{self, SOON},
};

/// Longest wait for one read. Only a person waits for this command: a slow mount may take its time.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  gatepost check gatepost.yaml
  gatepost check /etc/gatepost && systemctl restart gatepost
  gatepost check --hazards deny /etc/gatepost      # in CI
  gatepost check --connect /etc/gatepost           # where serve will run
  gatepost check --against register.yaml /etc/gatepost

Hazards:
  Settings that are valid and can still take a cluster down are printed after the summary, the worst first, each with an
  outage that it has caused, and for each hook with a patch that repairs its entry.
    deadlock  once the hook is down, only a person can bring it back
    danger    while the hook is down, so is a part of the cluster that others need
    gap       requests that the hook surely wants pass unseen, or the configuration does not show whether they do

Connect:
  Each hook is dialled and probed once, as serve probes a new hook: name, socket, TLS, then its health service, or a
  dry-run review where it declares sideEffects: None or NoneOnDryRun. Sixteen at once, two seconds each, a minute together.

Exit codes:
  0  no problem: a summary of what would be in force is printed
  1  problems: one a line (file, place, what is wrong, why, what to do), then their number; or, with --hazards deny,
     a deadlock or a danger; with --connect, a hook that would not enter rotation;
     with --against, a hook that the registration does not cover";

/// Check a configuration: print every problem at once, or what would be in force
///
/// Reads what `serve --config PATH` would read, including the certificates and keys it refers to, and checks all of
/// it the way `serve` does. Calls no hook, except with --connect.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Check {
    /// A YAML or JSON file, or a folder of them
    path: PathBuf,

    /// Treatment of a valid configuration that can take the cluster down
    #[arg(long, value_enum, default_value = "warn")]
    hazards: HazardsArg,

    /// Dial and probe every hook from this machine, as serve would, and print which would enter rotation
    #[arg(long)]
    connect: bool,

    /// Compare with a registration, as `gatepost register` prints it: print what hooks want and it does not send;
    /// repeat for that of mutating hooks
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,

    /// Take conditions that ask `authorizer`: serve will have a cluster to ask, by --namespaces-from or --source
    /// kubernetes
    #[arg(long)]
    authorizer: bool,

    /// The address of serve: a hook that leads there would call Gatepost itself
    #[arg(long, value_name = "ADDRESS", default_value_t = Settings::LISTEN)]
    listen: SocketAddr,
}

impl Check {
    /// Checks and prints the result.
    pub fn run(&self) -> CommandExit {
        match self.report() {
            Ok((report, ending)) => {
                // A reader that closed our output (`| head`) has seen enough.
                let _ = io::stdout().write_all(report.as_bytes());
                ending
            }
            Err(error) => complain(&error),
        }
    }

    fn report(&self) -> Result<(String, CommandExit), String> {
        let own = OwnAddresses::new([self.listen, Settings::ADMIN], None);
        let known = CandidateCache::listening_at(own).with_authorizer(self.authorizer);
        let Examined { mut report, mut ending, candidate } =
            examined(&self.path, self.hazards.into(), known).map_err(|error| error.to_string())?;
        let Some(candidate) = candidate else { return Ok((report, ending)) };
        let mut then = |(more, good): (String, bool)| {
            report.push_str(&more);
            ending = if good { ending } else { CommandExit::Failed };
        };
        if !self.against.is_empty() {
            then(register::against::report(&candidate.snapshot, &self.against)?);
        }
        if self.connect {
            then(report(&candidate).map_err(|error| error.to_string())?);
        }
        Ok((report, ending))
    }
}

/// Result of the command: its text, its ending, and the configuration that would be in force.
pub(super) struct Examined {
    pub(super) report: String,
    pub(super) ending: CommandExit,
    /// Nothing where there are problems.
    pub(super) candidate: Option<Candidate>,
}

/// Looks at the configuration at `path`, as a sidecar would that has nothing but this in its cache.
///
/// # Errors
/// When it cannot be read.
pub(super) fn examined(path: &Path, on_hazard: OnHazard, mut known: CandidateCache) -> Result<Examined, ReadError> {
    let contents = FileSource::new(path).read(PATIENCE)?;
    // Hazards that are denied are printed like those that are not, for their patches; only the end differs.
    let looked = if on_hazard == OnHazard::Deny { OnHazard::Warn } else { on_hazard };
    Ok(match known.candidate(&contents, looked, None) {
        Ok(candidate) => {
            let mut findings = candidate.snapshot.findings().to_vec();
            if on_hazard != OnHazard::Off {
                findings.extend(findings(&candidate.snapshot, SystemTime::now()));
                findings.sort_by_key(|finding| finding.severity);
            }
            let report = summary(contents.files.len(), &candidate.snapshot) + &report(&findings);
            let bad = findings.iter().any(|finding| finding.severity < Severity::Gap);
            let ending = if bad && on_hazard == OnHazard::Deny { CommandExit::Failed } else { CommandExit::Good };
            Examined { report, ending, candidate: Some(candidate) }
        }
        Err(problems) => {
            let mut report = String::new();
            for problem in &problems {
                let _ = writeln!(report, "{problem}");
            }
            let _ = writeln!(report, "{}", counted(problems.len(), "problem"));
            Examined { report, ending: CommandExit::Failed, candidate: None }
        }
    })
}

fn summary(files: usize, snapshot: &Snapshot) -> String {
    let mut report = format!("no problem in {}\n", counted(files, "file"));
    let counts = [(snapshot.hooks.len(), "hook"), (snapshot.initializer_count(), "initializer")];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, noun)| counted(number, noun));
    let in_force = match counts.collect::<Vec<_>>() {
        _ if snapshot.allows_every_write() => "no hooks; every write is allowed".to_owned(),
        none if none.is_empty() => "no hooks, and no initializers; who may write their own list is checked".to_owned(),
        counts => counts.join(", "),
    };
    let _ = writeln!(report, "in force would be: {in_force}");
    for hook in &snapshot.hooks {
        let _ = writeln!(report, "  {}", line(hook));
    }
    for entry in snapshot.initializers() {
        for one in &entry.initializers {
            let _ = writeln!(report, "  {}", initializer(entry, one));
        }
    }
    for note in snapshot.notes().iter().chain(&snapshot.called_again()) {
        let _ = writeln!(report, "{note}");
    }
    report
}

fn policy(policy: FailurePolicy) -> &'static str {
    match policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
        FailurePolicy::Retry => "Retry",
    }
}

fn initializer(entry: &ResourceInitializers, one: &Initializer) -> String {
    let actor = match (&one.built_in, &one.attach) {
        (Some(_), _) => "built in",
        (None, Some(_)) => "by a process that attaches",
        (None, None) => "by who updates the stored object",
    };
    let timeout = humantime::format_duration(one.timeout);
    format!("{} of {}: {actor}, {}, {timeout}", one.name, entry.noun(), policy(one.failure_policy))
}

fn line(hook: &Hook) -> String {
    let hook_type = match hook.hook_type {
        HookType::Validating => "validating",
        HookType::Mutating => "mutating",
    };
    let policy = policy(hook.failure_policy);
    let dry_run = match hook.side_effects {
        SideEffects::None | SideEffects::NoneOnDryRun => "",
        SideEffects::Undeclared | SideEffects::Some | SideEffects::Unknown => ", not for dry runs",
    };
    let timeout = humantime::format_duration(hook.timeout);
    let rules = counted(hook.rules.len(), "rule");
    format!("{} at {}: {hook_type}, {policy}, {timeout}, {rules}{dry_run}", hook.name, hook.endpoint)
}

/// Findings about the certificates in these hooks' entries.
fn findings(snapshot: &Snapshot, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, hook) in (0..).zip(&snapshot.hooks) {
        let Some(origin) = snapshot.origin(index) else { continue };
        let concerned = || {
            let (name, id) = (hook.name.to_string(), hook.id.to_string());
            Concerned {
                hook: name,
                id,
                file: origin.file.clone(),
                path: origin.path.clone(),
                patch: Value::Null,
                drops_cluster_scoped: false,
            }
        };
        let closed = origin.declared_policy != FailurePolicy::Ignore;
        let problems = [of_authorities(hook, now, closed), of_own(hook, now, closed)].into_iter().flatten();
        findings.extend(problems.map(|(rule, severity, [what, why, fix])| Finding {
            rule,
            severity,
            hooks: vec![concerned()],
            what,
            why,
            remedy: Remedy::Words(fix),
            outages: &[],
        }));
    }
    debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?}");
    findings
}

/// Rule, severity; what, why and the fix.
type RuleFinding = (&'static str, Severity, [String; 3]);

fn of_authorities(hook: &Hook, now: SystemTime, closed: bool) -> Option<RuleFinding> {
    let mut ends = expiry::of_authorities(hook);
    ends.sort_unstable();
    let ended = ends.iter().filter(|end| **end <= now).count();
    let (first, last, many) = (*ends.first()?, *ends.last()?, ends.len());
    let name = &hook.name;
    let renew = "write the new authority into its clientConfig; where it was imported, import again".to_owned();
    if ended == many {
        let what = format!("the authority in hook {name:?}'s clientConfig expired on {}", day(last));
        let why = "so certificates that it signed are not accepted, and every call fails".to_owned();
        return Some(("authority-ended", worth(closed), [what, why, renew]));
    }
    if last <= now + SOON {
        let what = format!("the authority in hook {name:?}'s clientConfig expires on {}", day(last));
        let why = "and from then on certificates that it signed are not accepted, and every call fails".to_owned();
        return Some(("authority-ends-soon", Severity::Gap, [what, why, renew]));
    }
    (ended > 0).then(|| {
        let what =
            format!("{ended} of {many} authorities in hook {name:?}'s clientConfig expired on {} or later", day(first));
        let why = "so a certificate that one of them signed is not accepted".to_owned();
        let fix = "remove them once no certificate of the hook is signed by them".to_owned();
        ("authority-ended", Severity::Gap, [what, why, fix])
    })
}

/// Our own certificate for the hook.
fn of_own(hook: &Hook, now: SystemTime, closed: bool) -> Option<RuleFinding> {
    let end = expiry::of_client_certificate(hook)?;
    let name = &hook.name;
    let fix = "renew it in the file that clientCertificateFile names".to_owned();
    match end {
        end if end <= now => {
            let what = format!("our certificate for hook {name:?} expired on {}", day(end));
            let why = "so the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ended", worth(closed), [what, why, fix]))
        }
        end if end <= now + SOON => {
            let what = format!("our certificate for hook {name:?} expires on {}", day(end));
            let why = "and from then on the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ends-soon", Severity::Gap, [what, why, fix]))
        }
        _ => None,
    }
}

fn worth(closed: bool) -> Severity {
    if closed { Severity::Danger } else { Severity::Gap }
}

fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

/// All trials together take no longer. Each takes two seconds at the most, sixteen at once.
const WITHIN: Duration = Duration::from_secs(60);

/// Report on each hook, and whether all would enter rotation.
///
/// # Errors
/// The operating system gives us no event queue.
fn report(candidate: &Candidate) -> io::Result<(String, bool)> {
    let runtime = UnwaitedRuntime::new()?;
    let tried = runtime.block_on(trial(candidate, WITHIN));
    let hooks = &candidate.snapshot.hooks;
    let mut output = String::from("\nprobed once from this machine, as serve probes a new hook:\n");
    for (hook, tried) in hooks.iter().zip(&tried) {
        // Writing to a String cannot fail.
        let _ = match tried {
            Tried::Passed(took, posted) => {
                let how =
                    posted.as_ref().map_or_else(|| asked(hook).to_owned(), |path| format!("answered POST {path}"));
                writeln!(output, "  ok      {} at {}: {how}, {} ms", hook.name, hook.endpoint, took.as_millis())
            }
            Tried::Failed(failure) => {
                let (name, endpoint) = (&hook.name, &hook.endpoint);
                writeln!(output, "  FAILED  {name} at {endpoint}: {failure}\n          {}", fix(failure, hook))
            }
            Tried::Late => writeln!(
                output,
                "  FAILED  {} at {}: not probed within {} s\n          repair those that fail above, and check again",
                hook.name,
                hook.endpoint,
                WITHIN.as_secs()
            ),
        };
    }
    let passed = tried.iter().filter(|tried| matches!(tried, Tried::Passed(..))).count();
    let _ = writeln!(output, "{passed} of {} would enter rotation", counted(hooks.len(), "hook"));
    if candidate.snapshot.claimed().next().is_some() {
        let _ = writeln!(output, "no initializer is dialled: their processes attach to serve; see `gatepost status`");
    }
    Ok((output, passed == hooks.len()))
}

/// Description of the probe of a hook that was posted nothing.
fn asked(hook: &Hook) -> &'static str {
    match &hook.protocol {
        Protocol::Grpc => "answered",
        Protocol::Http { .. } => "connected, and sent nothing: it does not declare sideEffects: None or NoneOnDryRun",
    }
}

/// Advice about a step that failed.
fn fix(failure: &ProbeFailure, hook: &Hook) -> String {
    let name = hook.endpoint.tls.as_ref().map_or("", |tls| &tls.server_name);
    match failure.step {
        Step::Resolve if is_service(hook) => "write the Service's cluster IP and this name into the hosts file of this \
             machine, or let it ask the cluster's DNS; keep the name, since the hook's certificate has it"
            .into(),
        Step::Resolve => "correct the host in clientConfig, or have its name resolved on this machine".into(),
        Step::Connect => {
            "see that the hook is running and listens there, and that this machine may reach it (firewall, NetworkPolicy)"
                .into()
        }
        Step::Tls => format!(
            "see that caBundle or caFile holds the authority that signed the hook's certificate, and that this \
             certificate has the name {name}; `openssl s_client -connect HOST:PORT -servername {name}` shows it"
        ),
        Step::Handshake => match hook.endpoint.transport {
            Transport::Grpc => "see that a gRPC server listens there: a webhook's URL begins with https://".into(),
            Transport::Http => "see that a webhook listens there: a gRPC hook's URL begins with grpcs://".into(),
        },
        Step::Health => "see what the hook's log says of its health service (grpc.health.v1)".into(),
        Step::Review => "see what the hook's log says of the dry-run review gatepost-probe".into(),
    }
}

fn is_service(hook: &Hook) -> bool {
    matches!(&hook.endpoint.address, Address::Tcp { host, .. } if host.ends_with(".svc") || host.contains(".svc."))
}

/// Price of a patch, as a comment in it.
const DROPS: &str = "# with this it sees nothing outside of namespaces any more: add a rule with scope Cluster for each \
                     resource there that it should go on seeing (such as clusterroles)";

/// `--hazards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HazardsArg {
    /// Print them.
    Warn,
    /// Treat deadlocks and dangers as problems; print gaps.
    Deny,
    /// Do not look for them.
    Off,
}

impl From<HazardsArg> for OnHazard {
    fn from(arg: HazardsArg) -> Self {
        match arg {
            HazardsArg::Warn => Self::Warn,
            HazardsArg::Deny => Self::Deny,
            HazardsArg::Off => Self::Off,
        }
    }
}

/// Every finding, and then for each hook the one patch that mends all of its own; nothing where nothing was found.
pub(super) fn report(findings: &[Finding]) -> String {
    let mut output = String::new();
    if findings.is_empty() {
        return output;
    }
    let numbers = [(Severity::Deadlock, "deadlock"), (Severity::Danger, "danger"), (Severity::Gap, "gap")]
        .map(|(severity, noun)| (findings.iter().filter(|finding| finding.severity == severity).count(), noun));
    let numbers: Vec<_> = numbers.into_iter().filter(|(n, _)| *n > 0).map(|(n, noun)| counted(n, noun)).collect();
    let _ = writeln!(output, "\nhazards: {}", numbers.join(", "));
    let mut patched: BTreeMap<(&str, &str), &Concerned> = BTreeMap::new();
    for finding in findings {
        let _ = writeln!(output, "\n{} {}", finding.severity.as_str(), finding.rule);
        for concerned in &finding.hooks {
            let _ = writeln!(output, "  {}: {}", concerned.file, concerned.path);
            patched.entry((&concerned.file, &concerned.path)).or_insert(concerned);
        }
        let _ = writeln!(output, "  {}", finding.sentence());
        if !finding.outages.is_empty() {
            let _ = writeln!(output, "  as in {}", finding.outages.join(", "));
        }
    }
    for (_, concerned) in patched.into_iter().filter(|(_, concerned)| !concerned.patch.is_null()) {
        let Concerned { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
        let noun = if id.is_empty() { "initializer" } else { "hook" };
        let _ = writeln!(output, "\nto repair {noun} {hook:?}, merge this into its entry ({file}: {path}):");
        if *drops_cluster_scoped {
            let _ = writeln!(output, "  {DROPS}");
        }
        for line in yaml(patch).unwrap_or_else(|_| patch.to_string()).lines() {
            let _ = writeln!(output, "  {line}");
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;
    use crate::snapshot::{SourceFile, load};

    fn authority(year: i32) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn problems_of(bundle: &str, policy: &str, now: SystemTime) -> Vec<(&'static str, Severity, String)> {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks: [{{name: h.example.com, rules: [], failurePolicy: {policy}, clientConfig: {{url: \
             'https://h.example.com/', caBundle: {}}}}}]\n",
            STANDARD.encode(bundle)
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        findings(&snapshot, now).into_iter().map(|found| (found.rule, found.severity, found.sentence())).collect()
    }

    #[test]
    fn an_authority_that_has_ended_or_soon_will_is_reported() {
        let day = Duration::from_secs(24 * 3600);
        // 2030-01-01
        let now = SystemTime::UNIX_EPOCH + day * 21_915;
        let (old, new) = (authority(2029), authority(2040));
        let rules = |bundle: &str, policy: &str, now| -> Vec<_> {
            problems_of(bundle, policy, now).into_iter().map(|(rule, severity, _)| (rule, severity)).collect()
        };
        assert_eq!(rules(&new, "Fail", now), []);
        assert_eq!(rules(&old, "Fail", now), [("authority-ended", Severity::Danger)]);
        assert_eq!(rules(&old, "Ignore", now), [("authority-ended", Severity::Gap)]);
        assert_eq!(rules(&(old.clone() + &new), "Fail", now), [("authority-ended", Severity::Gap)]);
        assert_eq!(rules(&old, "Fail", now - day * 370), [("authority-ends-soon", Severity::Gap)]);
        assert_eq!(rules(&old, "Fail", now - day * 400), []);
        let what = &problems_of(&old, "Fail", now)[0].2;
        assert!(what.contains("expired on 2029-01-01") && what.contains("import again"), "{what}");
    }
}
