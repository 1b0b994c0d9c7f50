//! Replicas publish reports in the status of configuration objects, and hold an object that is deleted until its
//! hooks have drained on all of them. Tried with a scripted apiserver; with a real one in `tests/e2e/replicas.sh`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::cluster::{CONFIGURATIONS, Cluster, Say, configuration};
use gatepost_kube_support::{KubeAccess, KubeClient, ReloadingClient};
use gatepost_replicas::{
    FINALIZER, HeldReport, HookReport, HookStanding, RejectedConfiguration, ReplicaReport, ReplicasSeen, StatusObjects,
    read_objects,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const HOOK: &str = "h.example.com";

struct Trial {
    cluster: Cluster,
    folder: TempDir,
    access: KubeAccess,
}

/// A replica, and its report.
struct Replica {
    objects: StatusObjects,
    report: ReplicaReport,
}

impl Trial {
    /// A cluster with one configuration, `main`, which holds a hook.
    async fn begin() -> Self {
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
        let access = KubeAccess::Kubeconfig { path: Some(path), context: None };
        let trial = Self { cluster, folder, access };
        trial.has("main", 1);
        trial
    }

    fn has(&self, name: &str, generation: i64) {
        let mut object = configuration(name, HOOK);
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["generation"] = json!(generation);
        self.cluster.has(CONFIGURATIONS, object);
    }

    /// A replica with the hook of `main` in force, as of some later revision.
    async fn replica(&self, name: &str, finalizer: bool) -> Replica {
        let connection = ReloadingClient::new(self.access.clone()).await.unwrap();
        let hook = HookReport {
            name: HOOK.to_owned(),
            id: HOOK.to_owned(),
            configuration: "main".to_owned(),
            endpoint: "grpc://127.0.0.1:1".to_owned(),
            state: HookStanding::Active,
            since: "2026-01-01T00:00:00Z".to_owned(),
            ..HookReport::default()
        };
        let report = ReplicaReport {
            replica: name.to_owned(),
            instance: format!("{name} {}", self.folder.path().display()),
            version: "1".to_owned(),
            generation: 1,
            revision: "11".to_owned(),
            digest: "ab".repeat(32),
            observed: Some(1000),
            age_seconds: Some(0.1),
            hooks: vec![hook],
            ..ReplicaReport::default()
        };
        Replica { objects: StatusObjects::new(connection, name, finalizer), report }
    }

    fn object(&self) -> Value {
        self.cluster.stored(CONFIGURATIONS, "main").expect("is there")
    }

    fn entries(&self) -> Vec<Value> {
        self.object()["status"]["replicas"].as_array().cloned().unwrap_or_default()
    }

    fn is_there(&self) -> bool {
        self.cluster.stored(CONFIGURATIONS, "main").is_some()
    }

    async fn seen(&self) -> Result<ReplicasSeen, String> {
        read_objects(&KubeClient::open(&self.access).await.unwrap(), SystemTime::now()).await
    }
}

impl Replica {
    async fn publish(&mut self) -> Result<(), String> {
        self.report.published = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        self.objects.publish(&self.report).await
    }

    fn stands(&mut self, state: HookStanding) {
        self.report.hooks[0].state = state;
    }
}

#[tokio::test]
async fn replica_entries_are_listed() {
    let trial = Trial::begin().await;
    let (mut one, mut two) = (trial.replica("one", true).await, trial.replica("two", true).await);
    one.publish().await.unwrap();
    two.publish().await.unwrap();
    let names: Vec<_> = trial.entries().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(trial.entries()[0]["observedGeneration"], 1);
    let seen = trial.seen().await.unwrap();
    assert_eq!(seen, ReplicasSeen { reports: vec![one.report.clone(), two.report.clone()], unreadable: Vec::new() });

    one.objects.leave().await.unwrap();
    assert_eq!(trial.entries().len(), 1, "a replica that leaves has no entry any more");
    assert_eq!(trial.entries()[0]["name"], "two");
    trial.cluster.has_no(CONFIGURATIONS, "main");
    assert!(trial.seen().await.unwrap_err().contains("--admin"), "no object, no status");
    trial.cluster.forgets(CONFIGURATIONS);
    assert!(trial.seen().await.unwrap_err().contains("gatepost crd"), "nor the kind");
}

#[tokio::test]
async fn unchanged_status_is_republished_only_when_due() {
    let trial = Trial::begin().await;
    let mut one = trial.replica("one", false).await;
    for _ in 0..3 {
        one.publish().await.unwrap();
    }
    let patches = |trial: &Trial| trial.cluster.asked().iter().filter(|path| path.contains("gatepost-one")).count();
    assert_eq!(patches(&trial), 1);
    one.stands(HookStanding::Draining);
    one.publish().await.unwrap();
    assert_eq!(patches(&trial), 1, "a hook drains");
    assert_eq!(trial.entries()[0]["draining"], true);
}

#[tokio::test]
async fn generation_is_observed_after_an_accepted_read() {
    let trial = Trial::begin().await;
    let mut one = trial.replica("one", false).await;
    one.report.observed = Some(11);
    one.publish().await.unwrap();
    assert_eq!(trial.entries()[0]["observedGeneration"], 1);
    assert_eq!(trial.object()["status"]["conditions"].as_array().map(Vec::len), Some(1));
    // A second generation, and this replica has not read it.
    let mut object = trial.object();
    object["metadata"]["generation"] = json!(2);
    object["metadata"]["resourceVersion"] = json!("50");
    trial.cluster.is_at(50);
    trial.cluster.has(CONFIGURATIONS, object);
    one.report.observed = Some(49);
    one.publish().await.unwrap();
    assert_eq!(trial.entries()[0]["observedGeneration"], 1);
    one.report.observed = Some(50);
    one.publish().await.unwrap();
    assert_eq!(trial.entries()[0]["observedGeneration"], 2);
    let condition = |trial: &Trial| trial.object()["status"]["conditions"][0].clone();
    one.publish().await.unwrap();
    assert_eq!((&condition(&trial)["status"], &condition(&trial)["observedGeneration"]), (&json!("True"), &json!(2)));
}

#[tokio::test]
async fn object_status_reports_effect_or_obstacle() {
    let trial = Trial::begin().await;
    for name in ["bad", "new"] {
        let mut object = configuration(name, &format!("{name}.example.com"));
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["generation"] = json!(4);
        trial.cluster.has(CONFIGURATIONS, object);
    }
    let mut one = trial.replica("one", false).await;
    let held = |name: &str, keeps| HeldReport {
        document: format!("admissioncontrolconfigurations/{name}"),
        keeps,
        since: "2026-01-01T00:00:00Z".to_owned(),
        why: format!("admissioncontrolconfigurations/{name}: x: is wrong; mend it"),
    };
    let held = vec![held("bad", true), held("new", false)];
    let problems: Vec<_> = held.iter().map(|held| held.why.clone()).collect();
    let since = "2026-01-01T00:00:00Z".to_owned();
    let (count, held_left_out) = (2, 0);
    one.report.rejected =
        Some(RejectedConfiguration { revision: "12".to_owned(), since, problems, count, held, held_left_out });
    one.publish().await.unwrap();
    let object = |name: &str| trial.cluster.stored(CONFIGURATIONS, name).unwrap()["status"].clone();
    let condition = |name: &str| object(name)["conditions"][0].clone();
    assert_eq!((&condition("main")["status"], &condition("main")["reason"]), (&json!("True"), &json!("InForce")));
    assert_eq!(object("main")["replicas"][0]["observedGeneration"], 1, "another one's fault is not its own");
    for (name, reason, means) in [("bad", "HeldBack", "its last good state stays"), ("new", "LeftOut", "nothing of it")]
    {
        let condition = condition(name);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!(reason)));
        assert_eq!(condition["observedGeneration"], 4, "it is said of the newest");
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains(means) && message.contains("is wrong; mend it"), "{message}");
        assert_eq!(object(name)["replicas"][0]["observedGeneration"], Value::Null);
    }
}

