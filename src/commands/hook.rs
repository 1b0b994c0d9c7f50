//! `hook`: runs a gRPC hook for trials.

use std::{
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gatepost_operator::command::{CommandExit, complain, duration};
use serde_json::Value;
use tokio::runtime::Builder;
use tonic::Status;

use super::hook_listener::HookListener;
use gatepost_tls::server_config;
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionResponse},
    apimachinery::pkg::apis::meta::v1 as meta,
};

const EXAMPLES: &str = "\
Conditions of --deny-if are PLACE=VALUE; a * at either end of VALUE stands for anything:
  always                              every review
  operation=DELETE                    also: kind, group, resource, subresource, namespace, name, user
  /metadata/labels/team=              a JSON pointer into the object: no such label, or an empty one
  /spec/containers/0/image=*:latest   the first container's image ends in :latest

Examples:
  gatepost hook --deny-if '/spec/containers/0/image=*:latest'
  gatepost hook --listen 127.0.0.1:9002 --delay 200ms
  gatepost hook --uds /run/hook.sock --fail-rate 0.1";

/// Run a gRPC hook for trials: it allows everything by default
///
/// Serves gatepost.v1.Admission and the standard health service. Prints its address on stdout, and one line for each
/// review on stderr; never an object's content. Ends on Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct HookArgs {
    /// Address to serve on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9001", conflicts_with = "uds")]
    listen: SocketAddr,
    /// Unix socket to serve on instead
    #[arg(long, value_name = "PATH")]
    uds: Option<PathBuf>,
    /// Certificate chain (PEM): serve TLS
    #[arg(long, value_name = "PATH", requires = "tls_key", conflicts_with = "uds")]
    tls_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Certificate authorities (PEM) that must have signed the caller's certificate
    #[arg(long, value_name = "PATH", requires = "tls_certificate")]
    client_ca: Option<PathBuf>,
    #[command(flatten)]
    behaviour: Behaviour,
}

/// How the hook answers.
#[derive(Debug, Default, clap::Args)]
struct Behaviour {
    /// Deny reviews that meet this condition; repeat for more, any suffices
    #[arg(long, value_name = "CONDITION")]
    deny_if: Vec<DenyIf>,
    /// Delay each answer by this time
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration)]
    delay: Duration,
    /// Fail this share of the calls with status UNAVAILABLE, evenly spread
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = share)]
    fail_rate: f64,
    /// Warn with this text in every answer; repeat for more
    #[arg(long, value_name = "TEXT")]
    warn: Vec<String>,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "must be a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be a number from 0 to 1".to_owned()) }
}

impl HookArgs {
    /// Serves until Ctrl-C.
    pub fn run(self) -> CommandExit {
        self.serve().map_or_else(|error| complain(&error), |()| CommandExit::Good)
    }

    fn serve(self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(chain), Some(key)) => {
                let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
                let client_ca = self.client_ca.as_ref().map(read).transpose()?;
                Some(server_config(&read(chain)?, &read(key)?, client_ca.as_deref())?)
            }
            _ => None,
        };
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let listener = match &self.uds {
                Some(path) => HookListener::unix(path)?,
                None => HookListener::tcp(self.listen, tls)?,
            };
            // Ignore a closed stdout.
            let _ = writeln!(std::io::stdout(), "listening {}", listener.url());
            let service = Arc::new(Service { behaviour: self.behaviour, ..Service::default() });
            let answer = move |review| {
                let service = Arc::clone(&service);
                async move { service.answer(review).await }
            };
            tokio::select! {
                () = listener.serve(answer) => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            Ok(())
        })
    }
}

/// Condition on a review, as written: `always` or `PLACE=VALUE`.
#[derive(Clone, Debug)]
pub(super) struct DenyIf(pub(super) String);

