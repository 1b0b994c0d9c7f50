//! `review`: sends one review and prints the verdict.

use std::{
    fmt::Write as _,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost_operator::command::{CommandExit, block_on, counted, duration, finish};
use tokio::runtime::Handle;

use super::{
    load::load,
    policy::{caller_of, deps_without_cluster},
};
use crate::{
    hooks::{Channel, Method},
    review::decide,
};
use gatepost_api::{
    CallFailure, Endpoint, Phase, Rope, Step, Unreachable,
    hook::{Address, EndpointTls},
};
use gatepost_config::{UrlProblem, parse_url};
use gatepost_wire::{
    answer,
    inbound::{FRAME_HEAD, view},
    outbound::{self, framed},
    pb::k8s::io::api::admission::v1::AdmissionReview,
    review_json,
};

const EXAMPLES: &str = "\
Examples:
  gatepost review examples/reviews/pod-create.json
  gatepost review pod.yaml --to grpc://127.0.0.1:9001 --phase validate    calls a hook directly
  gatepost review pod.yaml --config policy.yaml    decides by the policies in that file, without a sidecar

Exit codes:
  0  allowed
  1  no verdict; stderr says what to do
  5  denied";

/// Send a review to a sidecar (or to a hook) and print its verdict
///
/// FILE is an AdmissionReview (admission.k8s.io/v1) as kube-apiserver would send it, in JSON or YAML. With --config,
/// the review goes to no sidecar: this process decides it by the admission policies of the configuration, and calls no
/// hook.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReviewArgs {
    /// The review: a JSON or YAML file, or - for stdin
    file: PathBuf,
    /// Address of the sidecar or hook: grpc://host:port, grpcs://host:port or unix:///path
    #[arg(long, value_name = "URL", default_value = "grpc://127.0.0.1:9440")]
    to: String,
    /// Configuration whose admission policies decide here instead: a YAML or JSON file, or a folder of them
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["to", "ca", "client_certificate", "client_key", "server_name"]
    )]
    config: Option<PathBuf>,
    /// Which call to make
    #[arg(long, value_enum, default_value = "review")]
    phase: PhaseArgument,
    /// Time to wait for the verdict
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Certificate authorities (PEM) for a grpcs URL [default: the system's]
    #[arg(long, value_name = "PATH")]
    ca: Option<PathBuf>,
    /// Our certificate chain (PEM), where the server demands a client certificate
    #[arg(long, value_name = "PATH", requires = "client_key")]
    client_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "PATH", requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// Name that the server's certificate must have [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PhaseArgument {
    /// Every phase that applies
    Review,
    /// Mutating hooks only
    Mutate,
    /// Validating hooks only
    Validate,
}

impl From<PhaseArgument> for Phase {
    fn from(phase: PhaseArgument) -> Self {
        match phase {
            PhaseArgument::Review => Self::Review,
            PhaseArgument::Mutate => Self::Mutate,
            PhaseArgument::Validate => Self::Validate,
        }
    }
}

impl From<PhaseArgument> for Method {
    fn from(phase: PhaseArgument) -> Self {
        match phase {
            PhaseArgument::Review => Self::Review,
            PhaseArgument::Mutate => Self::Mutate,
            PhaseArgument::Validate => Self::Validate,
        }
    }
}

impl ReviewArgs {
    /// Sends the review and prints the verdict.
    pub fn run(self) -> CommandExit {
        let verdict = self.send();
        finish(verdict.map(|(text, allowed)| (text, if allowed { CommandExit::Good } else { CommandExit::Denied })))
    }

    fn send(self) -> Result<(String, bool), Box<dyn std::error::Error>> {
        let name = self.file.display().to_string();
        let mut text = Vec::new();
        if name == "-" {
            io::stdin().read_to_end(&mut text)?;
        } else {
            text = std::fs::read(&self.file).map_err(|error| format!("{name}: {error}"))?;
        }
        let review = review_json::from_file(&name, &Bytes::from(text)).map_err(|error| format!("{name}: {error}"))?;
        if let Some(path) = &self.config {
            return self.decide_here(path, &review);
        }
        let endpoint = self.endpoint()?;
        let began = Instant::now();
        let answer = block_on(send_review(&endpoint, self.phase.into(), &review, self.timeout))?
            .map_err(|failure| format!("{endpoint}: {failure}{}", after(&endpoint, &failure)))?;
        report(&review, &answer, began.elapsed())
    }

