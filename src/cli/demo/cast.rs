//! The cast: which hooks there are, where they listen, and the configuration that names them.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::SystemTime,
};

use super::{
    certificates::Certificates,
    hook::{Hook, HookAddress},
    policies::{self, Policy},
};
use crate::tls::{self, ServerConfig};

/// Suffix of all names.
pub(super) const DOMAIN: &str = ".example.com";

/// Transport to a hook.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    MutualTls,
    Plaintext,
    UnixSocket,
}

/// One hook as it is written in the programme.
pub(super) struct Part {
    /// Without [`DOMAIN`].
    pub(super) name: &'static str,
    pub(super) way: Way,
    pub(super) failure_policy: &'static str,
    pub(super) timeout: &'static str,
    /// Operations, API group, resources.
    pub(super) rule: (&'static str, &'static str, &'static str),
    /// `None` never answers.
    policy: Option<Policy>,
}

const fn part(
    name: &'static str,
    way: Way,
    terms: (&'static str, &'static str),
    rule: (&'static str, &'static str, &'static str),
    policy: Option<Policy>,
) -> Part {
    Part { name, way, failure_policy: terms.0, timeout: terms.1, rule, policy }
}

const CORE: &str = "\"\"";
const WRITES: &str = "CREATE, UPDATE";

pub(super) const NO_LATEST: Part =
    part("no-latest-tag", Way::MutualTls, ("Fail", "5s"), (WRITES, CORE, "pods"), Some(policies::no_latest_tag));
pub(super) const NO_PRIVILEGED: Part =
    part("no-privileged", Way::MutualTls, ("Fail", "5s"), (WRITES, CORE, "pods"), Some(policies::no_privileged));
pub(super) const OWNER_LABEL: Part =
    part("owner-label", Way::Plaintext, ("Fail", "5s"), (WRITES, "apps", "deployments"), Some(policies::owner_label));
pub(super) const WARN_NO_LIMITS: Part =
    part("warn-no-limits", Way::UnixSocket, ("Ignore", "5s"), (WRITES, CORE, "pods"), Some(policies::warn_no_limits));
pub(super) const AUDIT_ALL: Part = part(
    "audit-everything",
    Way::MutualTls,
    ("Ignore", "5s"),
    ("\"*\"", "\"*\"", "\"*/*\""),
    Some(policies::audit_everything),
);
pub(super) const SLOW: Part =
    part("slow-but-ignored", Way::Plaintext, ("Ignore", "50ms"), (WRITES, CORE, "services"), None);
pub(super) const NO_BALANCER: Part = part(
    "no-load-balancer",
    Way::UnixSocket,
    ("Fail", "5s"),
    (WRITES, CORE, "services"),
    Some(policies::no_load_balancer),
);
/// Hooks at the start.
pub(super) const FIRST: [Part; 6] = [NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, WARN_NO_LIMITS, AUDIT_ALL, SLOW];
/// Hooks after the swap.
pub(super) const SECOND: [Part; 6] = [NO_LATEST, NO_PRIVILEGED, OWNER_LABEL, WARN_NO_LIMITS, AUDIT_ALL, NO_BALANCER];

/// The hooks and the folder they are configured in. Both are gone when this is.
pub(super) struct Cast {
    folder: PathBuf,
    tls: Arc<ServerConfig>,
    running: BTreeMap<&'static str, Hook>,
    /// Addresses of the hooks that ran once.
    places: BTreeMap<&'static str, HookAddress>,
    urls: BTreeMap<&'static str, String>,
}

impl Drop for Cast {
    fn drop(&mut self) {
        self.running.clear();
        // A folder that cannot be removed is the temporary folder's problem.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Cast {
    /// Makes the folder and fresh certificates in it.
    pub(super) fn gather() -> Result<Self, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let folder = std::env::temp_dir().join(format!("gatepost-demo-{}-{}", process::id(), now.subsec_micros()));
        let named = |error: io::Error| {
            format!("cannot make {}: {error}; set TMPDIR to a folder that you may write in", folder.display())
        };
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(named)?;
        let made = Self::prepare(&folder);
        if made.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        let tls = made?;
        Ok(Self { folder, tls, running: BTreeMap::new(), places: BTreeMap::new(), urls: BTreeMap::new() })
    }

    fn prepare(folder: &Path) -> Result<Arc<ServerConfig>, String> {
        let certificates = Certificates::fresh().map_err(|error| format!("cannot make certificates: {error}"))?;
        let files = [
            ("config", None),
            ("config/ca.crt", Some(&certificates.authority)),
            ("config/sidecar.crt", Some(&certificates.sidecar.certificate)),
            ("config/sidecar.key", Some(&certificates.sidecar.key)),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            let written = text.map_or_else(|| fs::create_dir(&path), |text| fs::write(&path, text));
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        let authority = certificates.authority.as_bytes();
        let hooks = &certificates.hooks;
        let tls = tls::server_config(hooks.certificate.as_bytes(), hooks.key.as_bytes(), Some(authority));
        tls.map_err(|error| error.to_string())
    }

    /// Folder of all files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that the sidecar reads.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// Path of the sidecar's audit log.
    pub(super) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// Starts a hook, where it was before if it was there before.
    pub(super) fn enter(&mut self, part: &Part) -> Result<(), String> {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let place = self.places.get(part.name).cloned().unwrap_or_else(|| match part.way {
            Way::MutualTls => HookAddress::Tls(free, self.tls.clone()),
            Way::Plaintext => HookAddress::Plain(free),
            Way::UnixSocket => HookAddress::Unix(self.socket(part)),
        });
        let hook = Hook::start(place, part.policy).map_err(|error| format!("hook {}: {error}", part.name))?;
        self.places.insert(part.name, hook.place.clone());
        self.urls.insert(part.name, hook.url());
        self.running.insert(part.name, hook);
        Ok(())
    }

    /// Kills a hook.
    pub(super) fn kill(&mut self, part: &Part) {
        self.running.remove(part.name);
    }

    fn socket(&self, part: &Part) -> PathBuf {
        self.folder.join(format!("{}.sock", part.name))
    }

    /// URL of a hook, now or later.
    fn url(&self, part: &Part) -> String {
        self.urls.get(part.name).cloned().unwrap_or_else(|| format!("unix://{}", self.socket(part).display()))
    }

    /// The configuration that names these hooks.
    pub(super) fn document(&self, parts: &[Part]) -> String {
        let mut text = String::from(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: demo}\n\
             externalAdmissionHooks:\n",
        );
        for part in parts {
            let (operations, group, resources) = part.rule;
            let certificates = match part.way {
                Way::MutualTls => ", caFile: ca.crt, clientCertificateFile: sidecar.crt, clientKeyFile: sidecar.key",
                Way::Plaintext | Way::UnixSocket => "",
            };
            text.push_str(&format!(
                "- name: {}{DOMAIN}\n  clientConfig: {{url: \"{}\"{certificates}}}\n  failurePolicy: {}\n  \
                 timeout: {}\n  sideEffects: None\n  rules:\n  - operations: [{operations}]\n    \
                 apiGroups: [{group}]\n    apiVersions: [\"*\"]\n    resources: [{resources}]\n",
                part.name,
                self.url(part),
                part.failure_policy,
                part.timeout,
            ));
        }
        text
    }

    /// Puts this text in the place of the configuration, as careful people do it: written beside it, then renamed.
    pub(super) fn write(&self, text: &str) -> Result<(), String> {
        let (new, file) = (self.config().join(".new"), self.config().join("hooks.yaml"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &file))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}