impl FromStr for DenyIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text != "always" {
            let (place, _) = text.split_once('=').ok_or("must be `always` or PLACE=VALUE")?;
            if !place.starts_with('/') && field(&AdmissionRequest::default(), place).is_none() {
                return Err(format!(
                    "{place:?} is not a place; use operation, kind, group, resource, subresource, namespace, name, user, \
                     or a JSON pointer such as /metadata/name"
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl DenyIf {
    /// Returns true if the request meets the condition. The value of a place that does not exist is empty. An object
    /// that is not JSON has no places.
    pub(super) fn met_by(&self, request: &AdmissionRequest) -> bool {
        let Some((place, pattern)) = self.0.split_once('=') else { return true };
        if !place.starts_with('/') {
            return matches(pattern, field(request, place).unwrap_or_default());
        }
        let object = request.object.as_ref().or(request.old_object.as_ref());
        let raw = object.and_then(|object| object.raw.as_ref());
        let object: Value = raw.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
        match object.pointer(place) {
            None | Some(Value::Null) => matches(pattern, ""),
            Some(Value::String(text)) => matches(pattern, text),
            Some(other) => matches(pattern, &other.to_string()),
        }
    }
}

/// Returns the value of a field of the review; `None` if there is no such field.
fn field<'a>(request: &'a AdmissionRequest, name: &str) -> Option<&'a str> {
    let resource = request.resource.as_ref();
    let value = match name {
        "operation" => request.operation.as_deref(),
        "kind" => request.kind.as_ref().and_then(|kind| kind.kind.as_deref()),
        "group" => resource.and_then(|resource| resource.group.as_deref()),
        "resource" => resource.and_then(|resource| resource.resource.as_deref()),
        "subresource" => request.sub_resource.as_deref(),
        "namespace" => request.namespace.as_deref(),
        "name" => request.name.as_deref(),
        "user" => request.user_info.as_ref().and_then(|user| user.username.as_deref()),
        _ => return None,
    };
    Some(value.unwrap_or_default())
}

/// Returns true if the pattern matches the value. `*` at either end of the pattern matches any text.
fn matches(pattern: &str, value: &str) -> bool {
    let (open_start, text) = pattern.strip_prefix('*').map_or((false, pattern), |text| (true, text));
    let (open_end, text) = text.strip_suffix('*').map_or((false, text), |text| (true, text));
    match (open_start, open_end) {
        (false, false) => value == text,
        (true, false) => value.ends_with(text),
        (false, true) => value.starts_with(text),
        (true, true) => value.contains(text),
    }
}

/// Answers reviews with a [`Behaviour`].
#[derive(Debug, Default)]
struct Service {
    behaviour: Behaviour,
    calls: AtomicU64,
}

impl Service {
    /// Returns true if call `n` must fail: the sum of the rate passes a whole number, which spreads failures evenly.
    fn fails(&self, n: u64) -> bool {
        let due = |n: u64| (n as f64 * self.behaviour.fail_rate + 1e-9).floor();
        due(n + 1) > due(n)
    }

    async fn answer(&self, review: AdmissionRequest) -> Result<AdmissionResponse, Status> {
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.behaviour.delay.is_zero() {
            tokio::time::sleep(self.behaviour.delay).await;
        }
        let place = || {
            let resource = review.resource.as_ref().and_then(|resource| resource.resource.as_deref()).unwrap_or("?");
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {resource} {}/{}", text(&review.operation), text(&review.namespace), text(&review.name))
        };
        if self.fails(n) {
            log_line(&format!("{}: failing (--fail-rate)", place()));
            return Err(Status::unavailable("this hook fails by --fail-rate"));
        }
        let met = self.behaviour.deny_if.iter().find(|condition| condition.met_by(&review));
        log_line(&format!("{}: {}", place(), if met.is_some() { "no" } else { "yes" }));
        let status = met.map(|condition| meta::Status {
            status: Some("Failure".into()),
            message: Some(format!("this hook denies reviews with {}", condition.0)),
            reason: Some("Forbidden".into()),
            code: Some(403),
            ..meta::Status::default()
        });
        Ok(AdmissionResponse {
            uid: review.uid,
            allowed: Some(met.is_none()),
            status,
            warnings: self.behaviour.warn.clone(),
            ..AdmissionResponse::default()
        })
    }
}

fn log_line(what: &str) {
    // Ignore a closed stderr.
    let _ = writeln!(std::io::stderr(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_wire::pb::k8s::io::apimachinery::pkg::runtime::RawExtension;

    #[test]
    fn hook_denies_by_the_value_at_a_place() {
        let object =
            br#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"web:latest"}],"replicas":3}}"#;
        let request = AdmissionRequest {
            operation: Some("CREATE".into()),
            namespace: Some("shop".into()),
            object: Some(RawExtension { raw: Some(bytes::Bytes::from_static(object)) }),
            ..Default::default()
        };
        for (condition, met) in [
            ("always", true),
            ("operation=CREATE", true),
            ("operation=DELETE", false),
            ("namespace=sh*", true),
            ("name=", true),
            ("/spec/containers/0/image=*:latest", true),
            ("/spec/containers/1/image=*:latest", false),
            ("/metadata/labels/team=", true),
            ("/metadata/labels/app=*e*", true),
            ("/spec/replicas=3", true),
            ("/spec/replicas=*", true),
        ] {
            let parsed: DenyIf = condition.parse().expect("a condition");
            assert_eq!(parsed.0, condition);
            assert_eq!(parsed.met_by(&request), met, "{condition}");
        }
        assert!("nonsense".parse::<DenyIf>().is_err());
        assert!("colour=red".parse::<DenyIf>().is_err());
    }

    #[test]
    fn hook_failures_are_evenly_spread() {
        for (rate, want) in [(0.0, 0), (0.1, 10), (0.25, 25), (1.0, 100)] {
            let behaviour = Behaviour { fail_rate: rate, ..Behaviour::default() };
            let service = Service { behaviour, ..Service::default() };
            assert_eq!((0..100).filter(|n| service.fails(*n)).count(), want, "{rate}");
        }
    }
}
