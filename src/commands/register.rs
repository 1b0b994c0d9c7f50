//! `register`: prints the webhook configuration by which an apiserver calls Gatepost.

pub(super) mod against;
mod document;
mod plan;
mod policy;
pub(super) mod upkeep;

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use gatepost_operator::command::{
    CommandExit, REGISTRATION, Service, complain, misused, one_of, print_whole, replace_file,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use self::{
    document::{Caller, Form, OurFailure, Registration},
    plan::{Plan, everything, plan_of},
};
use super::load::load;
use gatepost_api::HookType;
use gatepost_config::{Snapshot, hazards::Severity};

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
    #[arg(long, value_name = "URL", value_parser = Target::from_str, required_unless_present_any = ["service", "initializers"])]
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
    #[arg(long, default_value = "validating",
        value_parser = one_of([("validating", HookType::Validating), ("mutating", HookType::Mutating)]))]
    kind: HookType,

    /// Seconds that all hooks together may take, at most 30
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30), default_value = "30")]
    timeout_seconds: u8,

    /// The failure policy of requests while Gatepost itself does not answer [default: with --config that of the hooks
    /// that match the request, otherwise Fail]
    #[arg(long, value_enum)]
    failure_policy: Option<OurFailure>,

    /// Send nothing of this namespace, besides what the hooks exclude; repeat for more
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    exclude_namespace: Vec<String>,

    /// Write it to this file; "-" is stdout
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    out: PathBuf,
}

impl Register {
    /// Prints the registration, or writes it to `--out`.
    pub fn run(self) -> CommandExit {
        let out = self.out.clone();
        if self.service.is_some() && self.form == Some(Form::Static) {
            return misused("register", &"an apiserver reads no Service from a static manifest; leave --form out");
        }
        let written = self.text().and_then(|text| match out.as_os_str() == "-" {
            true => print_whole(text),
            false => {
                let written = replace_file(&out, text.as_bytes(), 0o666, None);
                written.map_err(|error| format!("{}: {error}", out.display()))
            }
        });
        written.map_or_else(|error| complain(&error), |()| CommandExit::Good)
    }

    fn text(self) -> Result<String, String> {
        if let Some(path) = self.config.as_deref().filter(|_| self.initializers) {
            return policy::text(&load(path)?, &self.name);
        }
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
                excluded.extend([service.namespace.clone(), NODE_LEASE_NAMESPACE.to_owned()]);
                excluded.extend((!self.include_kube_system).then(|| SYSTEM_NAMESPACE.to_owned()));
                if self.ca_from.is_none() && self.name != REGISTRATION {
                    complain(&format_args!("warning: {}", document::other_name_advice(&self.name)));
                }
                excluded.sort_unstable();
                excluded.dedup();
                Caller::Service(service)
            }
            (None, None) => return Err("give --url URL, or --service NAMESPACE/NAME".to_owned()),
        };
        let plan = match self.config.as_deref() {
            Some(path) => plan_from_config(path, self.kind, &excluded, matches!(caller, Caller::Service(_)))?,
            None => {
                if self.failure_policy != Some(OurFailure::Ignore) {
                    complain(&EVERYTHING);
                }
                everything(true, &excluded)
            }
        };
        let registration = Registration {
            form: self.form.unwrap_or(Form::Api),
            hook_type: self.kind,
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

/// Namespace of the nodes' heartbeats. If a heartbeat cannot be written, the Pods of the node are evicted, also ours.
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Namespace of the network, DNS and proxies, which Gatepost's Pods need in order to run.
const SYSTEM_NAMESPACE: &str = "kube-system";

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
    match gatepost_api::names::is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => Err("write the name of a namespace, as in kube-system"),
    }
}

/// Parses the namespace and name of a Certificate of cert-manager.
fn certificate(text: &str) -> Result<String, &'static str> {
    match text.split_once('/') {
        Some((namespace, name))
            if [namespace].into_iter().chain(name.split('.')).all(gatepost_api::names::is_dns_label) =>
        {
            Ok(text.to_owned())
        }
        _ => Err("write NAMESPACE/NAME of a Certificate, as in gatepost/gatepost"),
    }
}

/// Warns of hooks that can prevent the start of Gatepost's own Pods in the cluster.
fn warn_of_deadlocks(snapshot: &Snapshot, shown: &impl std::fmt::Display) {
    let deadlocks = snapshot.hazards().iter().filter(|finding| finding.severity == Severity::Deadlock).count();
    if deadlocks > 0 {
        complain(&format_args!(
            "warning: deadlocks among the findings of `gatepost check {shown}`: {deadlocks}; while no Pod of Gatepost is ready, \
             such hooks fail as if they were down themselves"
        ));
    }
}

/// Returns the plan for the hooks of that type in a configuration and for its initializers.
fn plan_from_config(path: &Path, hook_type: HookType, excluded: &[String], in_cluster: bool) -> Result<Plan, String> {
    let shown = path.display();
    let snapshot = load(path)?;
    if in_cluster {
        warn_of_deadlocks(&snapshot, &shown);
    }
    let plan = plan_of(&snapshot, hook_type, excluded);
    let plan = plan.map_err(|error| format!("{shown}: {error}, or leave --config out"))?;
    if plan.entries.is_empty() {
        let noun = hook_type.as_str().to_lowercase();
        let or_initializer = if hook_type == HookType::Mutating { ", and no initializer" } else { "" };
        return Err(format!(
            "{shown} has no hook with a rule that is {noun}{or_initializer}: there is nothing to register; leave --config out"
        ));
    }
    Ok(plan)
}

/// Paths that accept reviews.
const PATHS: [&str; 2] = ["/validate", "/mutate"];

/// URL of Gatepost that an apiserver accepts for a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// URL without a path.
    url: String,
    /// True if the host is the apiserver's own machine.
    loopback: bool,
}

impl FromStr for Target {
    type Err = String;

    /// Checks the apiserver's rules, and that the path is ours. Source: `docs/reference/webhook-semantics.md` §14.
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

/// Returns the certificates in a PEM file, encoded for a `caBundle`.
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
    fn register_url_is_kept_without_its_path() {
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
    fn register_refuses_urls_that_an_apiserver_refuses() {
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
    fn register_ca_bundle_holds_only_certificates() {
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
