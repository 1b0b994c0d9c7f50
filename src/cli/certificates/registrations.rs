//! Registrations: the `caBundle` of every webhook that names our Service.
//!
//! It is written by a JSON patch of that field alone, on the very state that was read. Not by server-side apply: whoever
//! applies an entry of a list keeps that entry in the list, so that a registration printed anew without it would be
//! refused as incomplete.

use std::time::SystemTime;

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use super::{Failure, MANAGER};
use crate::{cli::service::Service, kube::Client, snapshot::bundle::sections, tls::expiry};

/// Registrations of validating and of mutating hooks.
const KINDS: [&str; 2] = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
/// The most authorities of others that are left in a bundle.
const MOST_OTHERS: usize = 8;

/// Result of a look at the registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trusting {
    /// Webhooks that name our Service.
    pub(super) webhooks: usize,
    /// Webhooks whose bundle was written.
    pub(super) written: usize,
    /// Some bundle has an authority that is not ours.
    pub(super) others: bool,
}

/// Lets the registrations of these names trust `ours`. Authorities that are there besides stay while `keep` says so.
pub(super) async fn trust(
    client: &Client,
    names: &[String],
    service: &Service,
    ours: &str,
    keep: bool,
    now: SystemTime,
) -> Result<Trusting, Failure> {
    let mut all = Trusting::default();
    for kind in KINDS {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        for name in names {
            let Some(object) = client.find(&path, name).await? else { continue };
            let (found, patch) = patched(&object, service, ours, keep, now);
            if found.written > 0 {
                let path = format!("{path}/{name}?fieldManager={MANAGER}&fieldValidation=Strict");
                client.patch(&path, "application/json-patch+json", &Value::from(patch)).await?;
                tracing::info!(registration = name, kind, webhooks = found.written, "wrote the caBundle");
            }
            all.webhooks += found.webhooks;
            all.written += found.written;
            all.others |= found.others;
        }
    }
    Ok(all)
}

/// The patch of one registration, of the state that was read and no other.
fn patched(object: &Value, service: &Service, ours: &str, keep: bool, now: SystemTime) -> (Trusting, Vec<Value>) {
    let mut patch = vec![json!({"op": "test", "path": "/metadata/resourceVersion",
        "value": object["metadata"]["resourceVersion"]})];
    let mut found = Trusting::default();
    for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let client_config = &webhook["clientConfig"];
        if !service.is_named_by(client_config) {
            continue;
        }
        found.webhooks += 1;
        let there = client_config["caBundle"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let (wanted, others) = bundle(ours, &there, keep, now);
        found.others |= others;
        if let Some(wanted) = wanted {
            found.written += 1;
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            patch.push(json!({"op": "add", "path": path, "value": STANDARD.encode(wanted)}));
        }
    }
    (found, patch)
}

/// The bundle that is to be written over that one, `None` where it is as it should be; and whether it has authorities of
/// others that have not ended.
fn bundle(ours: &str, there: &[u8], keep: bool, now: SystemTime) -> (Option<String>, bool) {
    let (own, there) = (sections(ours.as_bytes()), sections(there));
    let mut others = Vec::new();
    for other in there.iter().filter(|one| !own.contains(one)) {
        let pem = pem(other);
        if expiry::validity(pem.as_bytes()).is_some_and(|(_, end)| now < end) && others.len() < MOST_OTHERS {
            others.push(pem);
        }
    }
    let any = !others.is_empty();
    let kept: String = others.into_iter().filter(|_| keep).collect();
    let wanted = format!("{ours}{kept}");
    let same = |one: &[CertificateDer<'_>], other: &[CertificateDer<'_>]| {
        one.len() == other.len() && one.iter().all(|certificate| other.contains(certificate))
    };
    ((!same(&sections(wanted.as_bytes()), &there)).then_some(wanted), any)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(certificate);
    for (index, sign) in encoded.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push('\n');
        }
        text.push(sign);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::issue::issue, *};

    const HOUR: Duration = Duration::from_secs(3600);

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn authority() -> String {
        issue(&["a.b.svc".to_owned()], HOUR, start()).unwrap().authority
    }

    #[test]
    fn only_webhooks_of_our_service_are_written_and_only_where_something_is_missing() {
        let (ours, service) = (authority(), "ns/gatepost".parse::<Service>().unwrap());
        let webhook = |service: &str, bundle: Value| json!({"clientConfig": {"service": {"namespace": "ns", "name": service}, "caBundle": bundle}});
        let good = json!(STANDARD.encode(&ours));
        let webhooks = [
            webhook("gatepost", good.clone()),
            webhook("gatepost", Value::Null),
            webhook("other", Value::Null),
            json!({"clientConfig": {"url": "https://127.0.0.1"}}),
        ];
        let object = json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks});
        let (found, patch) = patched(&object, &service, &ours, true, start());
        assert_eq!(found, Trusting { webhooks: 2, written: 1, others: false });
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!(patch, [test, json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": good})]);
        assert_eq!(patched(&json!({}), &service, &ours, true, start()).0, Trusting::default());
    }

    #[test]
    fn authorities_of_others_stay_until_nobody_serves_what_they_signed() {
        let (ours, other) = (authority(), authority());
        let there = format!("{other}{ours}");
        assert_eq!(bundle(&ours, there.as_bytes(), true, start()), (None, true), "the order is of no importance");
        assert_eq!(bundle(&ours, there.as_bytes(), false, start()), (Some(ours.clone()), true));
        assert_eq!(bundle(&ours, other.as_bytes(), true, start()), (Some(format!("{ours}{other}")), true));
        let late = start() + HOUR * 2;
        assert_eq!(bundle(&ours, there.as_bytes(), true, late), (Some(ours.clone()), false), "one that has ended goes");
        assert_eq!(bundle(&ours, b"rubbish", true, start()), (Some(ours), false));
    }
}
