//! Examination: checks a configuration as a sidecar does, and reports every problem, hazard and note.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::SystemTime};

use clap::ValueEnum;
use gatepost_operator::command::{CommandExit, counted, yaml};
use serde_json::Value;

use super::load::READ_TIMEOUT;
use crate::{
    rotate::{Candidate, OnHazard, candidate::CandidateCache},
    source::{FileSource, ReadError},
};
use gatepost_api::{Enforcement, FailurePolicy, Hook, Initializer, ResourceInitializers, SideEffects};
use gatepost_config::{
    CanaryPair, Snapshot,
    hazards::{AffectedHook, Finding, Remedy, Severity},
};
use gatepost_policy::{Definition, Policy};
use gatepost_tls::expiry::{self, EXPIRY_WARNING_THRESHOLD};

/// Value of `--hazards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HazardsArg {
    /// Print them.
    Warn,
    /// Treat deadlocks and dangers as problems; print gaps.
    Deny,
    /// Do not look for them.
    Off,
}

impl From<HazardsArg> for OnHazard {
    fn from(arg: HazardsArg) -> Self {
        match arg {
            HazardsArg::Warn => Self::Warn,
            HazardsArg::Deny => Self::Deny,
            HazardsArg::Off => Self::Off,
        }
    }
}

/// Report on a configuration, and the exit status of the command.
pub(super) struct Examination {
    pub(super) report: String,
    pub(super) exit: CommandExit,
    /// Configuration that would be in force; `None` if there are problems.
    pub(super) candidate: Option<Candidate>,
}

/// Checks the configuration at `path`, as a sidecar with this cache does.
///
/// # Errors
/// [`ReadError`] if the configuration cannot be read.
pub(super) fn examine(path: &Path, on_hazard: OnHazard, mut known: CandidateCache) -> Result<Examination, ReadError> {
    let contents = FileSource::new(path).read(READ_TIMEOUT)?;
    // `Deny` prints what `Warn` prints, because of the patches. Only the exit status differs.
    let looked = if on_hazard == OnHazard::Deny { OnHazard::Warn } else { on_hazard };
    Ok(match known.candidate(&contents, looked, None) {
        Ok(candidate) => {
            let mut findings = candidate.snapshot.findings().to_vec();
            if on_hazard != OnHazard::Off {
                findings.extend(authority_findings(&candidate.snapshot, SystemTime::now()));
                findings.sort_by_key(|finding| finding.severity);
            }
            let report = summary(contents.files.len(), &candidate.snapshot) + &hazards(&findings);
            let bad = findings.iter().any(|finding| finding.severity < Severity::Gap);
            let exit = if bad && on_hazard == OnHazard::Deny { CommandExit::Failed } else { CommandExit::Good };
            Examination { report, exit, candidate: Some(candidate) }
        }
        Err(problems) => {
            let mut report = String::new();
            for problem in &problems {
                let _ = writeln!(report, "{problem}");
            }
            let _ = writeln!(report, "{}", counted(problems.len(), "problem"));
            Examination { report, exit: CommandExit::Failed, candidate: None }
        }
    })
}

fn summary(files: usize, snapshot: &Snapshot) -> String {
    let mut report = format!("no problem in {}\n", counted(files, "file"));
    let counts = [(snapshot.hooks.len(), "hook"), (snapshot.initializer_count(), "initializer")];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0).map(|(number, noun)| counted(number, noun));
    let policies = match snapshot.policies().len() {
        0 => None,
        1 => Some("1 policy".to_owned()),
        many => Some(format!("{many} policies")),
    };
    let counts = counts.chain(policies);
    let in_force = match counts.collect::<Vec<_>>() {
        _ if snapshot.allows_every_write() => "no hooks; every write is allowed".to_owned(),
        none if none.is_empty() => "no hooks, and no initializers; who may write their own list is checked".to_owned(),
        counts => counts.join(", "),
    };
    let _ = writeln!(report, "in force would be: {in_force}");
    for hook in &snapshot.hooks {
        let canary = snapshot.hook_canaries().canary(hook.hook_type, &hook.name);
        let _ = writeln!(report, "  {}", line(hook, canary));
    }
    for one in snapshot.policies() {
        let canary = snapshot.policy_canaries().canary(one.definition.hook_type, &one.definition.name);
        let _ = writeln!(report, "  {}", policy_line(one, canary));
    }
    for entry in snapshot.initializers() {
        for one in &entry.initializers {
            let _ = writeln!(report, "  {}", initializer(entry, one));
        }
    }
    for note in snapshot.notes().iter().chain(&snapshot.called_again()) {
        let _ = writeln!(report, "{note}");
    }
    report
}

