//! `check`: prints every problem of a configuration, or what would be in force.

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf, time::Duration};

use gatepost_operator::command::{CommandExit, block_on, counted, finish};

use super::{
    examine::{Examination, HazardsArg, examine},
    register::against,
};
use crate::{
    hooks::ProbeFailure,
    rotate::{
        Candidate, OwnAddresses,
        candidate::CandidateCache,
        probing::{TrialResult, trial},
    },
    runtime::Settings,
};
use gatepost_api::{Hook, Protocol, Step, Transport, hook::Address};

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
    gap       requests the hook should see bypass it, or may

Connect:
  Each hook is dialled and probed once, as serve probes a new hook: name, socket, TLS, then its health service, or a
  dry-run review if it declares sideEffects: None or NoneOnDryRun. Up to 16 run at once; each takes at most 2 s, all
  together 60 s.

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

    /// Registration to compare with, as `gatepost register` prints it: print requests that hooks want and it does not
    /// send; repeat for the registration of mutating hooks
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,

    /// Accept conditions that use `authorizer`: serve will query a cluster, by --namespaces-from or --source
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
        finish(self.report())
    }

    fn report(&self) -> Result<(String, CommandExit), String> {
        let own = OwnAddresses::new([self.listen, Settings::ADMIN], None);
        let known = CandidateCache::listening_at(own).with_authorizer(self.authorizer);
        let Examination { mut report, mut exit, candidate } =
            examine(&self.path, self.hazards.into(), known).map_err(|error| error.to_string())?;
        let Some(candidate) = candidate else { return Ok((report, exit)) };
        let mut then = |(more, good): (String, bool)| {
            report.push_str(&more);
            exit = if good { exit } else { CommandExit::Failed };
        };
        if !self.against.is_empty() {
            then(against::report(&candidate.snapshot, &self.against)?);
        }
        if self.connect {
            then(connect(&candidate)?);
        }
        Ok((report, exit))
    }
}

/// Timeout of all trials together. Each trial takes at most two seconds, and sixteen run at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Probes each hook once. Returns a report, and true if all hooks would enter rotation.
///
/// # Errors
/// An error message if the tokio runtime cannot be built.
fn connect(candidate: &Candidate) -> Result<(String, bool), String> {
    let tried = block_on(trial(candidate, CONNECT_TIMEOUT))?;
    let hooks = &candidate.snapshot.hooks;
    let mut output = String::from("\nprobed once from this machine, as serve probes a new hook:\n");
    for (hook, tried) in hooks.iter().zip(&tried) {
        // Writing to a String cannot fail.
        let _ = match tried {
            TrialResult::Passed(took, posted) => {
                let how = posted
                    .as_ref()
                    .map_or_else(|| passed_probe(hook).to_owned(), |path| format!("answered POST {path}"));
                writeln!(output, "  ok      {} at {}: {how}, {} ms", hook.name, hook.endpoint, took.as_millis())
            }
            TrialResult::Failed(failure) => {
                let (name, endpoint) = (&hook.name, &hook.endpoint);
                writeln!(output, "  FAILED  {name} at {endpoint}: {failure}\n          {}", fix(failure, hook))
            }
            TrialResult::TimedOut => writeln!(
                output,
                "  FAILED  {} at {}: not probed within {} s\n          repair those that fail above, and check again",
                hook.name,
                hook.endpoint,
                CONNECT_TIMEOUT.as_secs()
            ),
        };
    }
    let passed = tried.iter().filter(|tried| matches!(tried, TrialResult::Passed(..))).count();
    let _ = writeln!(output, "{passed} of {} would enter rotation", counted(hooks.len(), "hook"));
    if candidate.snapshot.claimable().next().is_some() {
        let _ = writeln!(output, "no initializer is dialled: their processes attach to serve; see `gatepost status`");
    }
    Ok((output, passed == hooks.len()))
}

/// Returns a description of a passed probe that sent no review.
fn passed_probe(hook: &Hook) -> &'static str {
    match &hook.protocol {
        Protocol::Grpc => "answered",
        Protocol::Http { .. } => "connected, and sent nothing: it does not declare sideEffects: None or NoneOnDryRun",
    }
}

/// Returns advice about the step at which a probe failed.
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
