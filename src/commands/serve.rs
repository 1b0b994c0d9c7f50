//! `serve`: turns the flags into settings, and runs a sidecar until a stop signal.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use clap::{ArgAction, builder::NonEmptyStringValueParser};
use gatepost_operator::command::{CommandExit, Logging, access, complain, duration, misused, one_of};

use super::{
    adopt::ADOPT_NAMESPACE, examine::HazardsArg, register::upkeep, replicas::StatusPrefix, source::SourceArgs,
};
use crate::{
    review::{Reasons, Speculation},
    rotate::OnInvalid,
    runtime::{
        Running, Settings, Sidecar, StatusPlace,
        settings::AuditLog,
        signals::{Signals, StopSignals},
    },
    source::{SourceLocation, kubernetes::adopting::Upkeep},
};
use gatepost_adopt::{AdoptionScope, AdoptionSettings};
use gatepost_api::Dispatch;
use gatepost_kube_support::KubeAccess;
use gatepost_replicas::Replica;
use gatepost_tls::{MinTlsVersion, ServerFiles};

const EXAMPLES: &str = "\
Examples:
  gatepost serve --config /etc/gatepost --plaintext
  gatepost serve --config /etc/gatepost --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --client-name kube-apiserver
  gatepost serve --config gatepost.yaml --plaintext --uds /run/gatepost/gatepost.sock --audit-log /var/log/gatepost/audit.jsonl
  gatepost serve --config gatepost.yaml --plaintext --listen 127.0.0.1:0 --workers 2 --reasons all
  gatepost serve --source etcd --etcd-endpoint https://etcd.example:2379 --etcd-ca ca.crt --plaintext

Callers:
  gatepost.v1.Admission by gRPC, and AdmissionReviews by POST to /validate and /mutate, on the same port.
  The TLS files are read again every second; new connections use the new ones, if they are valid.

On stdout, one line for each address once it is bound, then one when the first configuration is in force:
  listening tcp 127.0.0.1:9440
  listening uds /run/gatepost/gatepost.sock
  listening admin 127.0.0.1:9441
  ready generation 1 hooks 3

Signals:
  SIGHUP: reopen the audit log, as after a rotation; nothing else happens.
  SIGTERM or SIGINT: /readyz turns red, nothing new is accepted, and reviews in flight are finished, for at most
  --max-deadline and a second. A second signal, a second later or more, stops at once.
  `gatepost --help` has the exit codes.";

