//! Advice: next steps once the files are there.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use super::object::{Object, Phase};

/// Most names listed before the rest is only counted.
const FEW: usize = 5;

/// The steps that lead from these files to Gatepost deciding alone, without a moment in which nobody decides; and what
/// these hooks ask of the place it runs at. `kept` stays in the cluster, as it cannot be served; `sound` says whether
/// the files are free of problems.
pub(super) fn advice(folder: &Path, objects: &[Object], kept: &[Object], sound: bool) -> String {
    if objects.is_empty() {
        return String::from("\nThere is nothing to move behind Gatepost. Delete nothing from the cluster.\n");
    }
    let mut out = String::from(
        "\nNext, to serve these files in the originals' place (where `gatepost adopt` takes the originals over instead, \
         delete nothing and skip these steps):\n",
    );
    let mut step = 0;
    let mut next = |text: &str| {
        step += 1;
        let _ = writeln!(out, "  {step}. {text}");
    };
    let folder = folder.display();
    if !sound {
        next(&format!("solve the problems above, until `gatepost check {folder}` finds none"));
    }
    let selecting: Vec<_> = objects.iter().flat_map(Object::namespace_selectors).collect();
    let asking: Vec<_> = objects.iter().flat_map(Object::asking_authorizer).collect();
    let authorizer = if asking.is_empty() { "" } else { " --authorizer" };
    next(&format!(
        "see that every hook answers, on each machine that Gatepost will run on: gatepost check --connect{authorizer} \
         {folder}"
    ));
    let from = if selecting.is_empty() && asking.is_empty() { "" } else { " --namespaces-from KUBECONFIG" };
    next(&format!("serve them: gatepost serve --config {folder} --tls-cert FILE --tls-key FILE{from}"));
    next("register Gatepost with the apiserver: gatepost register --help");
    next("see in /metrics that reviews arrive; until the next step every hook is called twice");
    for phase in [Phase::Mutating, Phase::Validating] {
        let names: Vec<_> = of(objects, phase).map(|object| object.name.as_str()).collect();
        if !names.is_empty() {
            let (kind, originals) = (phase.resource(), names.join(" "));
            next(&format!(
                "delete the originals of what is served, and nothing else: kubectl delete {kind} {originals}"
            ));
        }
    }
    let mut notes = Vec::new();
    if of(objects, Phase::Mutating).next().is_some() {
        notes.push(
            "mutating hooks are registered apart (gatepost register --kind mutating), and count in the order of their \
             configurations' names; between two of them the apiserver sets no defaults"
                .to_owned(),
        );
    }
    let kept: Vec<_> = kept.iter().map(|object| object.name.as_str()).collect();
    if !kept.is_empty() {
        notes.push(format!("{} stay in the cluster, too: Gatepost cannot serve them (above)", kept.join(", ")));
    }
    if !objects.is_empty() {
        notes.push(
            "hooks with side effects of their own (quotas, ledgers) should not be registered twice: in a quiet hour, \
             delete their originals first, and register Gatepost right after"
                .to_owned(),
        );
    }
    let services: Vec<_> = objects.iter().flat_map(Object::services).collect();
    if !services.is_empty() {
        let hosts: BTreeSet<_> = services.iter().map(|(_, host)| host.as_str()).collect();
        notes.push(format!(
            "hooks that name a Service: {}; Gatepost asks for {}, and beside the apiserver such names may not resolve: \
             write the Service's cluster IP and this name into the hosts file there (keep the name, since the \
             hook's certificate has it), or let that host ask the cluster's DNS",
            services.len(),
            few(hosts.into_iter()),
        ));
    }
    if !selecting.is_empty() {
        notes.push(format!(
            "hooks with a namespaceSelector: {} ({}); reviews do not carry the labels of namespaces: let \
             --namespaces-from name a kubeconfig (or in-cluster) whose user may get, list and watch namespaces; \
             without it a review that such a hook may want is rejected",
            selecting.len(),
            few(selecting.iter().copied()),
        ));
    }
    if !asking.is_empty() {
        notes.push(format!(
            "hooks with matchConditions that ask the authorizer: {} ({}); let --namespaces-from name a kubeconfig (or \
             in-cluster) whose user may create subjectaccessreviews; without it the configuration is refused",
            asking.len(),
            few(asking.iter().copied()),
        ));
    }
    let adopted: Vec<_> = objects.iter().flat_map(|object| &object.adopted).map(String::as_str).collect();
    if !adopted.is_empty() {
        notes.push(format!(
            "hooks that a Gatepost with --adopt calls already: {} ({}); the files are without its condition: give them \
             back first (gatepost release), or leave them out here",
            adopted.len(),
            few(adopted.iter().copied()),
        ));
    }
    notes.push(
        "the certificate authorities in the files are copies: when an issuer renews them in the cluster, import again"
            .to_owned(),
    );
    notes.push("an operator or Helm release that owns an original may bring it back: end that there".to_owned());
    out.push_str("Mind:\n");
    for note in notes {
        let _ = writeln!(out, "  - {note}");
    }
    out
}