#[tokio::test]
async fn deleted_object_is_held_until_all_replicas_drain() {
    let trial = Trial::begin().await;
    let (mut one, mut two) = (trial.replica("one", true).await, trial.replica("two", true).await);
    for replica in [&mut one, &mut two] {
        replica.publish().await.unwrap();
    }
    assert_eq!(trial.object()["metadata"]["finalizers"], json!([FINALIZER]));
    trial.cluster.deletes(CONFIGURATIONS, "main");
    one.stands(HookStanding::Gone);
    for _ in 0..3 {
        one.publish().await.unwrap();
        two.publish().await.unwrap();
    }
    assert!(trial.is_there(), "two still asks the hook");
    let drained = trial.entries().into_iter().filter(|entry| entry["drained"] == true);
    assert_eq!(drained.map(|entry| entry["name"].clone()).collect::<Vec<_>>(), ["one"]);
    two.stands(HookStanding::Gone);
    two.publish().await.unwrap();
    assert!(trial.is_there(), "what was just written is read first");
    two.publish().await.unwrap();
    assert!(!trial.is_there());
    two.publish().await.unwrap();
}

#[tokio::test]
async fn replica_without_a_report_holds_a_deleted_object() {
    let trial = Trial::begin().await;
    let mut one = trial.replica("one", true).await;
    one.publish().await.unwrap();
    // It has reported on another object so far, and not come to this one.
    let mut other = configuration("other", "other.example.com");
    other["metadata"]["uid"] = json!("other");
    let renewed = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    other["status"]["replicas"] = json!([{"name": "two", "instance": "two", "renewed": renewed}]);
    trial.cluster.has(CONFIGURATIONS, other);
    trial.cluster.deletes(CONFIGURATIONS, "main");
    one.stands(HookStanding::Gone);
    for _ in 0..3 {
        one.publish().await.unwrap();
    }
    let drained = trial.entries().into_iter().filter(|entry| entry["drained"] == true);
    assert_eq!(drained.map(|entry| entry["name"].clone()).collect::<Vec<_>>(), ["one"]);
    assert!(trial.is_there(), "two may ask the hook");
    trial.cluster.has_no(CONFIGURATIONS, "other");
    for _ in 0..2 {
        one.publish().await.unwrap();
    }
    assert!(!trial.is_there(), "nobody else is known of any more");
}

