//! Hooks of the demo: gRPC servers with small policies, and their configuration.

use std::{
    collections::BTreeMap,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    thread,
};

use hyper::body::Incoming;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tonic::{Request, Response, Status};
use tower_service::Service as _;

use super::stage::{Folder, text};
use crate::commands::hook_listener::HookListener;
use gatepost_tls::ServerConfig;
use gatepost_wire::pb::{
    gatepost::v1::admission_server::{Admission, AdmissionServer},
    k8s::io::{
        api::admission::v1::{AdmissionResponse, AdmissionReview},
        apimachinery::pkg::apis::meta::v1 as meta,
    },
};

/// Suffix of the hooks' names.
pub(super) const DOMAIN: &str = ".example.com";

/// Transport to a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HookTransport {
    MutualTls,
    Plaintext,
    UnixSocket,
}

/// A hook and its entry in the configuration.
#[derive(Clone, Copy)]
pub(super) struct Hook {
    /// Name without [`DOMAIN`].
    pub(super) name: &'static str,
    pub(super) transport: HookTransport,
    pub(super) failure_policy: &'static str,
    pub(super) timeout: &'static str,
    /// Operations, API group and resources of the only rule, as in YAML.
    pub(super) rule: [&'static str; 3],
}

const WRITES: &str = "CREATE, UPDATE";
const PODS: [&str; 3] = [WRITES, "\"\"", "pods"];
const SERVICES: [&str; 3] = [WRITES, "\"\"", "services"];
const DEPLOYMENTS: [&str; 3] = [WRITES, "apps", "deployments"];
const ALL: [&str; 3] = ["\"*\"", "\"*\"", "\"*/*\""];

const fn hook(
    name: &'static str,
    transport: HookTransport,
    failure_policy: &'static str,
    rule: [&'static str; 3],
) -> Hook {
    Hook { name, transport, failure_policy, timeout: "5s", rule }
}

pub(super) const NO_LATEST: Hook = hook("no-latest-tag", HookTransport::MutualTls, "Fail", PODS);
pub(super) const NO_PRIVILEGED: Hook = hook("no-privileged", HookTransport::MutualTls, "Fail", PODS);
pub(super) const OWNER_LABEL: Hook = hook("owner-label", HookTransport::Plaintext, "Fail", DEPLOYMENTS);
pub(super) const WARN_NO_LIMITS: Hook = hook("warn-no-limits", HookTransport::UnixSocket, "Ignore", PODS);
pub(super) const AUDIT_ALL: Hook = hook("audit-everything", HookTransport::MutualTls, "Ignore", ALL);
pub(super) const SLOW: Hook =
    Hook { timeout: "50ms", ..hook("slow-but-ignored", HookTransport::Plaintext, "Ignore", SERVICES) };
pub(super) const NO_BALANCER: Hook = hook("no-load-balancer", HookTransport::UnixSocket, "Fail", SERVICES);
/// Hooks of the first configuration.
pub(super) const FIRST: [Hook; 6] = [NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, WARN_NO_LIMITS, AUDIT_ALL, SLOW];
/// Hooks of the configuration after the swap.
pub(super) const SECOND: [Hook; 6] = [NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, WARN_NO_LIMITS, AUDIT_ALL, NO_BALANCER];

/// Running hooks, and the folder of their configuration.
pub(super) struct Hooks<'a> {
    pub(super) folder: &'a Folder,
    tls: Arc<ServerConfig>,
    running: BTreeMap<&'static str, Runtime>,
    /// Addresses of TCP hooks that run or have run.
    addresses: BTreeMap<&'static str, SocketAddr>,
}

impl Drop for Hooks<'_> {
    fn drop(&mut self) {
        for hook in FIRST.iter().chain(&SECOND) {
            self.kill(hook);
        }
    }
}

impl<'a> Hooks<'a> {
    /// Creates certificates, starts the first hooks, and writes their configuration.
    pub(super) fn start_first(folder: &'a Folder) -> Result<Self, String> {
        let tls = certificates(folder)?;
        let mut hooks = Self { folder, tls, running: BTreeMap::new(), addresses: BTreeMap::new() };
        FIRST.iter().try_for_each(|hook| hooks.start(hook))?;
        hooks.write(&hooks.document(&FIRST))?;
        Ok(hooks)
    }

