//! `register`: the webhook configuration by which an apiserver calls Gatepost.

pub(super) mod against;
mod conditions;
mod document;
mod initializers;
mod plan;
mod policy;
mod union;
pub(super) mod upkeep;

use std::{
    fs,
    io::{self, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use rustls_pki_types::{CertificateDer, pem::PemObject};

use self::{
    document::{Caller, Form, OurFailure, Registration},
    plan::{Plan, Wanted, everything, plan},
};
use super::{
    CommandExit, complain,
    import::folder,
    misused,
    service::{REGISTRATION, Service},
};
use crate::{
    model::{FailurePolicy, HookType, Reinvocation, registration::Segment},
    snapshot::{
        self, Snapshot,
        coverage::{self, selectors},
        hazards::Severity,
    },
    source::FileSource,
};

/// Longest wait for one read. Only a person waits for this command: a slow mount may take its time.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  gatepost register --form static --url https://127.0.0.1:9440 --ca-file ca.crt
  gatepost register --form static --url https://127.0.0.1:9440 --ca-file ca.crt --config /etc/gatepost \\
      --out /etc/kubernetes/admission/validating/gatepost.yaml
  gatepost register --form api --url https://127.0.0.1:9440 --ca-file ca.crt | kubectl apply -f -
  gatepost register --initializers --config /etc/gatepost | kubectl apply -f -
  gatepost register --service gatepost/gatepost --ca-file ca.crt --config hooks | kubectl apply --server-side -f -

Forms:
  static  a manifest on the disk of each apiserver, 1.36 or newer: in force before the first request, out of reach of
          the API, and it sees changes of the admission configuration itself. The comments say how to put it in force
  api     an object in the cluster, for any version; every apiserver calls the same URL, and so its own sidecar if that
          is a loopback URL
  With --service the form is api: every apiserver calls some ready Pod behind that Service. Never sent are the namespace
  of the Service, kube-node-lease, and (unless --include-kube-system) kube-system: what Gatepost's Pods need in order to
  run must not wait for Gatepost.

Exit codes:
  0  printed, or written
  1  not; stderr says why";

/// Print the registration that makes a kube-apiserver call Gatepost
///
/// Prints a ValidatingWebhookConfiguration (or with --kind a MutatingWebhookConfiguration) whose webhooks all lead to
/// Gatepost, with comments that explain it and how to put it in force. Touches no cluster.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Register {
    /// Form of the registration: a file of the apiserver, or an object in the cluster [with --service: api]
    #[arg(long, value_enum, required_unless_present_any = ["service", "initializers"])]
    form: Option<Form>,

    /// URL of Gatepost as the apiserver reaches it; the path /validate or /mutate is added
    #[arg(long, value_name = "URL", value_parser = str::parse::<Target>, required_unless_present_any = ["service", "initializers"])]
    url: Option<Target>,

    /// Service of Gatepost in the cluster, where it does not run beside the apiserver [default port: 443]
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", conflicts_with = "url")]
    service: Option<Service>,

    /// The authority that signed Gatepost's certificate, in PEM [default: those the apiserver's system trusts; with
    /// --service, none: `gatepost certificates` or cert-manager writes it into the registration]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Let cert-manager write the authority of this Certificate into the registration, by its annotation
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = certificate, requires = "service", conflicts_with = "ca_file")]
    ca_from: Option<String>,

    /// Send requests of kube-system, too, while Gatepost runs in the cluster itself
    #[arg(long, requires = "service")]
    include_kube_system: bool,

    /// Name of the registration
    #[arg(long, value_name = "NAME", value_parser = document::name, default_value = REGISTRATION)]
    name: String,

    /// Send only what the hooks of this configuration want, in the versions they want [default: everything]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Print instead the ValidatingAdmissionPolicy, and its binding, that protect the marks of objects which are stored
    /// before they are initialized
    #[arg(long, requires = "config", conflicts_with_all = ["form", "url", "service"])]
    initializers: bool,

    /// The type of hooks; each type has a registration of its own
    #[arg(long, value_enum, default_value = "validating")]
    kind: KindArg,

    /// Seconds that all hooks together may take, at most 30
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30), default_value = "30")]
    timeout_seconds: u8,

    /// The failure policy while Gatepost itself does not answer [default: with --config that of the hooks that want
    /// to see it; else Fail]
    #[arg(long, value_enum)]
    failure_policy: Option<OurFailure>,

    /// Send nothing of this namespace, besides what the hooks exclude; repeat for more
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    exclude_namespace: Vec<String>,

    /// Write it to this file; "-" is stdout
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArg {
    Validating,
    Mutating,
}