    /// Decides the review by the policies of a configuration.
    fn decide_here(&self, path: &Path, review: &AdmissionReview) -> Result<(String, bool), Box<dyn std::error::Error>> {
        let snapshot = load(path)?;
        let (hooks, initializers) = (snapshot.hooks.len(), snapshot.initializer_count());
        let request = view(Rope::new([framed(review)]))?;
        let caller = caller_of(self.phase.into(), self.timeout);
        let began = Instant::now();
        let verdict = block_on(async { decide(&deps_without_cluster(snapshot), &request, &caller).await })?;
        let took = began.elapsed();
        let encoded = outbound::encode(&request.uid, &verdict);
        // Behind the head of the gRPC frame.
        let answer = answer::review(encoded.slice(FRAME_HEAD..))?;
        let (mut text, allowed) = report(review, &answer, took)?;
        for (number, noun) in
            [(hooks, "hook"), (initializers, "initializer")].into_iter().filter(|(number, _)| *number > 0)
        {
            let _ = writeln!(text, "  note     {} of the configuration: not called", counted(number, noun));
        }
        Ok((text, allowed))
    }

    fn endpoint(&self) -> Result<Endpoint, Box<dyn std::error::Error>> {
        let advised = |UrlProblem { what, why, fix }| format!("{}: {what}, {why}; {}", self.to, of_url(&self.to, fix));
        let mut endpoint = parse_url(&self.to).map_err(advised)?;
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        match (&mut endpoint.tls, &endpoint.address) {
            (Some(tls), Address::Tcp { host, .. }) => {
                let client = self.client_certificate.as_ref().zip(self.client_key.as_ref());
                *tls = EndpointTls {
                    server_name: self.server_name.as_deref().unwrap_or(host).into(),
                    ca_pem: self.ca.as_ref().map(read).transpose()?.map(Into::into),
                    client_pem: client
                        .map(|(chain, key)| Ok::<_, String>((read(chain)?.into(), read(key)?.into())))
                        .transpose()?,
                };
            }
            _ if self.ca.is_some() || self.client_certificate.is_some() || self.server_name.is_some() => {
                return Err("--ca, --client-certificate and --server-name are for grpcs URLs only".into());
            }
            _ => {}
        }
        Ok(endpoint)
    }
}