/// Serve reviews until stopped
///
/// Reads the configuration every second. Checks a changed one, probes the hooks it adds, and swaps it in atomically. A
/// document (a file, a key, an object) that cannot be served is logged and shown on /configz; its last good state stays
/// in force, and the others go on. The first configuration must be valid (but see --on-invalid): otherwise its problems
/// are printed and nothing is served.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Serve {
    #[command(flatten)]
    source: SourceArgs,

    /// TCP address for callers; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value_t = Settings::LISTEN)]
    listen: SocketAddr,

    /// The server certificate and its intermediates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate of these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,

    /// Accept only clients with this common name, or DNS or URI alternative name; repeat for more
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    client_name: Vec<String>,

    /// The oldest TLS version that is accepted
    #[arg(long, value_name = "VERSION", default_value = "1.3",
        value_parser = one_of([("1.2", MinTlsVersion::Tls12), ("1.3", MinTlsVersion::Tls13)]))]
    tls_min: MinTlsVersion,

    /// Serve TCP without TLS, on loopback addresses only
    #[arg(long, conflicts_with = "tls_cert")]
    plaintext: bool,

    /// Also serve callers on this unix socket, in plaintext (mode 0660)
    #[arg(long, value_name = "PATH")]
    uds: Option<PathBuf>,

    /// Share the ports with another instance of the same user that also has this flag, for a handover
    ///
    /// The second instance accepts connections, and takes over the unix socket, once its first configuration is in
    /// force. When it prints "ready", end the first one with SIGTERM: it drains, and no connection is refused.
    #[arg(long)]
    reuse_port: bool,

    /// Address of /livez, /readyz, /metrics and /configz: plaintext on loopback, TLS elsewhere
    #[arg(long, value_name = "ADDRESS", default_value_t = Settings::ADMIN)]
    admin: SocketAddr,

    /// Threads that serve reviews
    #[arg(long, value_name = "NUMBER", value_parser = workers, default_value_t = Settings::cores())]
    workers: NonZeroUsize,

    /// The largest review that is accepted
    #[arg(long, value_name = "SIZE", default_value_t = Size(Settings::MAX_MESSAGE_BYTES))]
    max_message_bytes: Size,

    /// The memory budget of reviews, hooks' answers, queues and verdicts together; beyond it calls are refused
    ///
    /// The process takes at most twice that and 64 MiB. Where its cgroup's memory limit (or RLIMIT_AS) is lower, the
    /// budget is made smaller at the start, with a warning. Reviews have three quarters of it.
    #[arg(long, value_name = "SIZE", default_value_t = Size(Settings::MAX_INFLIGHT_BYTES))]
    max_inflight_bytes: Size,

    /// Maximum time of a review, even if its caller allows more
    #[arg(long, value_name = "DURATION", value_parser = positive, default_value = "30s")]
    max_deadline: Duration,

    /// Follow the namespace labels of this cluster: a kubeconfig, or "in-cluster" for the Pod's service account
    ///
    /// Hooks with a namespaceSelector need them, and kube-apiserver does not send them. Lists and watches namespaces
    /// (the user needs the verbs get, list and watch on them), and reads which versions the cluster serves, for
    /// matchPolicy Equivalent. Queries its authorizer (the verb create on subjectaccessreviews) for conditions that use
    /// `authorizer`, and about the verb initialize if a new object lists its own initializers. Without this flag the
    /// labels are those of the Namespace documents in the configuration.
    #[arg(long, value_name = "KUBECONFIG|in-cluster", value_parser = cluster)]
    namespaces_from: Option<KubeAccess>,

    /// Compare the hooks with the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration of this name in
    /// the cluster; log and count hooks that they do not cover
    ///
    /// Each is read where there are hooks of its type, every 30 s from the cluster of --namespaces-from, or of --source
    /// kubernetes (the user needs the verb get on it), and compared as by `gatepost check --against`. A static
    /// registration is not in the cluster: compare that by `gatepost check`.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    registration: Option<String>,

    /// Resolution of hooks that are named by a Service: its name in DNS, or its ready endpoints
    ///
    /// With "endpoints", EndpointSlices of these Services are watched in the cluster of --namespaces-from, or of
    /// --source kubernetes (the user needs the verbs list and watch on endpointslices, and get on services), so that
    /// connections spread over all Pods. While there is no news of them for 90 s, names are looked up in DNS.
    #[arg(long, value_name = "HOW", default_value = "dns", action = ArgAction::Set,
        value_parser = one_of([("dns", false), ("endpoints", true)]))]
    resolve_services: bool,

    /// This replica's name in `gatepost status` and in the status that it publishes [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = replica)]
    replica: Option<String>,

    #[command(flatten)]
    status: StatusPrefix,

    /// kubernetes: let deleted configurations disappear at once, not after their hooks have drained on all replicas
    ///
    /// Otherwise objects that hold hooks get the finalizer gatepost.dev/drain, for which the user needs the verb patch.
    #[arg(long)]
    no_drain_finalizer: bool,

    /// kubernetes: use these webhooks and policies in the apiserver's place: "all", "named" (by `gatepost adopt`), or a
    /// label selector
    ///
    /// A webhook is taken over by the match condition gatepost.dev/served, which Gatepost applies once every replica
    /// calls it, and given back by removing that condition; a policy, by another policyName in its bindings. `gatepost
    /// adopt --plan` says what can be taken, and why not the rest. Register Gatepost first. The user needs the rights of
    /// deploy/kubernetes/adopt.yaml.
    #[arg(long, value_name = "SELECTOR", value_parser = AdoptionScope::parse)]
    adopt: Option<AdoptionScope>,

    /// kubernetes: the namespace of the leases by which replicas agree on what is taken over
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE, requires = "adopt")]
    adopt_namespace: String,

    /// kubernetes: keep Gatepost's registration up to date with the configuration and the webhooks to take over
    ///
    /// Rewrites the webhooks of the existing registration as `gatepost register --config` would print them, with the
    /// same clientConfig. Requests that are no longer wanted are still sent for a minute. Without this flag, a webhook
    /// that the registration does not cover is left to the apiserver.
    #[arg(long, requires = "adopt")]
    adopt_registration: bool,

    /// The namespace of the lease by which replicas agree on who initializes objects that are stored unfinished by
    /// label
    #[arg(long, value_name = "NAMESPACE", default_value = Settings::INITIALIZERS_NAMESPACE)]
    initializers_namespace: String,

    /// Write one JSON line for each review to a file, to stdout ("-"), or nowhere ("none")
    #[arg(long, value_name = "PATH|-|none", value_parser = audit_log, default_value = "none")]
    audit_log: AuditLog,

    /// Write the first 1024 bytes of a rejection's message, and reasons that hooks made up, to the audit log; keep those
    /// of hooks in shadow for `status --shadow` [default: true]
    ///
    /// A hook's text may repeat the object. With --audit-hook-messages=false neither has any text of hooks; why a call
    /// failed is in the audit log all the same, in Gatepost's words.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    audit_hook_messages: Option<bool>,

    /// A local file with break-glass documents, which count even if the source cannot be read
    ///
    /// Read every second. It must belong to root or to the user of this process, and nobody else may write it.
    /// `gatepost break-glass --file` writes it.
    #[arg(long, value_name = "PATH")]
    break_glass_file: Option<PathBuf>,

    /// Keep the configuration in force in this file (mode 0600, with the keys that it refers to) for the next start
    ///
    /// A start uses it while documents of the newest configuration cannot be served, and, within 5 s of the last good
    /// read, while the source cannot be read. Log, /readyz?verbose, /configz, `gatepost status` and
    /// gatepost_config_from_last_good say so.
    #[arg(long, value_name = "PATH")]
    last_good: Option<PathBuf>,

    /// Reject at the first reason, or wait for every hook and give all reasons
    #[arg(long, default_value = "first", value_parser = one_of([("first", Reasons::First), ("all", Reasons::All)]))]
    reasons: Reasons,

    /// With --reasons first: how long to wait for further answers after the first reason, to keep their warnings
    ///
    /// Their denials are given as well. A rejection takes that much longer while a hook has not answered, at most the
    /// time that the caller allows.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s")]
    reasons_grace: Duration,

    /// Put the patches of mutating hooks into audit annotations
    ///
    /// kube-apiserver writes its own patch annotations at the audit level Request and above. It writes these, as it
    /// does all annotations of webhooks, from the level Metadata on. Patches may hold secrets.
    #[arg(long)]
    audit_patches: bool,

    /// Calling mode of mutating hooks without a dispatch of their own: together where the result is the same, or one by
    /// one
    ///
    /// Only hooks that declare no side effects are called speculatively, and only if the hooks before them are
    /// unlikely to patch.
    #[arg(long, value_name = "HOW", default_value = "speculative",
        value_parser = one_of([("speculative", Dispatch::Speculative), ("serial", Dispatch::Serial)]))]
    dispatch: Dispatch,

    /// Call a mutating hook together with those before it only if the chance that one patches is at most this, in
    /// percent
    ///
    /// The chance is learned, for each hook, resource and operation.
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = clap::value_parser!(u8).range(..=100))]
    dispatch_chance: u8,

    /// What a request does while a change of the configuration is noticed and not in force: go on, or wait for it, at
    /// most 1 s
    ///
    /// Any request may be concerned; one that a bypass rule or break-glass lets past does not wait.
    #[arg(long, value_enum, default_value = "none")]
    acknowledge: Acknowledge,

    /// Treatment of a valid configuration that can take the cluster down: warn, reject it, or do not look
    ///
    /// See `gatepost check --help`. Warnings are in the log, once for each change, and on /configz.
    #[arg(long, value_enum, default_value = "warn")]
    hazards: HazardsArg,

    /// Treatment of documents that cannot be served, at the start: refuse to start, or leave them out
    ///
    /// With "skip", log, /readyz?verbose, /configz, `gatepost status` and gatepost_config_documents_left_out name them.
    /// Later, such a document keeps its last good state and stops no other.
    #[arg(long, value_name = "WHAT", default_value = "refuse",
        value_parser = one_of([("refuse", OnInvalid::Refuse), ("skip", OnInvalid::Skip)]))]
    on_invalid: OnInvalid,

    #[command(flatten)]
    logging: Logging,
}

