//! The objects of a cluster are read as one state of its store, or not at all: what is wrong is named, and nothing of
//! it is remembered.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{path::Path, time::Duration};

use crate::cluster::{
    BREAK_GLASS, CONFIGURATIONS, Cluster, MUTATING, SELF, Say, VALIDATING, configuration, kubeconfig,
};
use crate::front::until;
use crate::tls::Authority;
use gatepost::{
    rotate::{OnHazard, candidate},
    source::{
        Contents, KubernetesLocation, READ_TIMEOUT, ReadError, Source, SourceLocation, kubernetes::ObjectSelection,
        poll,
    },
};
use gatepost_api::Revision;
use gatepost_kube_support::{KubeAccess, KubeError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

const BOTH: ObjectSelection = ObjectSelection { configurations: true, webhooks: true };
const OURS: ObjectSelection = ObjectSelection { configurations: true, webhooks: false };

/// A source that reads this cluster, and the folder of its credentials.
async fn source(cluster: &Cluster, objects: ObjectSelection) -> (Source, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = cluster.kubeconfig(folder.path(), json!({"token": "t"}), None);
    (opened(&path, objects).await, folder)
}

async fn opened(path: &Path, objects: ObjectSelection) -> Source {
    let access = KubeAccess::Kubeconfig { path: Some(path.to_owned()), context: None };
    SourceLocation::Kubernetes(KubernetesLocation::new(access, objects)).open().await.unwrap()
}

fn names(contents: &Contents) -> Vec<&str> {
    contents.files.iter().map(|file| &*file.name).collect()
}

fn webhooks(name: &str, labels: Value) -> Value {
    let hook = json!({"name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1"}, "rules": []});
    json!({"metadata": {"name": name, "labels": labels, "resourceVersion": "3", "generation": 1}, "webhooks": [hook]})
}

#[tokio::test]
async fn every_kind_is_listed_at_the_revision_of_the_first() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.has(CONFIGURATIONS, configuration(name, &format!("{name}.example.com")));
        cluster.has(VALIDATING, webhooks(name, json!({})));
    }
    cluster.has(MUTATING, webhooks("m", json!({})));
    let (mut source, _folder) = source(&cluster, BOTH).await;
    let contents = source.read().await.unwrap();
    let (own, stock) = ("admissioncontrolconfigurations", "validatingwebhookconfigurations");
    let names_wanted = ["a", "b", "c"].map(|name| format!("{own}/{name}"));
    let mut wanted: Vec<_> =
        names_wanted.into_iter().chain(["a", "b", "c"].map(|name| format!("{stock}/{name}"))).collect();
    wanted.push("mutatingwebhookconfigurations/m".to_owned());
    assert_eq!(names(&contents), wanted);
    assert_eq!((&contents.revision, contents.as_of), (&Revision::Store(17), Some(17)));
    assert_eq!(candidate(&contents, OnHazard::Off).expect("sound").snapshot.hooks.len(), 7);

    let exactly = "limit=500&resourceVersion=17&resourceVersionMatch=Exact";
    let asked = [
        format!("{CONFIGURATIONS}?limit=500"),
        format!("{CONFIGURATIONS}?limit=500&continue=2.17"),
        format!("{VALIDATING}?{exactly}"),
        format!("{VALIDATING}?limit=500&continue=2.17"),
        format!("{MUTATING}?{exactly}"),
        format!("{BREAK_GLASS}?{exactly}"),
        format!("{SELF}?resourceVersion=0"),
    ];
    assert_eq!(cluster.asked(), asked, "and that nobody knows BreakGlass is no failure");
}