impl Register {
    /// Prints it.
    pub fn run(self) -> CommandExit {
        let out = self.out.clone();
        if self.service.is_some() && self.form == Some(Form::Static) {
            return misused("register", &"an apiserver reads no Service from a static manifest; leave --form out");
        }
        let written = self.text().and_then(|text| match out.as_os_str() == "-" {
            true => io::stdout().write_all(text.as_bytes()).map_err(|error| format!("stdout: {error}")),
            false => folder::replace(&out, text.as_bytes()).map_err(|error| format!("{}: {error}", out.display())),
        });
        match written {
            Ok(()) => CommandExit::Good,
            Err(error) => complain(&error),
        }
    }

    fn text(self) -> Result<String, String> {
        if let Some(path) = self.config.as_deref().filter(|_| self.initializers) {
            return policy::text(&loaded(path)?, &self.name);
        }
        let hook_type = match self.kind {
            KindArg::Validating => HookType::Validating,
            KindArg::Mutating => HookType::Mutating,
        };
        let mut excluded = self.exclude_namespace;
        let caller = match (self.url, self.service) {
            (Some(url), _) => {
                if self.form == Some(Form::Static) && !url.loopback {
                    complain(&NOT_LOOPBACK);
                }
                if self.ca_file.is_none() {
                    complain(&SYSTEM_AUTHORITIES);
                }
                Caller::Url(url.url)
            }
            (None, Some(service)) => {
                if self.config.is_none() && self.failure_policy != Some(OurFailure::Ignore) {
                    return Err(EVERYTHING_BY_SERVICE.to_owned());
                }
                excluded.extend([service.namespace.clone(), NODE_LEASES.to_owned()]);
                excluded.extend((!self.include_kube_system).then(|| SYSTEM.to_owned()));
                if self.ca_from.is_none() && self.name != REGISTRATION {
                    complain(&format_args!("warning: {}", document::other_name(&self.name)));
                }
                excluded.sort_unstable();
                excluded.dedup();
                Caller::Service(service)
            }
            (None, None) => return Err("give --url URL, or --service NAMESPACE/NAME".to_owned()),
        };
        let plan = match self.config.as_deref() {
            Some(path) => wanted(path, hook_type, &excluded, matches!(caller, Caller::Service(_)))?,
            None => {
                if self.failure_policy != Some(OurFailure::Ignore) {
                    complain(&EVERYTHING);
                }
                everything(true, &excluded)
            }
        };
        let registration = Registration {
            form: self.form.unwrap_or(Form::Api),
            hook_type,
            name: self.name,
            caller,
            ca_bundle: self.ca_file.as_deref().map(ca_bundle).transpose()?,
            ca_from: self.ca_from,
            excluded,
            timeout_seconds: self.timeout_seconds,
            failure_policy: self.failure_policy,
            plan,
            config: self.config.map(|path| path.display().to_string().replace(char::is_control, " ")),
        };
        registration.text()
    }
}

/// Heartbeats of nodes: one that cannot be written takes the Pods on that node away, Gatepost's among them.
const NODE_LEASES: &str = "kube-node-lease";
/// Network, DNS and proxies that Gatepost's Pods need in order to run.
const SYSTEM: &str = "kube-system";

const NOT_LOOPBACK: &str = "warning: the URL is not a loopback one; a static webhook is in force before the cluster's \
                            network is, and an apiserver that cannot reach it refuses writes: run one Gatepost beside \
                            each apiserver";
const SYSTEM_AUTHORITIES: &str = "warning: no --ca-file: the apiserver will trust Gatepost's certificate only if its \
                                  system's authorities do";
const EVERYTHING_BY_SERVICE: &str = "without --config everything is sent, and while no Pod of Gatepost is ready nothing \
                                     can be written, not even what would make one ready; give --config PATH, or \
                                     --failure-policy Ignore";