impl From<StopSignals> for CommandExit {
    fn from(signals: StopSignals) -> Self {
        match signals {
            StopSignals::Once(drained) if drained.complete() => Self::Good,
            StopSignals::Once(_) => Self::NotDrained,
            StopSignals::Twice => Self::Aborted,
        }
    }
}

impl Serve {
    /// Serves until a stop signal.
    pub fn run(self) -> CommandExit {
        if let Err(error) = super::start_log(&self.logging) {
            return complain(&error);
        }
        match self.settings() {
            Ok(settings) => serve(settings).map_or_else(|error| complain(&error), CommandExit::from),
            Err(error) => misused("serve", &error),
        }
    }

    fn settings(self) -> Result<Settings, String> {
        let mut source = self.source.place()?;
        let replica = self.replica.unwrap_or_else(Replica::host);
        if let Some(scope) = self.adopt {
            match &mut source {
                SourceLocation::Kubernetes(place) if !place.objects.webhooks => {
                    place.adopt = Some(AdoptionSettings {
                        scope,
                        namespace: self.adopt_namespace,
                        replica: replica.clone(),
                        registration: self.registration.clone(),
                    });
                    place.upkeep = self.adopt_registration.then_some(upkeep::webhooks as Upkeep);
                }
                SourceLocation::Kubernetes(_) => {
                    return Err(
                        "--adopt calls some webhooks of the cluster, and --kube-objects webhooks all: say one".into()
                    );
                }
                SourceLocation::File(_) | SourceLocation::Etcd(_) => {
                    return Err("--adopt belongs to --source kubernetes; say that, or leave --adopt out".into());
                }
            }
        }
        if self.namespaces_from.is_none() && !matches!(source, SourceLocation::Kubernetes(_)) {
            let flags = [
                ("--registration names an object", self.registration.is_some()),
                ("--resolve-services endpoints reads objects", self.resolve_services),
            ];
            if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
                return Err(format!("{flag} of a cluster: give --namespaces-from or --source kubernetes"));
            }
        }
        let status_place = match &source {
            SourceLocation::Etcd(place) => StatusPlace::beside(place.clone(), &self.status.etcd_status_prefix)?,
            // If only Kubernetes' own kinds are read, there is no object of our own kind to write reports into.
            SourceLocation::Kubernetes(place) if place.objects.configurations => {
                StatusPlace::Kubernetes { access: place.access.clone(), finalizer: !self.no_drain_finalizer }
            }
            SourceLocation::File(_) | SourceLocation::Kubernetes(_) => StatusPlace::Nowhere,
        };
        let reasons = match (self.reasons, self.reasons_grace) {
            (Reasons::First, Duration::ZERO) => Reasons::First,
            (Reasons::First, grace) => Reasons::Within(grace.min(self.max_deadline)),
            (Reasons::All, Duration::ZERO) => Reasons::All,
            _ => {
                return Err("--reasons all waits for every hook: give --reasons-grace with --reasons first".to_owned());
            }
        };
        let tls = self.tls_cert.zip(self.tls_key).map(|(cert, key)| ServerFiles {
            cert,
            key,
            client_ca: self.client_ca,
            client_names: self.client_name,
            certificate_optional: false,
            oldest: self.tls_min,
        });
        Ok(Settings {
            listen: self.listen,
            tls,
            plaintext: self.plaintext,
            uds: self.uds,
            reuse_port: self.reuse_port,
            admin: self.admin,
            workers: self.workers,
            max_message_bytes: self.max_message_bytes.0,
            max_inflight_bytes: self.max_inflight_bytes.0,
            max_deadline: self.max_deadline,
            namespaces_from: self.namespaces_from,
            registration: self.registration,
            resolve_services: self.resolve_services,
            initializers_namespace: self.initializers_namespace,
            replica,
            status_place,
            audit_log: self.audit_log,
            audit_hook_messages: self.audit_hook_messages.unwrap_or(true),
            break_glass_file: self.break_glass_file,
            last_good: self.last_good,
            reasons,
            patch_annotations: self.audit_patches,
            hold_for_changes: self.acknowledge == Acknowledge::Hold,
            speculation: Speculation { dispatch: self.dispatch, max_chance: self.dispatch_chance },
            on_hazard: self.hazards.into(),
            on_invalid: self.on_invalid,
            ..Settings::of(source)
        })
    }
}

