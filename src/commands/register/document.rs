//! Document: the webhook configuration that leads to Gatepost, and the comments above it.

use gatepost_operator::command::{REGISTRATION, Service, yaml};
use serde_json::{Value, json};

use super::plan::{Plan, SentAlready, WebhookEntry, rules};
use gatepost_api::{
    HookType, Reinvocation,
    registration::{DEDUP_CONDITION_PREFIX, EXCLUDED_NAMESPACES_ANNOTATION},
};
use gatepost_config::hazards::written_selector;
use gatepost_kube_support::{MANAGED_BY, webhook_suffix};

/// Suffix of the path if each entry sends one version. Gatepost then calls only hooks of the review's version.
const ONE_VERSION: &str = "/one-version";
/// Annotation by which cert-manager's injector finds an object.
const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";
/// Suffix of the names of static manifests, which names of other objects must not have.
const STATIC: &str = ".static.k8s.io";

/// Form of the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// A manifest the apiserver reads from its own disk
    Static,
    /// An object in the cluster
    Api,
}

/// Failure policy for writes while Gatepost does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(super) enum OurFailure {
    Fail,
    Ignore,
}

impl OurFailure {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Address of Gatepost in a registration.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// A URL without a path.
    Url(String),
    /// The Service of Gatepost.
    Service(Service),
}

/// Parameters of a registration.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) form: Form,
    /// Type of the hooks.
    pub(super) hook_type: HookType,
    pub(super) name: String,
    pub(super) caller: Caller,
    pub(super) ca_bundle: Option<String>,
    /// Certificate whose authority cert-manager writes into the object.
    pub(super) ca_from: Option<String>,
    /// Namespaces whose requests are never sent, even if a hook matches them.
    pub(super) excluded: Vec<String>,
    pub(super) timeout_seconds: u8,
    /// Failure policy of every entry; `None` if each entry has that of its hooks.
    pub(super) failure_policy: Option<OurFailure>,
    pub(super) plan: Plan,
    /// Path of the configuration that the rules come from; `None` if the rules match everything.
    pub(super) config: Option<String>,
}

/// Parses a name of DNS labels that is short enough for the suffixes of the object's and the hooks' names.
pub(super) fn name(text: &str) -> Result<String, String> {
    let text = text.strip_suffix(STATIC).unwrap_or(text);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        (1..=60).contains(&label.len())
            && label.chars().all(|c| plain(c) || c == '-')
            && label.starts_with(plain)
            && label.ends_with(plain)
    };
    match text.len() <= 200 && text.split('.').all(label) {
        true => Ok(text.to_owned()),
        false => Err("write lower-case letters, digits and hyphens, as in gatepost or gatepost-prod".to_owned()),
    }
}

/// Returns advice for a registration behind a Service whose name is not [`REGISTRATION`], as in the deployed commands.
pub(super) fn other_name_advice(name: &str) -> String {
    format!(
        "`gatepost certificates` keeps the caBundle of the registration {REGISTRATION}. Start it, and `gatepost serve`, with\n  \
         --registration {name}, and let both have their rights on it, or calls fail after the next renewal."
    )
}