#[tokio::test(start_paused = true)]
async fn a_dead_replica_holds_no_object_for_ever_and_is_forgotten() {
    let trial = Trial::begin().await;
    let (mut one, mut two) = (trial.replica("one", true).await, trial.replica("two", true).await);
    two.publish().await.unwrap();
    one.publish().await.unwrap();
    drop(two);
    for _ in 0..61 {
        tokio::time::advance(Duration::from_secs(10)).await;
        one.publish().await.unwrap();
    }
    assert_eq!(trial.entries().len(), 1, "ten minutes later nobody reports it");

    let mut three = trial.replica("three", true).await;
    three.publish().await.unwrap();
    trial.cluster.deletes(CONFIGURATIONS, "main");
    one.stands(HookStanding::Gone);
    one.publish().await.unwrap();
    drop(three);
    for seconds in [20, 9] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        for _ in 0..2 {
            // Its own write is read first.
            one.publish().await.unwrap();
        }
        assert!(trial.is_there(), "it may live");
    }
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(2)).await;
        one.publish().await.unwrap();
    }
    assert!(!trial.is_there());
}

#[tokio::test]
async fn an_object_that_changes_meanwhile_is_tried_again() {
    let trial = Trial::begin().await;
    let mut one = trial.replica("one", true).await;
    one.publish().await.unwrap();
    trial.cluster.deletes(CONFIGURATIONS, "main");
    one.stands(HookStanding::Gone);
    one.publish().await.unwrap();
    let path = format!("{CONFIGURATIONS}/main?");
    for code in [409, 422] {
        // The object itself: its status has another path.
        trial.cluster.says(path.trim_end_matches('?'), Say::Status(code));
        one.publish().await.unwrap();
        assert!(trial.is_there());
    }
    trial.cluster.serves_normally();
    one.publish().await.unwrap();
    assert!(!trial.is_there());
}

#[tokio::test]
async fn missing_finalizer_or_rights_is_reported() {
    let trial = Trial::begin().await;
    let mut one = trial.replica("one", false).await;
    one.publish().await.unwrap();
    assert!(trial.object()["metadata"]["finalizers"].is_null(), "switched off");

    trial.cluster.says(&format!("{CONFIGURATIONS}/main/status"), Say::Status(403));
    one.stands(HookStanding::Draining);
    let text = one.publish().await.unwrap_err();
    assert!(text.contains("answers 403 to PATCH") && text.contains("grant"), "{text}");
    trial.cluster.serves_normally();
    one.publish().await.unwrap();
    assert_eq!(trial.entries()[0]["draining"], true);
}

#[tokio::test]
async fn namesakes_are_reported() {
    let trial = Trial::begin().await;
    let (mut one, mut twin) = (trial.replica("one", false).await, trial.replica("one", false).await);
    twin.report.instance = "another".to_owned();
    one.publish().await.unwrap();
    twin.publish().await.unwrap();
    assert!(one.publish().await.unwrap_err().contains("another replica goes by the name"));
    assert!(trial.seen().await.unwrap().reports[0].contested);
}