/// Value of `--acknowledge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Acknowledge {
    /// Requests go on with the configuration in force.
    None,
    /// Requests wait until the change is in force.
    Hold,
}

/// Serves until a stop signal.
fn serve(settings: Settings) -> Result<StopSignals, Box<dyn Error>> {
    let signals = Signals::listen()?;
    let running = Sidecar::start(settings)?;
    Ok(signals.run_until_stopped(running, announce)?)
}

/// Prints the listening addresses on stdout, and the generation if one is in force, in a form that programs can read.
fn announce(running: &Running) {
    let addresses = &running.addresses;
    let mut lines = format!("listening tcp {}\n", addresses.tcp);
    if let Some(path) = &addresses.uds {
        lines.push_str(&format!("listening uds {}\n", path.display()));
    }
    let generation = running.current.load();
    lines.push_str(&format!("listening admin {}\n", addresses.admin));
    if running.current.decides(Instant::now()) {
        lines.push_str(&format!("ready generation {} hooks {}", generation.number, generation.hooks.len()));
        lines.push_str(&match generation.snapshot.initializer_count() {
            0 => "\n".to_owned(),
            initializers => format!(" initializers {initializers}\n"),
        });
    }
    // Serve even if stdout is closed or is not read.
    let write = move || {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
    };
    if let Err(error) = thread::Builder::new().name("announce".to_owned()).spawn(write) {
        tracing::warn!(%error, "cannot print the addresses to stdout");
    }
}