#[tokio::test]
async fn changed_objects_get_the_revision_of_the_read() {
    let cluster = Cluster::start().await;
    cluster.has(CONFIGURATIONS, configuration("a", "a.example.com"));
    let (mut source, _folder) = source(&cluster, OURS).await;
    let first = source.read().await.unwrap();
    cluster.is_at(40);
    let later = source.read().await.unwrap();
    assert_eq!((&later.revision, later.as_of, &later.digest), (&Revision::Store(11), Some(40), &first.digest));

    let mut reported = configuration("a", "a.example.com");
    reported["status"] = json!({"replicas": []});
    reported["metadata"]["resourceVersion"] = json!("41");
    reported["metadata"]["managedFields"] = json!([{}]);
    cluster.has(CONFIGURATIONS, reported);
    let reported = source.read().await.unwrap();
    assert_eq!((&reported.revision, reported.as_of), (&Revision::Store(11), Some(41)), "a report is no change");

    cluster.has(CONFIGURATIONS, configuration("a", "b.example.com"));
    let changed = source.read().await.unwrap();
    assert_eq!((&changed.revision, changed.as_of), (&Revision::Store(42), Some(42)));
    assert_ne!(changed.digest, first.digest);

    let mut going = configuration("a", "b.example.com");
    going["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    cluster.has(CONFIGURATIONS, going);
    let gone = source.read().await.unwrap();
    assert_eq!(
        (names(&gone).len(), &gone.revision),
        (0, &Revision::Store(43)),
        "it is held by a finalizer, and drains"
    );
    assert!(gone.notes[0].to_string().contains("its hooks drain"), "{:?}", gone.notes);
}

#[tokio::test]
async fn empty_cluster_is_a_reported_configuration() {
    let cluster = Cluster::start().await;
    let (mut source, _folder) = source(&cluster, OURS).await;
    let contents = source.read().await.unwrap();
    assert!(contents.files.is_empty());
    let candidate = candidate(&contents, OnHazard::Off).expect("sound");
    let notes = candidate.snapshot.describe()["notes"].to_string();
    assert!(notes.contains("there is no such object, so there are no hooks"), "{notes}");
}

#[tokio::test]
async fn our_own_registration_is_left_out_and_noted() {
    let cluster = Cluster::start().await;
    cluster.has(VALIDATING, webhooks("gatepost", json!({"app.kubernetes.io/managed-by": "gatepost"})));
    cluster.has(VALIDATING, webhooks("policy", json!({})));
    let (mut source, _folder) = source(&cluster, ObjectSelection { configurations: false, webhooks: true }).await;
    let contents = source.read().await.unwrap();
    assert_eq!(names(&contents), ["validatingwebhookconfigurations/policy"]);
    let note = contents.notes[0].to_string();
    assert!(note.starts_with("validatingwebhookconfigurations/gatepost: ") && note.contains("call itself"), "{note}");
    assert!(!cluster.asked().iter().any(|path| path.starts_with(CONFIGURATIONS)));
}

#[tokio::test]
async fn unusable_objects_are_named_and_not_stored() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.has(CONFIGURATIONS, configuration(name, &format!("{name}.example.com")));
    }
    let (mut source, _folder) = source(&cluster, BOTH).await;
    let good = source.read().await.unwrap();
    let next = format!("{CONFIGURATIONS}?limit=500&continue");
    let trials: &[(&str, Say, &str)] = &[
        (CONFIGURATIONS, Say::Text("<html>log in</html>"), "no JSON"),
        (CONFIGURATIONS, Say::Text("{}"), "it is no list"),
        (
            CONFIGURATIONS,
            Say::Text(r#"{"kind": "ThingList", "metadata": {"resourceVersion": "9"}, "items": {}}"#),
            "items",
        ),
        (
            CONFIGURATIONS,
            Say::Text(r#"{"kind": "ThingList", "metadata": {"resourceVersion": "99"}, "items": [{}]}"#),
            "an object has no metadata",
        ),
        (CONFIGURATIONS, Say::Half, "broke off"),
        (&next, Say::Half, "broke off"),
        (&next, Say::Revision("99"), "its pages are of different revisions"),
        (CONFIGURATIONS, Say::Revision("9"), "is at revision 9 and has been at 13"),
        (CONFIGURATIONS, Say::Revision("old"), "resourceVersion is not a number"),
        (VALIDATING, Say::Revision("15"), "another revision than was requested"),
        (VALIDATING, Say::Half, "broke off"),
        (MUTATING, Say::Status(500), "answers 500"),
        (CONFIGURATIONS, Say::Status(403), "grant this user what the apiserver says is missing"),
        (VALIDATING, Say::Status(403), "answers 403"),
        (MUTATING, Say::Status(403), "answers 403"),
        (MUTATING, Say::Status(404), "answers 404"),
        (BREAK_GLASS, Say::Status(403), "answers 403"),
        (SELF, Say::Status(403), "answers 403 to GET /api/v1/namespaces/kube-system"),
        (SELF, Say::Text("{}"), "has no uid"),
        (CONFIGURATIONS, Say::Status(503), "answers 503"),
    ];
    for (path, say, words) in trials {
        cluster.has(CONFIGURATIONS, configuration("d", "d.example.com"));
        cluster.says(path, say.clone());
        let error = source.read().await.expect_err(words).to_string();
        assert!(error.contains(words) && error.contains("127.0.0.1"), "{path} {say:?}: {error}");
        cluster.has_no(CONFIGURATIONS, "d");
        cluster.is_at(13);
        cluster.serves_normally();
        let again = source.read().await.unwrap();
        assert_eq!(again, good, "{path} {say:?}");
    }
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_no_empty_configuration() {
    let cluster = Cluster::start().await;
    cluster.forgets(CONFIGURATIONS);
    let (mut source, _folder) = source(&cluster, OURS).await;
    let error = source.read().await.unwrap_err();
    assert!(matches!(error, ReadError::NotInstalled { .. }), "{error}");
    assert!(error.to_string().contains("`gatepost crd | kubectl apply -f -`"), "{error}");
    cluster.has(CONFIGURATIONS, configuration("a", "a.example.com"));
    assert_eq!(names(&source.read().await.unwrap()), ["admissioncontrolconfigurations/a"]);
}

#[tokio::test]
async fn a_store_that_went_back_is_refused_until_it_has_caught_up() {
    let cluster = Cluster::start().await;
    cluster.is_at(100);
    let (mut source, _folder) = source(&cluster, OURS).await;
    source.read().await.unwrap();
    cluster.is_at(99);
    let error = source.read().await.unwrap_err();
    assert!(matches!(error, ReadError::WentBack { before: 100, now: 99, .. }), "{error}");
    assert!(error.to_string().contains("restored from a backup"), "{error}");
    cluster.is_at(100);
    source.read().await.unwrap();
}

#[tokio::test]
async fn another_cluster_at_the_same_address_is_refused() {
    let cluster = Cluster::start().await;
    let (mut source, _folder) = source(&cluster, OURS).await;
    source.read().await.unwrap();
    cluster.is("another");
    cluster.has(CONFIGURATIONS, configuration("foreign", "a.example.com"));
    for _ in 0..2 {
        let error = source.read().await.unwrap_err();
        assert!(
            matches!(&error, ReadError::OtherStore { known, found, .. } if known == "one" && found == "another"),
            "{error}"
        );
    }
    cluster.is("one");
    source.read().await.unwrap();
}

#[tokio::test]
async fn silence_ends_with_the_deadline() {
    let cluster = Cluster::start().await;
    let (mut source, _folder) = source(&cluster, BOTH).await;
    source.read().await.unwrap();
    for path in [CONFIGURATIONS, MUTATING, SELF] {
        cluster.says(path, Say::Silence);
        let began = tokio::time::Instant::now();
        let error = source.read().await.unwrap_err();
        let patience = READ_TIMEOUT;
        assert!(
            matches!(&error, ReadError::Kube(KubeError::TimedOut { patience: reported, .. }) if *reported == patience),
            "{error}"
        );
        assert!(began.elapsed() >= READ_TIMEOUT, "{path}");
        cluster.serves_normally();
        source.read().await.expect("the next read is not held up by it");
    }
}

#[tokio::test]
async fn unreachable_replicas_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("cluster");
    let expired = Cluster::over_tls(&authority.ending(2020), None).await;
    let stranger = Cluster::over_tls(&Authority::new("other").server(), None).await;
    // `.invalid` never resolves (RFC 6761).
    for (server, words) in [
        (expired.url(), &["expired"][..]),
        (stranger.url(), &["UnknownIssuer"]),
        ("https://apiserver.invalid:6443".to_owned(), &["apiserver.invalid", "lookup"]),
    ] {
        let path = kubeconfig(folder.path(), &server, json!({"token": "t"}), Some(&authority));
        let mut source = opened(&path, OURS).await;
        let [error, again] = [source.read().await.unwrap_err(), source.read().await.unwrap_err()];
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{server}: {message}");
        assert_eq!(error, again, "or the log would repeat it every second");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_read_is_reported_at_the_start() {
    let access = KubeAccess::Kubeconfig { path: Some("/nowhere/kubeconfig".into()), context: None };
    let place = SourceLocation::Kubernetes(KubernetesLocation::new(access, OURS));
    assert!(place.can_start_without_configuration());
    let error = place.open().await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/kubeconfig"), "{error}");
}

/// Without a hint the next read would be an hour later.
#[tokio::test]
async fn a_changed_object_is_read_at_once() {
    let cluster = Cluster::start().await;
    cluster.has(CONFIGURATIONS, configuration("a", "one.example.com"));
    let (mut source, _folder) = source(&cluster, OURS).await;
    source.read().await.unwrap();
    let (readings, mut read) = mpsc::channel(1);
    tokio::spawn(poll(source, Duration::from_secs(3600), readings, || {}));
    until("a watch is open", || cluster.watches(CONFIGURATIONS) == 1).await;
    cluster.has(CONFIGURATIONS, configuration("a", "two.example.com"));
    let contents = read.recv().await.unwrap().outcome.unwrap();
    assert!(String::from_utf8_lossy(&contents.files[0].bytes).contains("two.example.com"));
}
