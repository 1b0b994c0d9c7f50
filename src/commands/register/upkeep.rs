//! Upkeep: new webhooks for a registration that is already in a cluster, when the configuration changes.

use serde_json::Value;

use super::{
    document::{Caller, Form, Registration},
    plan::plan_of,
};
use gatepost_api::{HookType, registration::webhook_suffix};
use gatepost_config::{Snapshot, coverage};

/// Placeholder for the address of Gatepost.
const PLACEHOLDER_URL: &str = "https://gatepost.invalid";

/// Returns webhooks as `gatepost register --config` prints them for the configuration, with the `clientConfig` of the
/// existing registration.
///
/// # Errors
/// A message, if there can be no such registration.
pub(in crate::commands) fn webhooks(
    snapshot: &Snapshot,
    registration: &Value,
    hook_type: HookType,
) -> Result<Vec<Value>, String> {
    let excluded = excluded(registration, hook_type);
    let plan = plan_of(snapshot, hook_type, &excluded)?;
    if plan.entries.is_empty() {
        return Ok(Vec::new());
    }
    let of_hooks = |entry: &&Value| route(entry, hook_type).is_some();
    let entries = registration["webhooks"].as_array().into_iter().flatten();
    let first = entries.clone().find(of_hooks).ok_or("none of the registration's webhooks leads to Gatepost")?;
    let seconds = entries.filter(of_hooks).filter_map(|entry| entry["timeoutSeconds"].as_u64()).max().unwrap_or(10);
    let name = first["name"].as_str().and_then(|name| name.strip_suffix(webhook_suffix(hook_type)));
    let name = name.or(registration["metadata"]["name"].as_str()).unwrap_or("gatepost").to_owned();
    let text = Registration {
        form: Form::Api,
        hook_type,
        name,
        caller: Caller::Url(PLACEHOLDER_URL.to_owned()),
        ca_bundle: None,
        ca_from: None,
        excluded,
        timeout_seconds: u8::try_from(seconds).unwrap_or(30),
        failure_policy: None,
        plan,
        config: None,
    }
    .text()?;
    let mut document: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    let mut webhooks = document["webhooks"].as_array_mut().map(std::mem::take).unwrap_or_default();
    for webhook in &mut webhooks {
        let path = webhook["clientConfig"]["url"].as_str().and_then(|url| url.strip_prefix(PLACEHOLDER_URL));
        let path = path.unwrap_or_default().to_owned();
        webhook["clientConfig"] =
            route(first, hook_type).map(|(client, key, base)| with_path(client, key, &base, &path)).unwrap_or_default();
    }
    Ok(webhooks)
}

fn with_path(client: &Value, key: &str, base: &str, path: &str) -> Value {
    let mut client = client.clone();
    let to: Value = format!("{base}{path}").into();
    match key {
        "url" => client["url"] = to,
        _ => client["service"]["path"] = to,
    }
    client
}

/// Returns the route of an entry to Gatepost: its `clientConfig`, the key with the path (`url` or `service`), and the
/// text before our own path. Returns `None` if the entry does not lead to Gatepost.
fn route(entry: &Value, hook_type: HookType) -> Option<(&Value, &'static str, String)> {
    let client = &entry["clientConfig"];
    let url = client["url"].as_str().map(|url| ("url", url));
    let (key, whole) = url.or_else(|| Some(("service", client["service"]["path"].as_str()?)))?;
    let base = whole.get(..whole.rfind(coverage::path(hook_type))?)?;
    Some((client, key, base.to_owned()))
}

/// Returns the namespaces that a registration excludes on purpose; none if it has no Service. Our own Pods need some of
/// these namespaces in order to start.
fn excluded(registration: &Value, hook_type: HookType) -> Vec<String> {
    let entries = registration["webhooks"].as_array().into_iter().flatten();
    let ours = entries.filter(|entry| route(entry, hook_type).is_some_and(|(_, key, _)| key == "service"));
    coverage::selectors::never_sent(registration, ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatepost_config::{NAME_LABEL, SourceFile, load};

    fn snapshot(resources: &str) -> Snapshot {
        let text = format!(
            "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
             externalAdmissionHooks:\n- {{name: h.example.com, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, rules: \
             [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [{resources}]}}]}}\n"
        );
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    #[test]
    fn upkeep_keeps_the_client_config_of_a_registration() {
        for (client, led) in [
            (
                json!({"url": "https://127.0.0.1:9440/x/validate/one-version", "caBundle": "aGk="}),
                json!({"url": "https://127.0.0.1:9440/x/validate", "caBundle": "aGk="}),
            ),
            (
                json!({"service": {"namespace": "gatepost", "name": "g", "path": "/validate", "port": 443}}),
                json!({"service": {"namespace": "gatepost", "name": "g", "path": "/validate", "port": 443}}),
            ),
        ] {
            let entry = json!({"name": "g.validate.gatepost.dev", "clientConfig": client, "timeoutSeconds": 7});
            let registration = json!({"metadata": {"name": "gatepost"}, "webhooks": [entry]});
            let webhooks = webhooks(&snapshot("pods, secrets"), &registration, HookType::Validating).unwrap();
            assert_eq!(webhooks.len(), 1);
            assert_eq!((&webhooks[0]["clientConfig"], &webhooks[0]["name"]), (&led, &entry["name"]));
            assert_eq!((&webhooks[0]["timeoutSeconds"], &webhooks[0]["failurePolicy"]), (&json!(7), &json!("Fail")));
            assert_eq!(webhooks[0]["rules"][0]["resources"], json!(["pods", "secrets"]));
            // Namespaces that our own Pods need stay excluded where the registration leads to a Service.
            let mut apart = registration.clone();
            let requirement = json!({"key": NAME_LABEL, "operator": "NotIn", "values": ["gatepost", "kube-system"]});
            apart["webhooks"][0]["namespaceSelector"] = json!({"matchExpressions": [requirement]});
            let apart = super::webhooks(&snapshot("pods"), &apart, HookType::Validating).unwrap();
            let kept = apart[0]["namespaceSelector"]["matchExpressions"][0]["values"].clone();
            let of_service = webhooks[0]["clientConfig"].get("service").is_some();
            assert_eq!(kept, if of_service { json!(["gatepost", "kube-system"]) } else { Value::Null });
            // A namespace that only the former hooks left out is sent to those that want it.
            let mut patched = registration.clone();
            patched["metadata"]["annotations"] = json!({"gatepost.dev/never-sent": "gatepost"});
            patched["webhooks"][0]["namespaceSelector"] = json!({"matchExpressions": [requirement]});
            let patched = super::webhooks(&snapshot("pods"), &patched, HookType::Validating).unwrap();
            let kept = patched[0]["namespaceSelector"]["matchExpressions"][0]["values"].clone();
            assert_eq!(kept, if of_service { json!(["gatepost"]) } else { Value::Null });
        }
        let none =
            json!({"metadata": {"name": "gatepost"}, "webhooks": [{"clientConfig": {"url": "https://a/other"}}]});
        assert!(webhooks(&snapshot("pods"), &none, HookType::Validating).is_err());
        assert_eq!(webhooks(&snapshot("pods"), &none, HookType::Mutating), Ok(Vec::new()), "nothing to send");
    }
}