impl Registration {
    /// Returns the object.
    fn value(&self) -> Value {
        let suffix = if self.form == Form::Static { STATIC } else { "" };
        let webhooks: Vec<_> = self.plan.entries.iter().zip(1..).map(|(entry, n)| self.webhook(entry, n)).collect();
        let mut metadata = json!({"name": format!("{}{suffix}", self.name), "labels": {MANAGED_BY.0: MANAGED_BY.1}});
        if let Some(certificate) = &self.ca_from {
            metadata["annotations"][INJECT_CA_FROM] = certificate.as_str().into();
        }
        if let Caller::Service(_) = &self.caller {
            metadata["annotations"][EXCLUDED_NAMESPACES_ANNOTATION] = self.excluded.join(",").into();
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": self.hook_type.kind(),
            "metadata": metadata,
            "webhooks": webhooks,
        })
    }

    fn webhook(&self, entry: &WebhookEntry, number: usize) -> Value {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        // With `one_version`, each entry sends one version; other entries send the versions of other hooks.
        let path = match self.hook_type {
            HookType::Validating => "/validate",
            HookType::Mutating => "/mutate",
        };
        let one_version = if self.plan.one_version { ONE_VERSION } else { "" };
        let segment = entry.segment.map(|segment| segment.to_string()).unwrap_or_default();
        let path = format!("{path}{one_version}{segment}");
        let mut client_config = match &self.caller {
            Caller::Url(url) => json!({"url": format!("{url}{path}")}),
            Caller::Service(service) => json!({"service": service.reference(&path)}),
        };
        if let Some(bundle) = &self.ca_bundle {
            client_config["caBundle"] = json!(bundle);
        }
        let mut webhook = json!({
            "name": format!("{}{number}{}", self.name, webhook_suffix(self.hook_type)),
            "clientConfig": client_config,
            "rules": rules(&entry.atoms),
            "matchPolicy": "Equivalent",
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": self.timeout_seconds,
            "failurePolicy": self.policy(entry).as_str(),
        });
        if self.hook_type == HookType::Mutating {
            let again = if entry.again { Reinvocation::IfNeeded } else { Reinvocation::Never };
            webhook["reinvocationPolicy"] = json!(again.as_str());
        }
        for (key, selector) in [("namespaceSelector", &entry.namespaces), ("objectSelector", &entry.objects)] {
            if !selector.is_empty() {
                webhook[key] = written_selector(&selector.0);
            }
        }
        if !entry.left.is_empty() {
            let condition = |(sent, n): (&SentAlready, usize)| {
                let name = format!("{DEDUP_CONDITION_PREFIX}{n}");
                json!({"name": name, "expression": format!("!({})", sent.expression())})
            };
            webhook["matchConditions"] = entry.left.iter().zip(1..).map(condition).collect();
        }
        webhook
    }

    fn policy(&self, entry: &WebhookEntry) -> OurFailure {
        let own = if entry.closed { OurFailure::Fail } else { OurFailure::Ignore };
        self.failure_policy.unwrap_or(own)
    }

    /// Returns the object as YAML, below comments that explain it and how to put it in force.
    pub(super) fn text(&self) -> Result<String, String> {
        let mut comments: Vec<String> = Vec::new();
        let mut say = |text: &str| comments.extend(text.lines().map(|line| format!("# {line}").trim_end().to_owned()));
        let in_force = match (&self.caller, self.form) {
            (Caller::Service(_), _) => IN_FORCE_SERVICE,
            (Caller::Url(_), Form::Static) => IN_FORCE_STATIC,
            (Caller::Url(_), Form::Api) => IN_FORCE_API,
        };
        say(&match self.hook_type {
            HookType::Validating => in_force.to_owned(),
            HookType::Mutating => in_force
                .replace("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
                .replace("admission/validating", "admission/mutating")
                .replace("validatingwebhook", "mutatingwebhook"),
        });
        if let Caller::Service(_) = &self.caller {
            say(&format!(
                "\nnamespaceSelector: never sent, even if a hook matches them: {}.",
                self.excluded.join(", ")
            ));
            say(match (&self.ca_bundle, &self.ca_from) {
                (Some(_), _) => CA_GIVEN,
                (None, Some(_)) => CA_INJECTED,
                (None, None) => CA_LEFT,
            });
            if self.ca_from.is_none() && self.name != REGISTRATION {
                say(&other_name_advice(&self.name));
            }
        }
        say(&format!("\n{SIDE_EFFECTS}"));
        let again = self.plan.entries.iter().any(|entry| entry.again);
        say(match (self.hook_type, again) {
            (HookType::Validating, _) => TIMEOUT,
            (HookType::Mutating, false) if self.config.is_none() => MUTATION_UNREAD,
            (HookType::Mutating, false) => MUTATION_NEVER,
            (HookType::Mutating, true) => MUTATION_IF_NEEDED,
        });
        let policies: Vec<_> = self.plan.entries.iter().map(|entry| self.policy(entry)).collect();
        say(match policies.split_first() {
            Some((first, others)) if others.iter().any(|other| other != first) => BOTH,
            Some((OurFailure::Ignore, _)) => IGNORE,
            _ => FAIL,
        });
        match &self.config {
            None => say(EVERYTHING),
            Some(config) => say(&format!(
                "rules: the union of those of the hooks in {config}.\n  Print this again when they change: a \
                 request that no rule here matches never reaches a hook."
            )),
        }
        if self.plan.entries.len() > 1 {
            say(ENTRIES);
        }
        if self.plan.entries.iter().any(|entry| entry.segment.is_some()) {
            say(SEGMENTS);
        }
        if self.plan.one_version {
            say(VERSIONS);
        }
        if self.plan.entries.iter().any(|entry| !entry.left.is_empty()) {
            say(match self.hook_type {
                HookType::Validating => CONDITIONS,
                HookType::Mutating => MUTATING_CONDITIONS,
            });
        }
        if !self.plan.twice.is_empty() {
            let names: Vec<_> = self.plan.twice.iter().map(|name| &**name).collect();
            say(&format!(
                "May be called twice for some requests, because their versions or selectors overlap with another\n  \
                 hook's in a way that no entry can leave to another: {}.\n  Let them name the same apiVersions for a \
                 resource, and have the same selectors.",
                names.join(", ")
            ));
        }
        Ok(format!("{}\n{}", comments.join("\n"), yaml(&self.value())?))
    }
}

const IN_FORCE_STATIC: &str = "\
Gatepost as a static webhook: kube-apiserver 1.36 or newer reads this from its own disk, at its start and within a
minute of a change. It needs nothing of the cluster, nobody can remove it through the API, and it also sees changes of
the admission configuration itself.