/// Returns a text about the verdict, and true if the request is allowed.
fn report(
    review: &AdmissionReview,
    answer: &AdmissionReview,
    took: Duration,
) -> Result<(String, bool), Box<dyn std::error::Error>> {
    let response = answer.response.as_ref().ok_or("the answer has no response")?;
    let request = review.request.as_ref();
    let uid = request.and_then(|request| request.uid.as_deref()).unwrap_or_default();
    if response.uid.as_deref() != Some(uid) {
        return Err("the answer belongs to another review: its uid is not the request's".into());
    }
    let allowed = response.allowed.unwrap_or_default();
    let mut text = String::new();
    if let Some(request) = request {
        let gvr = request.resource.clone().unwrap_or_default();
        let field = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let mut place =
            vec![field(&gvr.group), field(&gvr.version), field(&gvr.resource), field(&request.sub_resource)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("/");
        for part in [&request.namespace, &request.name].into_iter().filter_map(field) {
            let _ = write!(place, " {part}");
        }
        let _ = writeln!(text, "{} {place}", request.operation.as_deref().unwrap_or("?"));
    }
    let _ = writeln!(text, "{} in {:.1} ms", if allowed { "ALLOWED" } else { "DENIED" }, took.as_secs_f64() * 1e3);
    if let Some(status) = response.status.as_ref().filter(|_| !allowed) {
        let reason = status.reason.as_deref().unwrap_or("no reason given");
        let _ = writeln!(text, "  code     {} {reason}", status.code.unwrap_or_default());
        let _ = writeln!(text, "  message  {}", status.message.as_deref().unwrap_or_default());
        for cause in status.details.iter().flat_map(|details| &details.causes) {
            let message = cause.message.as_deref().unwrap_or("no reason given");
            // Causes that Kubernetes adds may have no field.
            let field = cause.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
            let _ = writeln!(text, "  because  {field}{message}");
        }
    }
    for warning in &response.warnings {
        let _ = writeln!(text, "  warning  {warning}");
    }
    for (key, value) in &response.audit_annotations {
        let _ = writeln!(text, "  audit    {key} = {value}");
    }
    Ok((text, allowed))
}

/// Returns the fix for a URL whose scheme is not one of gRPC.
fn of_url(url: &str, fix: String) -> String {
    match url.split_once("://") {
        Some(("https", rest)) => {
            let place = rest.split('/').next().unwrap_or(rest);
            format!(
                "this command speaks gRPC: write grpcs://{place} (and --ca FILE) for a sidecar that serves TLS; call \
                 a webhook by `curl --json @FILE {url}`, or through a sidecar that has it in its configuration"
            )
        }
        Some(("http" | "http+unix", _)) => format!(
            "this command speaks gRPC: {}; call a webhook by `curl --json @FILE URL`, or through a sidecar that has it in \
             its configuration",
            fix
        ),
        _ => fix,
    }
}

/// Returns advice about a failed call, after a semicolon; empty if the failure needs no advice.
fn after(endpoint: &Endpoint, failure: &CallFailure) -> String {
    let url = endpoint.to_string();
    let place = url.split_once("://").map_or(&*url, |(_, place)| place);
    let tls = endpoint.tls.is_some();
    let fix = match failure {
        CallFailure::Connect(failed) => match failed.step {
            Step::Resolve => "correct the host in --to".to_owned(),
            Step::Connect => {
                "see that a sidecar or a gRPC hook listens there: `gatepost serve` prints its addresses".to_owned()
            }
            Step::Tls => format!(
                "where it serves plaintext, write grpc://{place}; where an authority of yours has signed its certificate, \
                 or it signs itself, name that by --ca FILE; where it has another name, --server-name NAME"
            ),
            Step::Handshake if tls => {
                "where it demands a client certificate, --client-certificate and --client-key; a webhook is \
                 not called by gRPC, but by `curl --json @FILE URL`"
                    .to_owned()
            }
            Step::Handshake => format!(
                "nothing speaks gRPC in plaintext there: where it serves TLS, as a sidecar with --tls-cert does, write \
                 grpcs://{place} and --ca FILE; the admin address takes no reviews; call a webhook by `curl --json \
                 @FILE URL`"
            ),
            Step::Health | Step::Review => return String::new(),
        },
        CallFailure::NotGrpc(_) | CallFailure::Grpc { code: "UNIMPLEMENTED", .. } => {
            "see that gatepost.v1.Admission is served there; call a webhook by `curl --json @FILE URL`".to_owned()
        }
        CallFailure::Timeout(_) => "see that it is well, or give it longer by --timeout".to_owned(),
        _ => return String::new(),
    };
    format!("; {fix}")
}

/// Client of one endpoint, which sends many reviews over one connection.
#[derive(Clone, Debug)]
pub struct ReviewClient(Arc<Channel>);

impl ReviewClient {
    /// Starts to connect, on the current runtime.
    ///
    /// # Errors
    /// [`CallFailure::Connect`] if the endpoint's certificates are unusable.
    pub fn open(endpoint: &Endpoint) -> Result<Self, CallFailure> {
        let config =
            |wanted| gatepost_tls::client_config(wanted, endpoint.transport, &gatepost_tls::SystemRoots::default());
        let tls = endpoint.tls.as_ref().map(config).transpose();
        let tls =
            tls.map_err(|error| CallFailure::Connect(Unreachable::at(Step::Tls, format!("{error}; {}", error.fix()))))?;
        Ok(Self(Channel::open(endpoint.clone(), tls, &[Handle::current()])))
    }

    /// Sends a review and returns the answer.
    ///
    /// # Errors
    /// [`CallFailure`], also for a gRPC status other than OK.
    pub async fn send(
        &self,
        method: Method,
        review: &AdmissionReview,
        timeout: Duration,
    ) -> Result<AdmissionReview, CallFailure> {
        answer::review(self.0.call_once(method, framed(review), timeout).await?)
    }
}

/// Sends a review over a new connection and returns the answer.
///
/// # Errors
/// Those of [`ReviewClient::open`] and [`ReviewClient::send`].
pub async fn send_review(
    endpoint: &Endpoint,
    method: Method,
    review: &AdmissionReview,
    timeout: Duration,
) -> Result<AdmissionReview, CallFailure> {
    ReviewClient::open(endpoint)?.send(method, review, timeout).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_api::Unreachable;
    use gatepost_config::parse_url;

    #[test]
    fn review_to_a_wrong_address_advises_the_right_one() {
        for (url, step, says) in [
            ("grpc://127.0.0.1:9440", Step::Handshake, "write grpcs://127.0.0.1:9440 and --ca FILE"),
            ("grpcs://127.0.0.1:9440", Step::Tls, "write grpc://127.0.0.1:9440"),
            ("grpcs://127.0.0.1:9440", Step::Handshake, "--client-certificate"),
            ("grpc://127.0.0.1:9440", Step::Connect, "gatepost serve"),
            ("grpc://nowhere.example:9440", Step::Resolve, "correct the host"),
        ] {
            let failure = CallFailure::Connect(Unreachable::at(step, "it failed"));
            let output = after(&parse_url(url).unwrap(), &failure);
            assert!(output.starts_with("; ") && output.contains(says), "{url} {step}: {output}");
        }
        let webhook = CallFailure::Grpc { code: "UNIMPLEMENTED", message: String::new() };
        assert!(after(&parse_url("grpc://127.0.0.1:1").unwrap(), &webhook).contains("curl --json @FILE"));
    }

    #[test]
    fn review_to_a_webhook_advises_curl() {
        for (url, says) in [
            ("https://127.0.0.1:8443/validate", "grpcs://127.0.0.1:8443 (and --ca FILE)"),
            ("https://127.0.0.1:8443/validate", "curl --json @FILE https://127.0.0.1:8443/validate"),
            ("http://127.0.0.1:8080", "curl --json"),
            ("127.0.0.1:9440", "write grpc://host:port"),
        ] {
            let output = of_url(url, parse_url(url).unwrap_err().fix);
            assert!(output.contains(says), "{url}: {output}");
        }
    }
}