/// Parses a deadline.
fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a deadline of zero refuses everything; write a duration like 30s".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses the number of workers. Each worker is a thread with a connection to each hook. Workers without a core cost
/// memory and file descriptors, and add no throughput.
fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let most = Settings::MAX_WORKERS.max(Settings::cores());
    text.parse().ok().filter(|workers| *workers <= most).ok_or_else(|| {
        format!("a number from 1 to {most}; one for each core that Gatepost may use is enough, and the default")
    })
}

/// Parses the destination of the audit log.
fn audit_log(text: &str) -> Result<AuditLog, std::convert::Infallible> {
    Ok(match text {
        "none" => AuditLog::None,
        "-" => AuditLog::Stdout,
        path => AuditLog::File(path.into()),
    })
}

/// Parses the name of a replica.
fn replica(text: &str) -> Result<String, &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    match text.bytes().all(plain) && (1..=253).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err("letters, digits, '.', '-' and '_', at most 253 of them"),
    }
}

/// Parses the access to a cluster.
fn cluster(text: &str) -> Result<KubeAccess, std::convert::Infallible> {
    Ok(access(Some(text.into()), None))
}

/// Units of sizes, and their number of bytes.
const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// A number of bytes, at least one, written with a unit (`B`, `KiB`, `MiB`, `GiB`) or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    /// Message with the expected format.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unit = UNITS.iter().find_map(|(unit, times)| Some((text.strip_suffix(unit)?, *times)));
        let (number, times) = unit.unwrap_or((text, 1));
        let bytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(times));
        match bytes {
            Some(0) | None => Err("a size is a positive number of bytes, like 512KiB, 8MiB or 1048576"),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for Size {
    /// Writes the size in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, times): &&(&str, usize)| self.0.is_multiple_of(*times);
        match UNITS.iter().filter(whole).max_by_key(|(_, times)| *times) {
            Some((unit, times)) => write!(f, "{}{unit}", self.0 / times),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::DrainResult;

    #[test]
    fn serve_exits_with_0_only_if_no_review_was_cut() {
        let after = |cut| CommandExit::from(StopSignals::Once(DrainResult { cut }));
        assert_eq!(
            (after(Some(0)), after(Some(1)), after(None)),
            (CommandExit::Good, CommandExit::NotDrained, CommandExit::NotDrained)
        );
        assert_eq!(CommandExit::from(StopSignals::Twice), CommandExit::Aborted);
    }

    #[test]
    fn sizes_are_read_and_shown_with_units() {
        for (text, bytes) in [("1", 1), ("512KiB", 512 << 10), ("8MiB", 8 << 20), ("2 GiB", 2 << 30), ("7B", 7)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "0", "-1", "8MB", "MiB", "99999999999GiB", "1.5MiB"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
        assert_eq!([8 << 20, 1025].map(|bytes| Size(bytes).to_string()), ["8MiB", "1025B"]);
    }
}
