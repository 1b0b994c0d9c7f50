//! Registration drift: hooks in force whose requests the registration with the apiserver does not fully send. A hook is
//! never called for a request that is not sent, and no other signal shows that.

use std::{
    collections::BTreeSet,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::live::{Current, RegistrationState, ReplicaHealth, configuration_status::Latest};
use gatepost_api::HookType;
use gatepost_config::{
    Snapshot,
    coverage::{CoverageSubject, Registration, compared},
};
use gatepost_kube_support::{KubeAccess, KubeError, ReloadingClient};

/// Registration of a hook type; `None` if it does not exist.
type RegistrationRead = (HookType, Option<Value>);

/// Interval between reads: a registration is changed by hand, and an alert waits longer than this.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Watch of one registration by its name.
#[derive(Debug)]
pub struct RegistrationWatch {
    connection: ReloadingClient,
    current: Arc<Current>,
    published: Arc<Latest<RegistrationState>>,
    /// The state as it was published and logged last.
    state: RegistrationState,
    every: Duration,
    /// Versions of the registration and of the configuration that were compared last.
    compared: Option<(String, String)>,
}

impl RegistrationWatch {
    /// Creates the watch of a registration in a cluster. Connects to nothing yet.
    ///
    /// # Errors
    /// Returns an error if the address or the credentials cannot be read.
    pub async fn new(access: KubeAccess, name: &str, health: &ReplicaHealth) -> Result<Self, KubeError> {
        Ok(Self {
            connection: ReloadingClient::new(access).await?,
            current: Arc::clone(&health.current),
            published: Arc::clone(&health.registration),
            state: RegistrationState { name: name.into(), compared: None, failure: None },
            every: READ_INTERVAL,
            compared: None,
        })
    }

    /// Sets the interval between reads.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Watches the registration until dropped.
    pub async fn run(mut self) {
        loop {
            let read = match timeout(READ_TIMEOUT, self.read()).await {
                Ok(Ok(found)) => self.compare(found).await,
                Ok(Err(error)) => {
                    self.connection.failed(&error);
                    Err(format!("{error}; {}", error.fix()))
                }
                Err(_) => Err(format!("no answer from {}", self.connection.server())),
            };
            self.report_read(read.err());
            self.published.set(Some(self.state.clone()));
            sleep(self.every).await;
        }
    }

    /// Reads the registration for each hook type in use.
    async fn read(&mut self) -> Result<Vec<RegistrationRead>, KubeError> {
        let snapshot = Arc::clone(&self.current.load().snapshot);
        let client = self.connection.client().await?;
        let mut found = Vec::new();
        for hook_type in [HookType::Validating, HookType::Mutating] {
            if snapshot.has(hook_type) || compared(&snapshot).any(|one| one.hook_type() == hook_type) {
                let path = format!("/apis/admissionregistration.k8s.io/v1/{}", hook_type.resource());
                found.push((hook_type, client.find(&path, &self.state.name).await?));
            }
        }
        Ok(found)
    }

    /// Compares the configuration in force with the registrations, unless neither has changed.
    async fn compare(&mut self, found: Vec<RegistrationRead>) -> Result<(), String> {
        let generation = self.current.load();
        if generation.number == 0 {
            return Ok(());
        }
        let version = |(_, object): &RegistrationRead| {
            let version = object.as_ref().and_then(|object| object.pointer("/metadata/resourceVersion"));
            version.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let versions = found.iter().map(version).collect::<Vec<_>>().join(" ");
        let state = Some((versions, generation.digest.clone()));
        if found.iter().all(|(_, object)| object.is_some())
            && state == self.compared
            && let Some((_, at)) = &mut self.state.compared
        {
            *at = Instant::now();
            return Ok(());
        }
        let snapshot = Arc::clone(&generation.snapshot);
        drop(generation);
        // Comparing many hooks and rules takes long.
        let found = spawn_blocking(move || uncovered(found, &snapshot)).await;
        let uncovered = found.map_err(|error| format!("comparing failed: {error}; report this bug"))??;
        self.report(&uncovered);
        self.state.compared = Some((Arc::new(uncovered), Instant::now()));
        self.compared = state;
        Ok(())
    }

    /// Logs changes of the result.
    fn report(&self, uncovered: &BTreeSet<String>) {
        const SOME: usize = 5;
        let is_same = match &self.state.compared {
            Some((logged, _)) => **logged == *uncovered,
            None => uncovered.is_empty(),
        };
        if is_same {
            return;
        }
        let (registration, hooks) = (&*self.state.name, uncovered.len());
        match hooks {
            0 => tracing::info!(registration, "the registration covers every hook"),
            _ => {
                let some = uncovered.iter().take(SOME).map(String::as_str).collect::<Vec<_>>().join("; ");
                tracing::warn!(
                    registration,
                    hooks,
                    some,
                    "the registration does not send requests that hooks want, so they never see them; run gatepost \
                     register --config PATH and apply what it prints"
                );
            }
        }
    }

    fn report_read(&mut self, failed: Option<String>) {
        if self.state.failure != failed {
            let registration = &*self.state.name;
            match &failed {
                Some(why) => tracing::warn!(registration, why, "the registration cannot be read"),
                None => tracing::info!(registration, "the registration can be read again"),
            }
            self.state.failure = failed;
        }
    }
}

/// Returns a line for each hook whose requests are not all sent. A missing registration sends nothing.
fn uncovered(found: Vec<RegistrationRead>, snapshot: &Snapshot) -> Result<BTreeSet<String>, String> {
    let name = |subject: CoverageSubject, shown: &dyn fmt::Display| match subject {
        CoverageSubject::Hook(index) => snapshot.hooks.get(index as usize).map_or("", |hook| &hook.id).to_owned(),
        CoverageSubject::Initializers | CoverageSubject::Policy => shown.to_string(),
    };
    let mut lines = BTreeSet::new();
    for (hook_type, object) in found {
        let there = object.is_some();
        let object = object.map(|mut object| {
            // The apiserver omits the kind in an answer to a request by path.
            object["kind"] = hook_type.kind().into();
            object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
            object
        });
        let registration = Registration::read(object)?;
        if registration.is_empty() {
            let why = if there { "none of its webhooks leads to Gatepost" } else { "there is no such registration" };
            let of_type = compared(snapshot).filter(|one| one.hook_type() == hook_type);
            lines.extend(of_type.map(|one| format!("{}: {why}", name(one.subject, &one))));
            continue;
        }
        // The first gap of each hook is enough.
        let mut last = None;
        for gap in registration.gaps(snapshot).into_iter().filter(|gap| gap.missed && gap.hook_type == hook_type) {
            if last.replace(gap.at) != Some(gap.at) {
                lines.insert(format!("{}: {}", name(gap.subject, &gap.name), gap.what));
            }
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use gatepost_config::{SourceFile, load};

    #[test]
    fn a_hook_is_logged_once_and_by_its_first_gap() {
        let rule = "{operations: [CREATE, DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}";
        let hook = |name: &str, rules: &str| {
            format!("- {{name: {name}, rules: [{rules}], clientConfig: {{url: 'grpc://127.0.0.1:1'}}}}\n")
        };
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: c}\n\
                    externalAdmissionHooks:\n"
            .to_owned()
            + &hook("a.x", rule)
            + &hook("b.x", &rule.replace(", DELETE", ""))
            + &hook("no-rules.x", "");
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        // As an apiserver answers: without a kind, and with what it has added.
        let registration = |path: &str, operations: &[&str]| {
            json!({"metadata": {"name": "gatepost", "uid": "u", "resourceVersion": "7", "managedFields": []}, "webhooks": [{
                "name": "gatepost.validate.gatepost.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 30,
                "namespaceSelector": {}, "objectSelector": {},
                "clientConfig": {"url": format!("https://127.0.0.1:9440{path}")},
                "rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}],
            }]})
        };
        let lines = |object| {
            uncovered(vec![(HookType::Validating, object)], &snapshot).unwrap().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(lines(Some(registration("/validate", &["*"]))), [""; 0]);
        assert_eq!(
            lines(Some(registration("/validate", &["CREATE"]))),
            ["c/a.x/0: DELETE of pods is sent by no entry"]
        );
        let two = |why: &str| ["a", "b"].map(|name| format!("c/{name}.x/0: {why}"));
        assert_eq!(lines(Some(registration("/validate", &["UPDATE"]))).len(), 2);
        assert_eq!(lines(Some(registration("/other", &["*"]))), two("none of its webhooks leads to Gatepost"));
        assert_eq!(lines(None), two("there is no such registration"));
        assert!(uncovered(vec![(HookType::Validating, Some(json!({"webhooks": [{}]})))], &snapshot).is_err());
    }

    #[test]
    fn initializers_are_logged_by_their_resource() {
        let text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: c}\n\
                    resourceInitializers:\n\
                    - {resource: pods, initializers: [{name: a, builtIn: {labels: {a: b}}}]}\n\
                    - {apiGroup: extensions, resource: ingresses, initializers: [{name: a, attach: {commonNames: [a]}}]}\n\
                    - {apiGroup: networking.k8s.io, resource: ingresses, initializers: [{name: a, builtIn: {labels: {a: b}}}]}\n\
                    - {resource: services, initializers: [names-alone]}\n\
                    - {resource: secrets, mayInitialize: {users: [ann]}, initializers: [names-alone]}\n";
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let lines = |hook_type| uncovered(vec![(hook_type, None)], &snapshot).unwrap().into_iter().collect::<Vec<_>>();
        // One line for each that is counted, and none for those without a client.
        let of = ["ingresses.extensions", "ingresses.networking.k8s.io", "pods", "secrets"];
        let expected = of.map(|shown| format!("initializers of {shown}: there is no such registration"));
        assert_eq!(lines(HookType::Mutating), expected);
        assert_eq!(lines(HookType::Validating), [""; 0]);
    }
}