const EVERYTHING: &str = "warning: without --config everything is sent, and while Gatepost does not answer nothing can be \
                          written, leases and nodes included: the cluster would not survive it. Give --config PATH, or \
                          --failure-policy Ignore";

fn namespace(text: &str) -> Result<String, &'static str> {
    match snapshot::is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a namespace, as in kube-system"),
    }
}

/// A Certificate of cert-manager.
fn certificate(text: &str) -> Result<String, &'static str> {
    match text.split_once('/') {
        Some((namespace, name)) if [namespace].into_iter().chain(name.split('.')).all(snapshot::is_dns_label) => {
            Ok(text.to_owned())
        }
        _ => Err("write NAMESPACE/NAME of a Certificate, as in gatepost/gatepost"),
    }
}

/// Warns of hooks that can keep Gatepost's own Pods from coming back, where these run in the cluster.
fn warn_of_deadlocks(snapshot: &Snapshot, shown: &impl std::fmt::Display) {
    let deadlocks = snapshot.hazards().iter().filter(|finding| finding.severity == Severity::Deadlock).count();
    if deadlocks > 0 {
        complain(&format_args!(
            "warning: deadlocks among the findings of `gatepost check {shown}`: {deadlocks}; while no Pod of Gatepost is ready, \
             such hooks fail as if they were down themselves"
        ));
    }
}

/// Plan for the hooks of one segment.
fn segment(hooks: &[(Option<Segment>, Wanted)], excluded: &[String]) -> Plan {
    let wanted: Vec<_> = hooks.iter().map(|(_, wanted)| wanted.clone()).collect();
    let again = wanted.iter().any(|wanted| wanted.hook.reinvocation == Reinvocation::IfNeeded);
    let segment = hooks.first().and_then(|(segment, _)| *segment).filter(|segment| segment.of > 1);
    let mut plan = plan(&wanted, excluded);
    for entry in &mut plan.entries {
        (entry.segment, entry.again) = (segment, again);
    }
    plan
}

/// The configuration in that file or folder.
fn loaded(path: &Path) -> Result<Snapshot, String> {
    let contents = FileSource::new(path).read(PATIENCE).map_err(|error| error.to_string())?;
    let shown = path.display();
    snapshot::load(&contents.files, &|written| contents.reference(written))
        .map_err(|problems| format!("{shown} has problems ({}); see `gatepost check {shown}`", problems.len()))
}

/// Requests wanted by the hooks of that type in this configuration, and of mutating ones by its initializers.
fn wanted(path: &Path, hook_type: HookType, excluded: &[String], in_cluster: bool) -> Result<Plan, String> {
    let shown = path.display();
    let snapshot = loaded(path)?;
    if in_cluster {
        warn_of_deadlocks(&snapshot, &shown);
    }
    let of_type = (0..).zip(&snapshot.hooks).filter(|(_, hook)| hook.hook_type == hook_type);
    let hooks = of_type.map(|(index, hook)| {
        let declared = snapshot.origin(index).map_or(hook.failure_policy, |origin| origin.declared_policy);
        (snapshot.segment(index), Wanted { hook: hook.clone(), closed: declared != FailurePolicy::Ignore })
    });
    let mut hooks: Vec<_> = hooks.collect();
    // They act behind the last hook.
    let last = hooks.last().and_then(|(segment, _)| *segment);
    hooks.extend(initializers::wanted(&snapshot, hook_type).into_iter().map(|wanted| (last, wanted)));
    match hooks.iter().any(|(_, wanted)| !wanted.hook.rules.is_empty()) {
        true => {
            let segments = hooks.chunk_by(|(one, _), (other, _)| one == other);
            let mut plan = segments.map(|hooks| segment(hooks, excluded)).reduce(Plan::followed_by).unwrap_or_default();
            // Initializers that are built in find their own work done.
            plan.twice.retain(|name| !coverage::is_of_initializers(name));
            // Asked twice, a validating hook says the same; a mutating one may patch twice.
            if hook_type == HookType::Mutating && !plan.twice.is_empty() {
                let names: Vec<_> = plan.twice.iter().map(|name| &**name).collect();
                return Err(format!(
                    "{shown}: two entries would send some requests, and these hooks might change an object twice: {}; give \
                     them the same apiVersions for a resource and the same selectors, or leave --config out",
                    names.join(", ")
                ));
            }
            Ok(plan)
        }
        false => {
            let noun = hook_type.as_str().to_lowercase();
            let or_initializer = if hook_type == HookType::Mutating { ", and no initializer" } else { "" };
            Err(format!(
                "{shown} has no hook with a rule that is {noun}{or_initializer}: there is nothing to register; leave --config out"
            ))
        }
    }
}

