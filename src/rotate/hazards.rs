//! Hazards: treatment of a valid configuration that can still take the cluster down. Detects the one hazard that only
//! this process can see: hooks at an address on which it listens itself.
//!
//! Such a hook turns each review into another one. `gatepost-hops` ends that after a few rounds; this check rejects the
//! hook before the first. A Service's name or a proxy can also lead here, which the configuration does not show.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

use serde_json::Value;

use gatepost_api::{Hook, Hops, hook::Address};
use gatepost_config::{
    Pause, Problem, Snapshot,
    hazards::{AffectedHook, Finding, Remedy, Severity},
};

/// Treatment of hazards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHazard {
    /// Hazards are logged.
    #[default]
    Warn,
    /// Deadlocks and dangers are problems of the configuration; gaps are logged.
    Deny,
    /// Hazards are not checked.
    Off,
}

impl OnHazard {
    /// Returns the hazards of the snapshot.
    ///
    /// # Errors
    /// If hazards are denied, returns them as problems, one for each hook concerned.
    pub(super) fn judge(
        self,
        snapshot: &Snapshot,
        own: &OwnAddresses,
        pause: Pause<'_>,
    ) -> Result<Vec<Finding>, Vec<Problem>> {
        if self == Self::Off {
            return Ok(Vec::new());
        }
        let mut findings = own.findings(snapshot);
        findings.extend(snapshot.hazards_with(pause));
        findings.sort_by_key(|finding| finding.severity);
        let denied = |finding: &&Finding| self == Self::Deny && finding.severity < Severity::Gap;
        let problems: Vec<_> = findings.iter().filter(denied).flat_map(problems).collect();
        if problems.is_empty() { Ok(findings) } else { Err(problems) }
    }
}

fn problems(finding: &Finding) -> impl Iterator<Item = Problem> {
    finding.hooks.iter().map(|concerned| Problem {
        file: concerned.file.clone(),
        path: concerned.path.clone(),
        what: format!("{} {}: {}", finding.severity.as_str(), finding.rule, finding.what),
        why: finding.why.clone(),
        fix: match &finding.remedy {
            Remedy::Patch => format!("merge into the entry: {}", concerned.patch),
            Remedy::Words(words) => words.clone(),
        },
    })
}

/// Maximum number of logged hazards of one configuration.
const MAX_LOGGED: usize = 100;

/// Logs new findings; deadlocks and dangers as warnings.
pub(super) fn log_findings(findings: &[Finding], before: &[Finding]) {
    let news = news(findings, before);
    for finding in news.iter().take(MAX_LOGGED) {
        match finding.severity {
            Severity::Deadlock | Severity::Danger => tracing::warn!("hazard: {finding}"),
            Severity::Gap => tracing::info!("hazard: {finding}"),
        }
    }
    if let Some(more) = news.len().checked_sub(MAX_LOGGED).filter(|more| *more > 0) {
        tracing::warn!(more, "more hazards: see /configz or `gatepost check`");
    }
}

/// Returns the findings that are not in `before`. Compares their texts, since places and patches change with the file.
fn news<'a>(findings: &'a [Finding], before: &[Finding]) -> Vec<&'a Finding> {
    let known: HashSet<_> = before.iter().map(|finding| (finding.rule, finding.severity, finding.sentence())).collect();
    findings.iter().filter(|it| !known.contains(&(it.rule, it.severity, it.sentence()))).collect()
}

/// Addresses on which this sidecar listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    tcp: Vec<SocketAddr>,
    unix: Option<Box<str>>,
}

impl OwnAddresses {
    /// Creates the addresses of all sockets, of any purpose: no hook answers at any of them.
    pub fn new(tcp: impl IntoIterator<Item = SocketAddr>, unix: Option<&Path>) -> Self {
        Self { tcp: tcp.into_iter().collect(), unix: unix.and_then(Path::to_str).map(Box::from) }
    }