1. Put this file into a folder that holds nothing else, say /etc/kubernetes/admission/validating/.
2. Write /etc/kubernetes/admission/config.yaml:
     apiVersion: apiserver.config.k8s.io/v1
     kind: AdmissionConfiguration
     plugins:
     - name: ValidatingAdmissionWebhook
       configuration:
         apiVersion: apiserver.config.k8s.io/v1
         kind: WebhookAdmissionConfiguration
         staticManifestsDir: /etc/kubernetes/admission/validating
3. Start kube-apiserver with
     --admission-control-config-file=/etc/kubernetes/admission/config.yaml
     --feature-gates=ManifestBasedAdmissionControlConfig=true   (1.36; on by default from 1.37 on)
   and mount the folder into it where it runs as a static Pod.";

const IN_FORCE_API: &str = "\
Gatepost as an object in the cluster: kubectl apply -f FILE. Every apiserver of the cluster then asks at this URL.
To take it back: kubectl delete validatingwebhookconfiguration NAME, which no webhook can prevent.";

const IN_FORCE_SERVICE: &str = "\
Gatepost in the cluster, behind a Service: once `kubectl rollout status` says that its Pods are ready, and not before,
kubectl apply --server-side -f FILE. Every apiserver then asks a ready Pod, over HTTP/1.1.
To take it back: kubectl delete validatingwebhookconfiguration NAME, which no webhook can prevent.";

const CA_GIVEN: &str = "\
caBundle: the authorities of --ca-file. `gatepost certificates` adds new ones before their certificates are served.";
const CA_INJECTED: &str = "\
caBundle: written here by cert-manager, because of the annotation. Until it is, every call fails: wait for it.";
const CA_LEFT: &str = "\
caBundle: left to `gatepost certificates`, which writes it here. Until it has, every call fails; give --ca-file where
  this is new in the cluster.";

const SIDE_EFFECTS: &str =
    "sideEffects: NoneOnDryRun, because hooks that may have side effects are not called on a dry run.";

const MUTATION_UNREAD: &str = "\
reinvocationPolicy: Never, since no hook was read. Give --config PATH where a hook or policy has IfNeeded: then the
  apiserver asks again where something behind Gatepost changes the object.
timeoutSeconds: how long all hooks together may take. 30 is the most an apiserver allows.";

const MUTATION_NEVER: &str = "\
reinvocationPolicy: Never, as that of every hook and policy. Gatepost asks the hooks in the order of its configuration,
  each about what those before it have made of the object, and answers with one patch.
timeoutSeconds: how long all hooks together may take. 30 is the most an apiserver allows.";

const MUTATION_IF_NEEDED: &str = "\
reinvocationPolicy: IfNeeded, as that of a hook or policy. Gatepost asks the hooks in the order of its configuration,
  each about what those before it have made of the object, asks some of them once more where a later one changes it,
  and answers with one patch. Where something behind Gatepost changes the object, the apiserver asks again, and Gatepost
  then asks every hook and policy, those with Never too: nothing in such a review says that it is the second. With
  isolate: true on the hooks with IfNeeded, and this printed again, only they are asked again.
timeoutSeconds: how long all hooks together may take. 30 is the most an apiserver allows.";

const TIMEOUT: &str = "\
timeoutSeconds: how long all hooks together may take; they are asked at once, each within its own timeout. 30 is the
  most an apiserver allows.";

const FAIL: &str =
    "failurePolicy: Fail. A write is refused while Gatepost itself does not answer, whatever its hooks' policies.";
const IGNORE: &str =
    "failurePolicy: Ignore. A write passes unseen by every hook while Gatepost itself does not answer.";
const BOTH: &str = "\
failurePolicy: that of the hooks. While Gatepost itself does not answer, a write is refused that a hook with Fail (or
  Retry) wants to see, and one that only hooks with Ignore want to see passes unseen.";

const EVERYTHING: &str = "\
rules: everything, in the version its client used. With --config PATH only what hooks want is sent, and in the version
  they want.";

const ENTRIES: &str = "\
Several entries: one for the hooks of each failure policy and each pair of selectors. None sees what its hooks leave out.
  Whichever entry sends a request, Gatepost asks every hook about it.";

const SEGMENTS: &str = "\
Hooks are registered apart (isolate: true): the path …/segment/N/of/M asks only the hooks of that segment, in the
  order of the configuration, and between two segments the apiserver sets defaults and drops unknown fields. So print
  this anew and put it in force when hooks come, go or change their order: where the numbers of segments differ, the
  first asks all hooks.";

const VERSIONS: &str = "\
Hooks want different versions of the same resource: each such entry has it converted to its own, and Gatepost asks only
  the hooks that take that version (the path …/one-version). So print this anew and put it in force BEFORE any
  hook's apiVersions change: a hook whose version no entry here sends is not asked.";

const CONDITIONS: &str = "\
matchConditions: what an entry before sends already, so that no hook is asked twice. Apiservers before 1.28 do not know
  them: remove them there, and hooks that several entries mean are asked by each.";

const MUTATING_CONDITIONS: &str = "\
matchConditions: what an entry before sends already, so that no hook changes an object twice. Apiservers before 1.28 do
  not know them: do not use this registration there.";

#[cfg(test)]
mod tests;
