//! Hooks of the demo: gRPC servers with small policies, and their configuration.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio::runtime::{Builder, Runtime};
use tonic::Status;

use super::{Folder, text};
use crate::commands::{hook::DenyIf, hook_listener::HookListener};
use gatepost_tls::ServerConfig;
use gatepost_wire::pb::k8s::io::{
    api::admission::v1::{AdmissionRequest, AdmissionResponse},
    apimachinery::pkg::apis::meta::v1 as meta,
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
    policy: Policy,
}

/// Behaviour of a hook. Conditions are those of `gatepost hook --deny-if`.
#[derive(Clone, Copy)]
enum Policy {
    /// Deny with this message if the condition is met.
    Deny(&'static str, &'static str),
    /// Warn with this text if the condition is met.
    Warn(&'static str, &'static str),
    /// Annotate the size of the object.
    Measure,
    /// Leaves every call unanswered.
    Hang,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, transport, failure_policy, timeout, rule: [operations, _, resources], .. } = self;
        let transport = match transport {
            HookTransport::MutualTls => "mutual TLS",
            HookTransport::Plaintext => "plaintext",
            HookTransport::UnixSocket => "unix socket",
        };
        let rule = format!("{operations} of {resources}").replace('"', "");
        write!(f, "{name:<18}{transport:<13}{failure_policy:<8}{timeout:<6}{rule}")
    }
}

const fn hook(
    name: &'static str,
    transport: HookTransport,
    failure_policy: &'static str,
    [group, resources]: [&'static str; 2],
    policy: Policy,
) -> Hook {
    let rule = ["CREATE, UPDATE", group, resources];
    Hook { name, transport, failure_policy, timeout: "5s", rule, policy }
}

const PODS: [&str; 2] = ["\"\"", "pods"];
const SERVICES: [&str; 2] = ["\"\"", "services"];
const FLOATS: Policy = Policy::Deny("/spec/containers/0/image=*:latest", "image floats; pin a version or a digest");
const PRIVILEGED: Policy =
    Policy::Deny("/spec/containers/0/securityContext/privileged=true", "container must not be privileged");
const NO_OWNER: Policy = Policy::Deny("/metadata/labels/team=", "label team is missing; who is called at night?");
const BALANCER: Policy = Policy::Deny("/spec/type=LoadBalancer", "type LoadBalancer costs money; ask for a ClusterIP");
const UNLIMITED: Policy = Policy::Warn("/spec/containers/0/resources/limits=", "container has no resource limits");

pub(super) const NO_LATEST: Hook = hook("no-latest-tag", HookTransport::MutualTls, "Fail", PODS, FLOATS);
pub(super) const NO_PRIVILEGED: Hook = hook("no-privileged", HookTransport::MutualTls, "Fail", PODS, PRIVILEGED);
pub(super) const OWNER_LABEL: Hook =
    hook("owner-label", HookTransport::Plaintext, "Fail", ["apps", "deployments"], NO_OWNER);
pub(super) const WARN_NO_LIMITS: Hook = hook("warn-no-limits", HookTransport::UnixSocket, "Ignore", PODS, UNLIMITED);
pub(super) const AUDIT_ALL: Hook = Hook {
    rule: ["\"*\"", "\"*\"", "\"*/*\""],
    ..hook("audit-everything", HookTransport::MutualTls, "Ignore", PODS, Policy::Measure)
};
pub(super) const SLOW: Hook =
    Hook { timeout: "50ms", ..hook("slow-but-ignored", HookTransport::Plaintext, "Ignore", SERVICES, Policy::Hang) };
pub(super) const NO_BALANCER: Hook = hook("no-load-balancer", HookTransport::UnixSocket, "Fail", SERVICES, BALANCER);
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
        let hook = *hook;
        runtime.spawn(listener.serve(move |request| hook.answer(request)));
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
            let Hook { name, transport, failure_policy, timeout, rule: [operations, group, resources], .. } = hook;
            let files = ", caFile: ca.crt, clientCertificateFile: sidecar.crt, clientKeyFile: sidecar.key";
            let certificates = if *transport == HookTransport::MutualTls { files } else { "" };
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

impl Hook {
    async fn answer(self, request: AdmissionRequest) -> Result<AdmissionResponse, Status> {
        let meets = |condition: &str| DenyIf(condition.to_owned()).met_by(&request);
        let mut response = AdmissionResponse { uid: request.uid.clone(), allowed: Some(true), ..Default::default() };
        match self.policy {
            Policy::Deny(condition, why) if meets(condition) => {
                let (message, reason) = (Some(why.to_owned()), Some("Forbidden".to_owned()));
                response.allowed = Some(false);
                response.status = Some(meta::Status { message, reason, code: Some(403), ..Default::default() });
            }
            Policy::Warn(condition, why) if meets(condition) => response.warnings.push(why.to_owned()),
            Policy::Deny(..) | Policy::Warn(..) => {}
            Policy::Measure => {
                let object = request.object.or(request.old_object);
                let bytes = object.and_then(|object| object.raw).map_or(0, |raw| raw.len());
                response.audit_annotations.insert("object-bytes".to_owned(), bytes.to_string());
            }
            Policy::Hang => return pending().await,
        }
        Ok(response)
    }
}
