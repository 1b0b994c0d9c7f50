//! Requests about which an apiserver goes on calling a webhook that Gatepost calls in its place: those that a registration
//! with `kubernetes.io/metadata.name notin (kube-system)` does not send. Source: `docs/reference/webhook-semantics.md` §4.3.

use std::{borrow::Cow, cell::Cell};

use gatepost_api::{AdoptionCondition, registration::SERVED_BUT_EXEMPT};
use gatepost_cel::{AccessDecisions, Allowance, Condition, Input, JsonDocument, Request, User};

/// Resource, subresource, operation, namespace, and the labels of the object; `None` where there is no object.
type About<'a> = (&'a str, &'a str, &'a str, &'a str, Option<&'a str>);

fn holds(condition: &AdoptionCondition, (resource, sub_resource, operation, namespace, labels): About<'_>) -> bool {
    let object = labels.map_or("null".to_owned(), |labels| {
        let labels = if labels.is_empty() { String::new() } else { format!(", \"labels\": {labels}") };
        format!("{{\"metadata\": {{\"resourceVersion\": \"1\"{labels}}}}}")
    });
    let user = || Ok(User { uid: String::new(), groups: Vec::new(), extra: Vec::new() });
    let mut request = Request::new(user);
    request.kind = ["apps", "v1", "Deployment"];
    (request.resource, request.sub_resource) = (["", "v1", resource], sub_resource);
    (request.operation, request.namespace, request.name) = (operation, namespace, "web");
    let input = Input {
        request,
        object: labels.map(|_| JsonDocument::new(Cow::Borrowed(object.as_bytes()))),
        old_object: Some(JsonDocument::new(Cow::Borrowed(b"null"))),
        namespace: None,
        decisions: AccessDecisions::default(),
    };
    let condition = Condition::compile("gatepost.dev/served", &condition.to_string()).unwrap();
    let steps = Cell::new(10_000);
    let (value, cost) = condition.measure(&input, &Allowance { steps: &steps, over: &|| false });
    // Upstream allows 2,500,000 for all conditions of a webhook.
    assert!(cost < 1000, "{cost}");
    value.unwrap_or_else(|error| panic!("{resource} {operation} {namespace} {labels:?}: {error}"))
}

#[test]
fn in_namespaces_that_are_never_sent_the_apiserver_goes_on_and_nowhere_else() {
    let only = AdoptionCondition::default().in_namespaces(["gatepost", "kube-system"]);
    let both = only.clone().of_exempt(true);
    let named = |name: &str| format!("{{\"kubernetes.io/metadata.name\": \"{name}\"}}");
    let (system, shop) = (named("kube-system"), named("shop"));
    let cases: [(About<'_>, bool); 21] = [
        (("pods", "", "CREATE", "kube-system", Some("")), true),
        (("pods", "", "CREATE", "gatepost", Some(&shop)), true),
        (("pods", "", "CREATE", "shop", Some("")), false),
        (("pods", "", "UPDATE", "shop", Some(&system)), false),
        (("pods", "", "DELETE", "kube-system", None), true),
        (("pods", "", "DELETE", "shop", None), false),
        (("pods", "exec", "CONNECT", "kube-system", Some("")), true),
        (("pods", "binding", "CREATE", "shop", Some("")), false),
        // Objects outside of namespaces are always sent.
        (("nodes", "", "CREATE", "", Some(&system)), false),
        (("nodes", "", "DELETE", "", None), false),
        // Of a namespace itself, its labels count.
        (("namespaces", "", "CREATE", "kube-system", Some(&system)), true),
        (("namespaces", "", "UPDATE", "kube-system", Some(&system)), true),
        (("namespaces", "", "UPDATE", "shop", Some(&shop)), false),
        (("namespaces", "", "CREATE", "", Some("")), false),
        (("namespaces", "", "CREATE", "", Some("{\"team\": \"a\"}")), false),
        (("namespaces", "", "CREATE", "", Some(&system)), true),
        (("namespaces", "", "CREATE", "kube-system", Some("")), false),
        // But where there is no new state of it.
        (("namespaces", "", "DELETE", "kube-system", None), true),
        (("namespaces", "", "DELETE", "shop", None), false),
        (("namespaces", "status", "UPDATE", "kube-system", Some(&shop)), true),
        (("namespaces", "finalize", "UPDATE", "shop", Some(&system)), false),
    ];
    for (about, expected) in cases {
        assert_eq!(holds(&only, about), expected, "{about:?}");
        assert_eq!(holds(&both, about), expected, "{about:?}, and what is exempt");
    }
    assert!(both.to_string().starts_with(SERVED_BUT_EXEMPT));
    let about = ("selfsubjectreviews", "", "CREATE", "", Some(""));
    let exempt = AdoptionCondition::default().of_exempt(true);
    assert!(!holds(&exempt, about), "of another group");
}