fn initializer(entry: &ResourceInitializers, one: &Initializer) -> String {
    let actor = match (&one.built_in, &one.attach) {
        (Some(_), _) => "built in",
        (None, Some(_)) => "by a process that attaches",
        (None, None) => "by who updates the stored object",
    };
    let timeout = humantime::format_duration(one.timeout);
    format!("{} of {}: {actor}, {}, {timeout}", one.name, entry.noun(), one.failure_policy.as_str())
}

fn policy_line(one: &Policy, canary: Option<&CanaryPair>) -> String {
    let Definition { name, hook_type, failure_policy, constraints, .. } = &*one.definition;
    let (hook_type, policy) = (hook_type.as_str().to_lowercase(), failure_policy.as_str());
    let (rules, bindings) = (counted(constraints.rules.len(), "rule"), counted(one.bindings.len(), "binding"));
    let unenforced = unenforced(one.enforcement, canary);
    format!("{name}, in process: {hook_type} policy, {policy}, {rules}, {bindings}{unenforced}")
}

fn line(hook: &Hook, canary: Option<&CanaryPair>) -> String {
    let hook_type = hook.hook_type.as_str().to_lowercase();
    let policy = hook.failure_policy.as_str();
    let dry_run = match hook.side_effects {
        SideEffects::None | SideEffects::NoneOnDryRun => "",
        SideEffects::Undeclared | SideEffects::Some | SideEffects::Unknown => ", not for dry runs",
    };
    let timeout = humantime::format_duration(hook.timeout);
    let rules = counted(hook.rules.len(), "rule");
    let phase = if hook.is_transactional { ", Transactional" } else { "" };
    let encoding = if hook.takes_protobuf { ", objects in protobuf" } else { "" };
    let unenforced = unenforced(hook.enforcement, canary);
    let (name, endpoint) = (&hook.name, &hook.endpoint);
    format!("{name} at {endpoint}: {hook_type}, {policy}, {timeout}, {rules}{phase}{encoding}{dry_run}{unenforced}")
}

/// Returns the end of the line about a hook or policy that does not enforce, or for a share of the requests only.
fn unenforced(enforcement: Enforcement, canary: Option<&CanaryPair>) -> String {
    match (enforcement.denies(), canary) {
        (true, None) => String::new(),
        (true, Some(pair)) => format!(", canary for {}", pair.canary),
        (false, _) => format!(", {} only", enforcement.as_str()),
    }
}

/// Returns findings about certificates in the hooks' entries that have expired or soon will.
fn authority_findings(snapshot: &Snapshot, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, hook) in (0..).zip(&snapshot.hooks) {
        let Some(origin) = snapshot.origin(index) else { continue };
        // The severity of a certificate that has expired.
        let expired = if origin.declared_policy == FailurePolicy::Ignore { Severity::Gap } else { Severity::Danger };
        let problems = [authority_fault(hook, now, expired), client_certificate_fault(hook, now, expired)];
        findings.extend(problems.into_iter().flatten().map(|(rule, severity, [what, why, fix])| Finding {
            rule,
            severity,
            hooks: vec![AffectedHook {
                hook: hook.name.to_string(),
                id: hook.id.to_string(),
                file: origin.file.clone(),
                path: origin.path.clone(),
                patch: Value::Null,
                drops_cluster_scoped: false,
            }],
            what,
            why,
            remedy: Remedy::Words(fix),
            outages: &[],
        }));
    }
    debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?}");
    findings
}

/// Rule, severity, and three texts of a [`Finding`]: what, why and the fix.
type RuleFinding = (&'static str, Severity, [String; 3]);

fn authority_fault(hook: &Hook, now: SystemTime, expired: Severity) -> Option<RuleFinding> {
    let mut ends = expiry::of_authorities(hook);
    ends.sort_unstable();
    let ended = ends.iter().filter(|end| **end <= now).count();
    let (first, last, many) = (*ends.first()?, *ends.last()?, ends.len());
    let name = &hook.name;
    let renew = "write the new authority into its clientConfig; where it was imported, import again".to_owned();
    if ended == many {
        let what = format!("the authority in hook {name:?}'s clientConfig expired on {}", day(last));
        let why = "so certificates that it signed are not accepted, and every call fails".to_owned();
        return Some(("authority-ended", expired, [what, why, renew]));
    }
    if last <= now + EXPIRY_WARNING_THRESHOLD {
        let what = format!("the authority in hook {name:?}'s clientConfig expires on {}", day(last));
        let why = "and from then on certificates that it signed are not accepted, and every call fails".to_owned();
        return Some(("authority-ends-soon", Severity::Gap, [what, why, renew]));
    }
    (ended > 0).then(|| {
        let what =
            format!("{ended} of {many} authorities in hook {name:?}'s clientConfig expired on {} or later", day(first));
        let why = "so a certificate that one of them signed is not accepted".to_owned();
        let fix = "remove them once no certificate of the hook is signed by them".to_owned();
        ("authority-ended", Severity::Gap, [what, why, fix])
    })
}

/// Returns a finding if our client certificate for the hook has expired or soon will.
fn client_certificate_fault(hook: &Hook, now: SystemTime, expired: Severity) -> Option<RuleFinding> {
    let end = expiry::of_client_certificate(hook)?;
    let name = &hook.name;
    let fix = "renew it in the file that clientCertificateFile names".to_owned();
    match end {
        end if end <= now => {
            let what = format!("our certificate for hook {name:?} expired on {}", day(end));
            let why = "so the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ended", expired, [what, why, fix]))
        }
        end if end <= now + EXPIRY_WARNING_THRESHOLD => {
            let what = format!("our certificate for hook {name:?} expires on {}", day(end));
            let why = "and from then on the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ends-soon", Severity::Gap, [what, why, fix]))
        }
        _ => None,
    }
}

fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

/// Comment above a patch that makes a hook miss cluster-scoped resources.
const SCOPE_NOTE: &str = "# with this it sees nothing outside of namespaces any more: add a rule with scope Cluster for \
                          each resource there that it should go on seeing (such as clusterroles)";

/// Returns a text with all findings, followed by one patch for each hook that fixes all of its findings. Returns an
/// empty text if there are no findings.
fn hazards(findings: &[Finding]) -> String {
    let mut output = String::new();
    if findings.is_empty() {
        return output;
    }
    let numbers = [(Severity::Deadlock, "deadlock"), (Severity::Danger, "danger"), (Severity::Gap, "gap")]
        .map(|(severity, noun)| (findings.iter().filter(|finding| finding.severity == severity).count(), noun));
    let numbers: Vec<_> = numbers.into_iter().filter(|(n, _)| *n > 0).map(|(n, noun)| counted(n, noun)).collect();
    let _ = writeln!(output, "\nhazards: {}", numbers.join(", "));
    let mut patched: BTreeMap<(&str, &str), &AffectedHook> = BTreeMap::new();
    for finding in findings {
        let _ = writeln!(output, "\n{} {}", finding.severity.as_str(), finding.rule);
        for concerned in &finding.hooks {
            let _ = writeln!(output, "  {}: {}", concerned.file, concerned.path);
            patched.entry((&concerned.file, &concerned.path)).or_insert(concerned);
        }
        let _ = writeln!(output, "  {}", finding.sentence());
        if !finding.outages.is_empty() {
            let _ = writeln!(output, "  as in {}", finding.outages.join(", "));
        }
    }
    for (_, concerned) in patched.into_iter().filter(|(_, concerned)| !concerned.patch.is_null()) {
        let AffectedHook { hook, id, file, path, patch, drops_cluster_scoped } = concerned;
        let noun = if id.is_empty() { "initializer" } else { "hook" };
        let _ = writeln!(output, "\nto repair {noun} {hook:?}, merge this into its entry ({file}: {path}):");
        if *drops_cluster_scoped {
            let _ = writeln!(output, "  {SCOPE_NOTE}");
        }
        for line in yaml(patch).unwrap_or_else(|_| patch.to_string()).lines() {
            let _ = writeln!(output, "  {line}");
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;
    use gatepost_config::{SourceFile, load};

    fn authority(year: i32) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn problems_of(bundle: &str, policy: &str, now: SystemTime) -> Vec<(&'static str, Severity, String)> {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks: [{{name: h.example.com, rules: [], failurePolicy: {policy}, clientConfig: {{url: \
             'https://h.example.com/', caBundle: {}}}}}]\n",
            STANDARD.encode(bundle)
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        authority_findings(&snapshot, now)
            .into_iter()
            .map(|found| (found.rule, found.severity, found.sentence()))
            .collect()
    }

    #[test]
    fn check_reports_authorities_that_have_expired_or_soon_will() {
        let day = Duration::from_secs(24 * 3600);
        // 2030-01-01
        let now = SystemTime::UNIX_EPOCH + day * 21_915;
        let (old, new) = (authority(2029), authority(2040));
        let rules = |bundle: &str, policy: &str, now| -> Vec<_> {
            problems_of(bundle, policy, now).into_iter().map(|(rule, severity, _)| (rule, severity)).collect()
        };
        assert_eq!(rules(&new, "Fail", now), []);
        assert_eq!(rules(&old, "Fail", now), [("authority-ended", Severity::Danger)]);
        assert_eq!(rules(&old, "Ignore", now), [("authority-ended", Severity::Gap)]);
        assert_eq!(rules(&(old.clone() + &new), "Fail", now), [("authority-ended", Severity::Gap)]);
        assert_eq!(rules(&old, "Fail", now - day * 370), [("authority-ends-soon", Severity::Gap)]);
        assert_eq!(rules(&old, "Fail", now - day * 400), []);
        let what = &problems_of(&old, "Fail", now)[0].2;
        assert!(what.contains("expired on 2029-01-01") && what.contains("import again"), "{what}");
    }
}