/// The paths where reviews are taken.
const PATHS: [&str; 2] = ["/validate", "/mutate"];

/// A URL an apiserver takes for a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// Without a path.
    url: String,
    /// Is it this machine, as seen by the apiserver?
    loopback: bool,
}

impl std::str::FromStr for Target {
    type Err = String;

    /// Checks what the apiserver would, and that the path is ours. Source: `docs/reference/webhook-semantics.md` §14.
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("https://")
            .ok_or("an apiserver calls webhooks over https only; write https://HOST:PORT")?;
        if rest.contains(['?', '#', '@']) || rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("it must not have a user, query, fragment or space; write https://HOST:PORT".to_owned());
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if !["", "/"].contains(&path) && !PATHS.contains(&path) {
            return Err(format!("Gatepost answers at {} only; leave the path out", PATHS.join(" and ")));
        }
        let parsed: http::uri::Authority = authority.parse().map_err(|_| "it has no host; write https://HOST:PORT")?;
        let port = authority.strip_prefix(parsed.host()).and_then(|rest| rest.strip_prefix(':').or(Some("443")));
        let port = port.and_then(|port| port.parse().ok()).unwrap_or(0u16);
        if parsed.host().is_empty() || port == 0 {
            return Err("it has no host, or a port that is none; write https://HOST:PORT".to_owned());
        }
        let host = parsed.host().trim_start_matches('[').trim_end_matches(']');
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        Ok(Self { url: format!("https://{authority}"), loopback })
    }
}

/// The certificates in a PEM file, in the form a caBundle has.
fn ca_bundle(path: &Path) -> Result<String, String> {
    let failed = |what: &str| format!("{}: {what}", path.display());
    let pem = fs::read(path).map_err(|error| failed(&format!("cannot be read: {error}")))?;
    if String::from_utf8_lossy(&pem).contains("PRIVATE KEY-----") {
        return Err(failed("holds a private key, which must not be published; give the authority's certificate alone"));
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(some) if !some.is_empty() => Ok(STANDARD.encode(pem)),
        _ => Err(failed("holds no certificate in PEM; give the authority that signed the certificate of `serve`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_left_out_and_loopback_known() {
        for (text, url, loopback) in [
            ("https://127.0.0.1:9440", "https://127.0.0.1:9440", true),
            ("https://localhost:9440/", "https://localhost:9440", true),
            ("https://[::1]:9440/validate", "https://[::1]:9440", true),
            ("https://gate.example.com/mutate", "https://gate.example.com", false),
            ("https://10.0.0.1:1", "https://10.0.0.1:1", false),
        ] {
            assert_eq!(text.parse(), Ok(Target { url: url.to_owned(), loopback }));
        }
    }

    #[test]
    fn what_an_apiserver_would_refuse_is_refused() {
        for text in [
            "",
            "127.0.0.1:9440",
            "http://127.0.0.1:9440",
            "https://",
            "https://:9440",
            "https://a:0",
            "https://a:",
            "https://a:b",
            "https://u@a",
            "https://a?x",
            "https://a#x",
            "https://a/other",
            "https://a b",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bundle_is_certificates_and_nothing_else() {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = folder.path().join("ca.pem");
            fs::write(&path, text).unwrap();
            ca_bundle(&path)
        };
        assert_eq!(STANDARD.decode(file(&pair.cert.pem()).unwrap()).unwrap(), pair.cert.pem().as_bytes());
        let key = pair.signing_key.serialize_pem();
        let output = file(&(pair.cert.pem() + &key)).unwrap_err();
        assert!(output.contains("private key") && !output.contains(key.lines().nth(1).unwrap()));
        assert!(file("").is_err() && ca_bundle(&folder.path().join("absent")).is_err());
    }
}