fn of(objects: &[Object], phase: Phase) -> impl Iterator<Item = &Object> {
    objects.iter().filter(move |object| object.phase == phase)
}

fn few<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(FEW);
    let first = names.take(FEW).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(phase: Phase, webhooks: Value) -> Object {
        Object::new(phase, json!({"metadata": {"name": "x"}, "webhooks": webhooks})).unwrap()
    }

    #[test]
    fn the_originals_are_deleted_last_and_mutating_ones_first() {
        let objects = [object(Phase::Validating, json!([])), object(Phase::Mutating, json!([]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(
            printed.contains("1. see that every hook answers") && printed.contains("check --connect f\n"),
            "{printed}"
        );
        assert!(
            printed.contains("5. delete the originals of what is served, and nothing else: kubectl delete mutating")
                && printed.contains("6. delete the originals of what is served, and nothing else: kubectl delete val"),
            "{printed}"
        );
        assert!(printed.contains("--kind mutating") && !printed.contains("hosts file"), "{printed}");
        assert!(printed.contains("serve --config f --tls-cert FILE --tls-key FILE\n"), "{printed}");
        assert!(
            printed.contains("should not be registered twice") && !printed.contains("--namespaces-from"),
            "{printed}"
        );
        assert!(advice(Path::new("f"), &objects, &[], false).contains("1. solve the problems"));
        let validating = advice(Path::new("f"), &objects[..1], &[], true);
        assert!(!validating.contains("mutating") && validating.contains("kubectl delete val"), "{validating}");
        assert!(advice(Path::new("f"), &[], &objects, true).contains("nothing to move"));
    }

    #[test]
    fn what_is_not_served_is_not_deleted() {
        let named = |name: &str| Object::new(Phase::Validating, json!({"metadata": {"name": name}})).unwrap();
        let printed = advice(Path::new("f"), &[named("served")], &[named("kept")], true);
        assert!(printed.contains("kubectl delete validatingwebhookconfigurations served\n"), "{printed}");
        assert!(printed.contains("kept stay in the cluster, too"), "{printed}");
    }

    #[test]
    fn hooks_that_need_more_are_named() {
        let service = |n: usize| json!({"name": format!("h{n}.a.b"), "clientConfig": {"service": {"name": format!("s{n}"), "namespace": "n"}}, "namespaceSelector": {"matchLabels": {"a": "b"}}});
        let objects = [object(Phase::Validating, (0..7).map(service).collect())];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("hooks that name a Service: 7; Gatepost asks for s0.n.svc"), "{printed}");
        assert!(printed.contains("--tls-key FILE --namespaces-from KUBECONFIG\n"), "{printed}");
        assert!(printed.contains("and 2 more") && printed.contains("namespaceSelector: 7 (h0.a.b,"), "{printed}");
        let condition = json!([{"name": "c", "expression": "authorizer.path('/x').check('get').allowed()"}]);
        let objects = [object(Phase::Validating, json!([{"name": "a.b.c", "matchConditions": condition}]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("check --connect --authorizer f\n") && printed.contains("(a.b.c)"), "{printed}");
        assert!(printed.contains("--tls-key FILE --namespaces-from KUBECONFIG\n"), "{printed}");
        let condition = json!([{"name": "c", "expression": "!('authorizer' in object.metadata.labels)"}]);
        let objects = [object(Phase::Validating, json!([{"name": "a.b.c", "matchConditions": condition}]))];
        let printed = advice(Path::new("f"), &objects, &[], true);
        assert!(printed.contains("check --connect f\n") && !printed.contains("the authorizer"), "{printed}");
    }
}