    /// Returns a finding for each hook at one of these addresses.
    pub(super) fn findings(&self, snapshot: &Snapshot) -> Vec<Finding> {
        let hooks = (0..).zip(&snapshot.hooks).filter(|(_, hook)| self.holds(&hook.endpoint.address));
        let finding = |(index, hook): (u32, &Arc<Hook>)| {
            let (file, path) =
                snapshot.origin(index).map_or_else(Default::default, |it| (it.file.clone(), it.path.clone()));
            let (name, id) = (hook.name.to_string(), hook.id.to_string());
            Finding {
                rule: "leads-to-itself",
                severity: Severity::Danger,
                what: format!("hook {name:?} is at {}, where Gatepost itself listens", hook.endpoint),
                why: format!(
                    "so each review that it is asked about comes back as another one, {} times over, and is then refused, \
                     which the hook's failure policy decides",
                    Hops::LIMIT.get(),
                ),
                remedy: Remedy::Words(
                    "write the hook's own address into its clientConfig, or remove it, where it is Gatepost's own \
                     registration"
                        .to_owned(),
                ),
                hooks: vec![AffectedHook {
                    hook: name,
                    id,
                    file,
                    path,
                    patch: Value::Null,
                    drops_cluster_scoped: false,
                }],
                outages: &[],
            }
        };
        let findings: Vec<_> = hooks.map(finding).collect();
        debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?}");
        findings
    }

    fn holds(&self, address: &Address) -> bool {
        match address {
            Address::Unix(path) => self.unix.as_deref() == Some(path),
            Address::Tcp { host, port } => self.tcp.iter().any(|own| own.port() == *port && reaches(host, own.ip())),
        }
    }
}

/// Returns true if a connection from this machine to `host` reaches a socket that listens on `own`.
fn reaches(host: &str, own: IpAddr) -> bool {
    let own = own.to_canonical();
    let everywhere = own.is_unspecified();
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) if ip.is_unspecified() => everywhere || own.is_loopback(),
        Ok(ip) => ip == own || everywhere && ip.is_loopback(),
        Err(_) => {
            let host = host.strip_suffix('.').unwrap_or(host);
            host.eq_ignore_ascii_case("localhost") && (everywhere || own.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatepost_config::{SourceFile, load};

    #[test]
    fn hazards_are_logged_once() {
        let finding = |severity: Severity, what: &str| Finding {
            rule: "guards-leases",
            severity,
            hooks: Vec::new(),
            what: what.into(),
            why: "so nobody can write".into(),
            remedy: Remedy::Words("remove it".into()),
            outages: &[],
        };
        let (danger, gap) = (Severity::Danger, Severity::Gap);
        let before = [finding(danger, "a"), finding(gap, "b")];
        assert!(news(&before, &before).is_empty());
        assert_eq!(news(&before, &[]).len(), 2);
        let after = [finding(danger, "a"), finding(danger, "b"), finding(gap, "c")];
        assert_eq!(news(&after, &before), [&after[1], &after[2]]);
    }

    fn snapshot(urls: &[&str]) -> Snapshot {
        let mut text = String::from(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\nexternalAdmissionHooks:\n",
        );
        for (number, url) in urls.iter().enumerate() {
            text += &format!("- {{name: h{number}.example.com, rules: [], clientConfig: {{url: '{url}'}}}}\n");
        }
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    fn found(own: &[&str], urls: &[&str]) -> Vec<String> {
        let own = own.iter().map(|address| address.parse().expect("an address"));
        let own = OwnAddresses::new(own, Some(Path::new("/run/gatepost.sock")));
        own.findings(&snapshot(urls)).iter().map(|finding| finding.hooks[0].path.clone()).collect()
    }

    #[test]
    fn a_hook_at_one_of_our_sockets_is_reported_with_its_place() {
        let urls = [
            "grpc://127.0.0.1:9440",
            "https://localhost:9440/validate",
            "grpc://127.0.0.1:9442",
            "unix:///run/gatepost.sock",
            "unix:///run/other.sock",
            "grpc://127.0.0.2:9440",
            "http://127.0.0.1:9441/",
        ];
        let path = |number: usize| format!("externalAdmissionHooks[{number}]");
        assert_eq!(found(&["127.0.0.1:9440", "127.0.0.1:9441"], &urls), [path(0), path(1), path(3), path(6)]);
        assert_eq!(found(&["0.0.0.0:9440"], &urls), [path(0), path(1), path(3), path(5)]);
        assert_eq!(found(&["10.0.0.1:9440"], &urls), [path(3)]);
        assert_eq!(found(&["[::1]:9440"], &["grpcs://[::1]:9440", "grpcs://10.0.0.1:9440"]), [path(0)]);
    }
}
