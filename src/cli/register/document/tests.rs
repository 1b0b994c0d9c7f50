use super::*;
use crate::cli::register::union::everything;

fn registration(form: Form) -> Registration {
    Registration {
        form,
        name: "gatepost".to_owned(),
        url: "https://127.0.0.1:9440/validate".to_owned(),
        ca_bundle: Some("aGk=".to_owned()),
        timeout_seconds: 30,
        failure_policy: OurFailure::Fail,
        union: everything(),
        config: None,
    }
}

#[test]
fn the_text_is_the_object_below_comments() {
    for form in [Form::Static, Form::Api] {
        let registration = registration(form);
        let text = registration.text().unwrap();
        let comments = text.lines().take_while(|line| line.starts_with('#')).count();
        assert!(comments > 5 && text.lines().skip(comments).all(|line| !line.starts_with('#')), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), registration.value());
    }
}

#[test]
fn a_static_manifest_has_a_static_name() {
    assert_eq!(registration(Form::Static).value()["metadata"]["name"], "gatepost.static.k8s.io");
    assert_eq!(registration(Form::Api).value()["metadata"]["name"], "gatepost");
    assert!(registration(Form::Static).text().unwrap().contains("staticManifestsDir"));
    assert!(!registration(Form::Api).text().unwrap().contains("staticManifestsDir"));
}

#[test]
fn the_entry_says_all_an_apiserver_asks_for() {
    let value = registration(Form::Api).value();
    let wanted = json!({"name": "gatepost.validate.gatepost.dev", "matchPolicy": "Equivalent", "sideEffects": "NoneOnDryRun",
        "clientConfig": {"url": "https://127.0.0.1:9440/validate", "caBundle": "aGk="}, "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30, "failurePolicy": "Fail", "rules": [{"apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["*/*"], "scope": "*", "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"]}]});
    assert_eq!(value["webhooks"], json!([wanted]));
    assert_eq!(value["metadata"]["labels"][MANAGED_BY.0], MANAGED_BY.1);
}

#[test]
fn several_entries_have_names_of_their_own_and_hooks_asked_twice_are_named() {
    let mut registration = registration(Form::Api);
    registration.union.entries.push(Vec::new());
    registration.union.twice.insert("a.example.com".into());
    let names: Vec<_> =
        registration.value()["webhooks"].as_array().unwrap().iter().map(|hook| hook["name"].clone()).collect();
    assert_eq!(names, ["gatepost.validate.gatepost.dev", "gatepost-2.validate.gatepost.dev"]);
    for hook in registration.value()["webhooks"].as_array().unwrap() {
        assert_eq!(hook["clientConfig"]["url"], "https://127.0.0.1:9440/validate/one-version");
    }
    let text = registration.text().unwrap();
    assert!(text.contains("# Several entries") && text.contains(": a.example.com."), "{text}");
}

#[test]
fn a_name_is_one_that_kubernetes_takes() {
    assert_eq!(name("gatepost-1.prod"), Ok("gatepost-1.prod".to_owned()));
    assert_eq!(name("gatepost.static.k8s.io"), Ok("gatepost".to_owned()));
    for wrong in ["", "Gatepost", "a..b", "-a", "a-", "a b", "a\n# x", ".static.k8s.io"] {
        assert!(name(wrong).is_err(), "{wrong:?}");
    }
}
