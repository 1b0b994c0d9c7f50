//! Connect: which hooks would enter rotation, asked from here.

use std::{fmt::Write as _, io, time::Duration};

use crate::{
    cli::plural::counted,
    hooks::ProbeFailure,
    model::{Hook, Protocol, Step, Transport, hook::Address},
    rotate::{
        Candidate,
        probing::{TrialResult, trial},
    },
    runtime::UnwaitedRuntime,
};

/// All trials together take no longer. Each takes two seconds at the most, sixteen at once.
const WITHIN: Duration = Duration::from_secs(60);

/// Report on each hook, and whether all would enter rotation.
///
/// # Errors
/// The operating system gives us no event queue.
pub(super) fn report(candidate: &Candidate) -> io::Result<(String, bool)> {
    let runtime = UnwaitedRuntime::new()?;
    let tried = runtime.block_on(trial(candidate, WITHIN));
    let hooks = &candidate.snapshot.hooks;
    let mut output = String::from("\nprobed once from this machine, as serve probes a new hook:\n");
    for (hook, tried) in hooks.iter().zip(&tried) {
        // Writing to a String cannot fail.
        let _ = match tried {
            TrialResult::Passed(took, posted) => {
                let how =
                    posted.as_ref().map_or_else(|| asked(hook).to_owned(), |path| format!("answered POST {path}"));
                writeln!(output, "  ok      {} at {}: {how}, {} ms", hook.name, hook.endpoint, took.as_millis())
            }
            TrialResult::Failed(failure) => {
                let (name, endpoint) = (&hook.name, &hook.endpoint);
                writeln!(output, "  FAILED  {name} at {endpoint}: {failure}\n          {}", fix(failure, hook))
            }
            TrialResult::Late => writeln!(
                output,
                "  FAILED  {} at {}: not probed within {} s\n          repair those that fail above, and check again",
                hook.name,
                hook.endpoint,
                WITHIN.as_secs()
            ),
        };
    }
    let passed = tried.iter().filter(|tried| matches!(tried, TrialResult::Passed(..))).count();
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
