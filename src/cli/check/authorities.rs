//! Authorities: authorities of hooks that have ended, or soon will.
//!
//! No problem of the configuration: it would be one from one second to the next, and a sidecar that restarts at night
//! would serve nothing. Each handshake decides on a hook's certificate by itself.

use std::time::SystemTime;

use serde_json::Value;

use crate::{
    model::{FailurePolicy, Hook},
    snapshot::{
        Snapshot,
        hazards::{Concerned, Finding, Remedy, Severity},
    },
    tls::expiry::{self, SOON},
};

/// Findings about the certificates in these hooks' entries.
pub(super) fn findings(snapshot: &Snapshot, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, hook) in (0..).zip(&snapshot.hooks) {
        let Some(origin) = snapshot.origin(index) else { continue };
        let concerned = || {
            let (name, id) = (hook.name.to_string(), hook.id.to_string());
            Concerned {
                hook: name,
                id,
                file: origin.file.clone(),
                path: origin.path.clone(),
                patch: Value::Null,
                drops_cluster_scoped: false,
            }
        };
        let closed = origin.declared_policy != FailurePolicy::Ignore;
        let problems = [of_authorities(hook, now, closed), of_own(hook, now, closed)].into_iter().flatten();
        findings.extend(problems.map(|(rule, severity, [what, why, fix])| Finding {
            rule,
            severity,
            hooks: vec![concerned()],
            what,
            why,
            remedy: Remedy::Words(fix),
            outages: &[],
        }));
    }
    debug_assert!(findings.iter().all(Finding::is_whole), "{findings:?}");
    findings
}

/// Rule, severity; what, why and the fix.
type RuleFinding = (&'static str, Severity, [String; 3]);

fn of_authorities(hook: &Hook, now: SystemTime, closed: bool) -> Option<RuleFinding> {
    let mut ends = expiry::of_authorities(hook);
    ends.sort_unstable();
    let ended = ends.iter().filter(|end| **end <= now).count();
    let (first, last, many) = (*ends.first()?, *ends.last()?, ends.len());
    let name = &hook.name;
    let renew = "write the new authority into its clientConfig; where it was imported, import again".to_owned();
    if ended == many {
        let what = format!("the authority in hook {name:?}'s clientConfig expired on {}", day(last));
        let why = "so certificates that it signed are not accepted, and every call fails".to_owned();
        return Some(("authority-ended", worth(closed), [what, why, renew]));
    }
    if last <= now + SOON {
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

/// Our own certificate for the hook.
fn of_own(hook: &Hook, now: SystemTime, closed: bool) -> Option<RuleFinding> {
    let end = expiry::of_client_certificate(hook)?;
    let name = &hook.name;
    let fix = "renew it in the file that clientCertificateFile names".to_owned();
    match end {
        end if end <= now => {
            let what = format!("our certificate for hook {name:?} expired on {}", day(end));
            let why = "so the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ended", worth(closed), [what, why, fix]))
        }
        end if end <= now + SOON => {
            let what = format!("our certificate for hook {name:?} expires on {}", day(end));
            let why = "and from then on the hook rejects it, and every call fails".to_owned();
            Some(("client-certificate-ends-soon", Severity::Gap, [what, why, fix]))
        }
        _ => None,
    }
}

fn worth(closed: bool) -> Severity {
    if closed { Severity::Danger } else { Severity::Gap }
}

fn day(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;
    use crate::snapshot::{SourceFile, load};

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
        findings(&snapshot, now).into_iter().map(|found| (found.rule, found.severity, found.sentence())).collect()
    }

    #[test]
    fn an_authority_that_has_ended_or_soon_will_is_reported() {
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