    /// Starts a hook. If it has run before, it gets the same address.
    pub(super) fn start(&mut self, hook: &Hook) -> Result<(), String> {
        self.serve(hook).map_err(|error| format!("hook {}: {error}", hook.name))
    }

    fn serve(&mut self, hook: &Hook) -> io::Result<()> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let entered = runtime.enter();
        let listener = match hook.transport {
            HookTransport::UnixSocket => HookListener::unix(&self.socket(hook))?,
            HookTransport::MutualTls | HookTransport::Plaintext => {
                let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let address = self.addresses.get(hook.name).copied().unwrap_or(free);
                HookListener::tcp(address, (hook.transport == HookTransport::MutualTls).then(|| Arc::clone(&self.tls)))?
            }
        };
        self.addresses.extend(listener.address().map(|address| (hook.name, address)));
        let service = AdmissionServer::new(Policy(hook.name));
        let answer = move |request: http::Request<Incoming>| {
            let mut service = service.clone();
            async move { service.call(request).await }
        };
        runtime.spawn(listener.serve(answer, pending()));
        drop(entered);
        self.running.insert(hook.name, runtime);
        Ok(())
    }

    /// Stops a hook and closes its connections.
    pub(super) fn kill(&mut self, hook: &Hook) {
        if let Some(runtime) = self.running.remove(hook.name) {
            // A runtime cannot be dropped on a thread of another runtime. A panic of the hook was printed already.
            let _ = thread::spawn(move || drop(runtime)).join();
            let _ = std::fs::remove_file(self.socket(hook));
        }
    }

    fn socket(&self, hook: &Hook) -> PathBuf {
        self.folder.0.join(format!("{}.sock", hook.name))
    }

    /// Returns the URL of a hook, which need not run.
    fn url(&self, hook: &Hook) -> String {
        let scheme = if hook.transport == HookTransport::MutualTls { "grpcs" } else { "grpc" };
        match self.addresses.get(hook.name) {
            Some(address) => format!("{scheme}://{address}"),
            None => format!("unix://{}", self.socket(hook).display()),
        }
    }

    /// Returns the configuration with these hooks.
    pub(super) fn document(&self, hooks: &[Hook]) -> String {
        let mut text = String::from(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: demo}\n\
             externalAdmissionHooks:\n",
        );
        for hook in hooks {
            let Hook { name, transport, failure_policy, timeout, rule: [operations, group, resources] } = hook;
            let certificates = match transport {
                HookTransport::MutualTls => {
                    ", caFile: ca.crt, clientCertificateFile: sidecar.crt, clientKeyFile: sidecar.key"
                }
                HookTransport::Plaintext | HookTransport::UnixSocket => "",
            };
            text += &format!(
                "- name: {name}{DOMAIN}\n  clientConfig: {{url: \"{}\"{certificates}}}\n  failurePolicy: \
                 {failure_policy}\n  timeout: {timeout}\n  sideEffects: None\n  rules:\n  - operations: \
                 [{operations}]\n    apiGroups: [{group}]\n    apiVersions: [\"*\"]\n    resources: [{resources}]\n",
                self.url(hook),
            );
        }
        text
    }

    /// Replaces the configuration.
    pub(super) fn write(&self, document: &str) -> Result<(), String> {
        self.folder.write("hooks.yaml", document)
    }
}

/// Writes the sidecar's certificates for mutual TLS into the folder. Returns the TLS configuration of the hooks.
fn certificates(folder: &Folder) -> Result<Arc<ServerConfig>, String> {
    let pair = |authority: &CertifiedIssuer<'_, KeyPair>, name: &str, purpose| {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.extended_key_usages = vec![purpose];
        Ok((params.signed_by(&key, authority)?.pem(), key.serialize_pem()))
    };
    let all = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let hooks = pair(&authority, "127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth)?;
        let sidecar = pair(&authority, "gatepost.example.com", ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok::<_, rcgen::Error>((authority.pem(), hooks, sidecar))
    };
    let (authority, hooks, sidecar) = all().map_err(|error| format!("cannot make certificates: {error}"))?;
    folder.write("ca.crt", &authority)?;
    folder.write("sidecar.crt", &sidecar.0)?;
    folder.write("sidecar.key", &sidecar.1)?;
    gatepost_tls::server_config(hooks.0.as_bytes(), hooks.1.as_bytes(), Some(authority.as_bytes())).map_err(text)
}

