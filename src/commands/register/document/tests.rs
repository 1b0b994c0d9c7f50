use super::*;
use crate::commands::register::plan::everything;
use gatepost_api::Selector;
use gatepost_config::coverage::Atom;

fn registration(form: Form) -> Registration {
    Registration {
        form,
        hook_type: HookType::Validating,
        name: "gatepost".to_owned(),
        caller: Caller::Url("https://127.0.0.1:9440".to_owned()),
        ca_bundle: Some("aGk=".to_owned()),
        ca_from: None,
        excluded: Vec::new(),
        timeout_seconds: 30,
        failure_policy: None,
        plan: everything(true, &[]),
        config: None,
    }
}

#[test]
fn registration_of_mutating_hooks_leads_to_mutate() {
    let registration = |one_version, again| {
        let mut plan = Plan { one_version, ..everything(true, &[]) };
        plan.entries.iter_mut().for_each(|entry| entry.again = again);
        Registration { hook_type: HookType::Mutating, plan, ..registration(Form::Static) }
    };
    let value = registration(false, false).value();
    assert_eq!(value["kind"], "MutatingWebhookConfiguration");
    let webhook = &value["webhooks"][0];
    assert_eq!(webhook["name"], "gatepost.mutate.gatepost.dev");
    assert_eq!(webhook["clientConfig"]["url"], "https://127.0.0.1:9440/mutate");
    assert_eq!(webhook["reinvocationPolicy"], "Never");
    let webhook = registration(true, true).value()["webhooks"][0].clone();
    assert_eq!(webhook["clientConfig"]["url"], "https://127.0.0.1:9440/mutate/one-version");
    assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
    let text = registration(false, true).text().unwrap();
    assert!(text.contains("MutatingAdmissionWebhook") && !text.to_lowercase().contains("validating"), "{text}");
}

#[test]
fn registration_text_is_comments_and_the_object() {
    let types = [HookType::Validating, HookType::Mutating];
    for (form, hook_type) in [Form::Static, Form::Api].into_iter().flat_map(|form| types.map(|it| (form, it))) {
        let registration = Registration { hook_type, ..registration(form) };
        let text = registration.text().unwrap();
        let comments = text.lines().take_while(|line| line.starts_with('#')).count();
        assert!(comments > 5 && text.lines().skip(comments).all(|line| !line.starts_with('#')), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), registration.value());
    }
}

#[test]
fn static_registration_has_a_static_name() {
    assert_eq!(registration(Form::Static).value()["metadata"]["name"], "gatepost.static.k8s.io");
    assert_eq!(registration(Form::Api).value()["metadata"]["name"], "gatepost");
    assert!(registration(Form::Static).text().unwrap().contains("staticManifestsDir"));
    assert!(!registration(Form::Api).text().unwrap().contains("staticManifestsDir"));
}

