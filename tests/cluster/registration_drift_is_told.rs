//! A hook that means what the registration with the apiserver does not send is counted, and logged once.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    cell::Cell,
    time::{Duration, Instant, SystemTime},
};

use crate::cluster::{Cluster, Say};
use crate::front::until;
use crate::support::{
    gate::{document, hook},
    scripted_hook::{Script, ScriptedHook},
};
use gatepost::{
    live::ReplicaHealth,
    runtime::{Settings, Sidecar},
    source::RegistrationWatch,
};
use gatepost_kube_support::KubeAccess;
use serde_json::{Value, json};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/mine";

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/mine";

/// A registration at that state, for these operations on everything.
fn registration(version: &str, operations: &[&str]) -> Value {
    json!({"metadata": {"name": "mine", "resourceVersion": version}, "webhooks": [{
        "name": "g.validate.gatepost.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
        "clientConfig": {"url": "https://127.0.0.1:9440/validate"},
        "rules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
    }]})
}

fn says(cluster: &Cluster, object: &Value) {
    cluster.says(REGISTRATION, Say::Text(object.to_string().leak()));
}

fn uncovered(health: &ReplicaHealth) -> Option<usize> {
    Some(health.registration.get()?.uncovered(Instant::now())?.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drift_comes_and_goes_with_the_registration() {
    let (cluster, h) = (Cluster::start().await, ScriptedHook::start(Script::Allow).await);
    let folder = tempfile::tempdir().expect("folder");
    let access = || KubeAccess::find(Some(cluster.kubeconfig(folder.path(), json!({"token": "t"}), None)), None);
    let config = folder.path().join("gatepost.yaml");
    std::fs::write(&config, document(&[hook("h.example.com", &h.url(), "")])).expect("written");
    says(&cluster, &registration("1", &["CREATE"]));
    let settings =
        Settings { namespaces_from: Some(access()), registration: Some("mine".to_owned()), ..Settings::local(&config) };
    let running = std::thread::spawn(|| Sidecar::start(settings)).join().expect("no panic").expect("starts");
    let counted = || running.metrics.render().expect("text").contains("gatepost_registration_uncovered_hooks 1.0");
    until("the sidecar counts it", counted).await;

    let watch = RegistrationWatch::new(access(), "mine", &running.health).await.expect("can be read");
    let watch = watch.every(Duration::from_millis(20));
    let watching = tokio::spawn(watch.run());
    until("it is found", || uncovered(&running.health) == Some(1)).await;
    says(&cluster, &registration("2", &["*"]));
    until("it is mended", || uncovered(&running.health) == Some(0)).await;
    cluster.says(REGISTRATION, Say::Status(404));
    until("it is gone", || uncovered(&running.health) == Some(1)).await;
    let faults = running.health.faults((Instant::now(), SystemTime::now()));
    let missing = "REGISTRATION mine does not send all requests that are to be seen, and they pass unseen: \
                   test/h.example.com/0: there is no such registration; run gatepost register";
    assert!(matches!(&*faults, [one] if one.to_string().starts_with(missing)), "{faults:?}");
    cluster.says(REGISTRATION, Say::Status(403));
    cluster.asked();
    let times = Cell::new(0);
    let asked_again = || {
        times.set(times.get() + cluster.asked().iter().filter(|path| path.starts_with(REGISTRATION)).count());
        times.get() > 2
    };
    until("it was asked again", asked_again).await;
    assert_eq!(uncovered(&running.health), Some(1), "what cannot be read is as it was");
    watching.abort();

    // Mutating hooks have a registration of their own, by the same name.
    let mutating = hook("m.example.com", &h.url(), "type: Mutating");
    std::fs::write(&config, document(&[mutating])).expect("written");
    let in_force = || running.current.load().hooks.iter().all(|live| &*live.hook.name == "m.example.com");
    until("it is in force", in_force).await;
    cluster.says(MUTATING, Say::Status(404));
    let watch = RegistrationWatch::new(access(), "mine", &running.health).await.expect("can be read");
    let watch = watch.every(Duration::from_millis(20));
    let watching = tokio::spawn(watch.run());
    until("it is not registered", || uncovered(&running.health) == Some(1)).await;
    let text = registration("4", &["*"]).to_string().replace("validate", "mutate");
    cluster.says(MUTATING, Say::Text(text.leak()));
    until("it is registered", || uncovered(&running.health) == Some(0)).await;
    watching.abort();
    std::thread::spawn(|| running.stop()).join().expect("stopped");
}