/// Policy of the hook with this name, served by gRPC.
struct Policy(&'static str);

#[tonic::async_trait]
impl Admission for Policy {
    async fn review(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        let request = request.into_inner().request.ok_or_else(|| Status::invalid_argument("no request"))?;
        if self.0 == SLOW.name {
            return pending().await;
        }
        let raw = request.object.as_ref().and_then(|object| object.raw.as_ref());
        let object = raw.map_or(Ok(Value::Null), |raw| serde_json::from_slice(raw));
        let object = object.map_err(|error| Status::invalid_argument(format!("the object is not JSON: {error}")))?;
        let mut response = AdmissionResponse { uid: request.uid.clone(), allowed: Some(true), ..Default::default() };
        if self.0 == AUDIT_ALL.name {
            let object = request.object.or(request.old_object);
            let bytes = object.and_then(|object| object.raw).map_or(0, |raw| raw.len());
            response.audit_annotations.insert("object-bytes".to_owned(), bytes.to_string());
        }
        if self.0 == WARN_NO_LIMITS.name {
            let unlimited = containers(&object).filter(|(_, container)| container["resources"]["limits"].is_null());
            response.warnings = unlimited.map(|(name, _)| format!("container {name} has no resource limits")).collect();
        }
        if let Some(denial) = denial(self.0, &object) {
            response.allowed = Some(false);
            response.status = Some(meta::Status {
                message: Some(denial),
                reason: Some("Forbidden".to_owned()),
                code: Some(403),
                ..Default::default()
            });
        }
        Ok(Response::new(AdmissionReview { request: None, response: Some(response) }))
    }

    async fn mutate(&self, _: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        Err(Status::unimplemented("this hook changes nothing"))
    }

    async fn validate(&self, request: Request<AdmissionReview>) -> Result<Response<AdmissionReview>, Status> {
        self.review(request).await
    }
}

/// Returns the reason why the hook denies the object; `None` if the hook allows it.
fn denial(hook: &str, object: &Value) -> Option<String> {
    if hook == NO_LATEST.name {
        // Deny images without a tag or with the tag `latest`, unless they have a digest.
        let floats = |image: &&str| {
            let name = image.rsplit('/').next().unwrap_or(image);
            !image.contains('@') && matches!(name.split_once(':'), None | Some((_, "latest")))
        };
        let image = containers(object).filter_map(|(_, container)| container["image"].as_str()).find(floats)?;
        Some(format!("image {image} floats; pin a version or a digest"))
    } else if hook == NO_PRIVILEGED.name {
        let is_privileged = |(_, container): &(_, &Value)| container["securityContext"]["privileged"] == true;
        let (name, _) = containers(object).find(is_privileged)?;
        Some(format!("container {name} is privileged"))
    } else if hook == OWNER_LABEL.name {
        let team = &object["metadata"]["labels"]["team"];
        team.is_null().then(|| "label team is missing; who is called at night?".to_owned())
    } else if hook == NO_BALANCER.name {
        let is_balancer = object["spec"]["type"] == "LoadBalancer";
        is_balancer.then(|| "type LoadBalancer costs money; ask for a ClusterIP".to_owned())
    } else {
        None
    }
}

/// Returns the containers of a Pod or of a Pod template, with their names.
fn containers(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let spec = object.pointer("/spec/template/spec").unwrap_or(&object["spec"]);
    let all = ["initContainers", "containers"].into_iter().filter_map(|list| spec[list].as_array()).flatten();
    all.map(|container| (container["name"].as_str().unwrap_or("?"), container))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn demo_hook_denies_images_with_a_floating_tag() {
        let denied = |image: &str| {
            let pod = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
            denial(NO_LATEST.name, &pod)
        };
        for floats in ["web", "web:latest", "example.com:5000/web", "example.com:5000/web:latest"] {
            assert!(denied(floats).is_some(), "{floats}");
        }
        for pinned in ["web:1", "example.com:5000/web:1", "example.com:5000/web@sha256:00", "web:latest@sha256:00"] {
            assert_eq!(denied(pinned), None, "{pinned}");
        }
    }
}