#[test]
fn registration_entry_is_complete() {
    let value = registration(Form::Api).value();
    let wanted = json!({"name": "gatepost.validate.gatepost.dev", "matchPolicy": "Equivalent", "sideEffects": "NoneOnDryRun",
        "clientConfig": {"url": "https://127.0.0.1:9440/validate", "caBundle": "aGk="}, "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30, "failurePolicy": "Fail", "rules": [{"apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*/*"], "scope": "*", "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"]}]});
    assert_eq!(value["webhooks"], json!([wanted]));
    assert_eq!(value["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
}

#[test]
fn registration_entries_have_own_policies_and_conditions() {
    let mut registration = registration(Form::Api);
    let all = SentAlready::of(&Atom::everything(), &Atom::everything(), &[]).unwrap();
    registration.plan.entries.push(WebhookEntry { closed: false, left: vec![all], ..WebhookEntry::default() });
    registration.plan.twice.insert("a.example.com".into());
    let value = registration.value();
    let webhooks = value["webhooks"].as_array().unwrap();
    let of = |key: &str| webhooks.iter().map(|hook| hook[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("name"), ["gatepost.validate.gatepost.dev", "gatepost-2.validate.gatepost.dev"]);
    assert_eq!(of("failurePolicy"), ["Fail", "Ignore"]);
    assert_eq!(webhooks[1]["matchConditions"], json!([{"name": "sent-already-1", "expression": "!(true)"}]));
    assert_eq!(webhooks[0]["clientConfig"]["url"], "https://127.0.0.1:9440/validate");
    let text = registration.text().unwrap();
    assert!(text.contains("# Several entries") && text.contains(": a.example.com."), "{text}");
    assert!(text.contains("that of the hooks") && text.contains("# matchConditions"), "{text}");

    registration.plan.one_version = true;
    registration.failure_policy = Some(OurFailure::Ignore);
    for hook in registration.value()["webhooks"].as_array().unwrap() {
        assert_eq!(hook["clientConfig"]["url"], "https://127.0.0.1:9440/validate/one-version");
        assert_eq!(hook["failurePolicy"], "Ignore");
    }
}

#[test]
fn registration_excludes_namespaces_by_selector() {
    let mut registration = registration(Form::Api);
    assert!(registration.value()["webhooks"][0].get("namespaceSelector").is_none());
    registration.plan = everything(true, &["kube-system".to_owned()]);
    let wanted = json!({"matchExpressions":
        [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]});
    assert_eq!(registration.value()["webhooks"][0]["namespaceSelector"], wanted);
    assert_eq!(registration.plan.entries[0].objects, Selector::default());
}

#[test]
fn registration_name_is_valid_in_kubernetes() {
    assert_eq!(name("gatepost-1.prod"), Ok("gatepost-1.prod".to_owned()));
    assert_eq!(name("gatepost.static.k8s.io"), Ok("gatepost".to_owned()));
    for wrong in ["", "Gatepost", "a..b", "-a", "a-", "a b", "a\n# x", ".static.k8s.io"] {
        assert!(name(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn service_registration_names_excluded_namespaces() {
    let excluded = ["gatepost".to_owned(), "kube-system".to_owned()];
    for (hook_type, path) in [(HookType::Validating, "/validate"), (HookType::Mutating, "/mutate")] {
        let registration = Registration {
            hook_type,
            caller: Caller::Service("gatepost/gatepost:8443".parse().unwrap()),
            plan: everything(true, &excluded),
            excluded: excluded.to_vec(),
            ..registration(Form::Api)
        };
        let value = registration.value();
        let webhook = &value["webhooks"][0];
        let service = json!({"namespace": "gatepost", "name": "gatepost", "port": 8443, "path": path});
        assert_eq!(webhook["clientConfig"], json!({"service": service, "caBundle": "aGk="}));
        let expression = &webhook["namespaceSelector"]["matchExpressions"][0];
        assert_eq!(expression["values"], json!(excluded));
        assert_eq!(value["metadata"]["annotations"], json!({"gatepost.dev/never-sent": "gatepost,kube-system"}));
        let text = registration.text().unwrap();
        assert!(text.contains("never sent, even if a hook matches them: gatepost, kube-system."), "{text}");
        assert!(text.contains("caBundle: the authorities of --ca-file"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");

        assert!(!text.contains("--registration"), "the name that all commands look for: {text}");

        let left = Registration { ca_bundle: None, ..registration };
        assert_eq!(left.value()["webhooks"][0]["clientConfig"].get("caBundle"), None);
        assert!(left.text().unwrap().contains("left to `gatepost certificates`"));
        let other = Registration { name: "gatepost-prod".to_owned(), ..left };
        let text = other.text().unwrap();
        assert!(text.contains("#   --registration gatepost-prod, "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        let injected = Registration { ca_from: Some("gatepost/tls".to_owned()), ..other };
        assert!(!injected.text().unwrap().contains("--registration"), "cert-manager finds it by its annotation");
        assert_eq!(injected.value()["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], "gatepost/tls");
        assert!(injected.text().unwrap().contains("written here by cert-manager"));
    }
}
