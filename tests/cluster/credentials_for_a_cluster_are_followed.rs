//! Credentials for an apiserver that change while a source reads there: the new ones are used by themselves, what
//! cannot be used never takes the place of what can.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use crate::cluster::{Cluster, shown};
use crate::tls::{Authority, Pair, put};
use gatepost::source::{Contents, KubernetesLocation, ReadError, Source, SourceLocation, kubernetes::ObjectSelection};
use gatepost_kube_support::{KubeAccess, KubeError};
use serde_json::json;

async fn opened(path: &Path) -> Source {
    let access = KubeAccess::Kubeconfig { path: Some(path.to_owned()), context: None };
    SourceLocation::Kubernetes(KubernetesLocation::new(access, ObjectSelection::default())).open().await.unwrap()
}

/// Reads, a little slower than a sidecar would, until the reading is so; what came before it.
async fn until(source: &mut Source, holds: impl Fn(&Result<Contents, ReadError>) -> bool) -> Vec<ReadError> {
    let (began, mut before) = (Instant::now(), Vec::new());
    loop {
        let reading = source.read().await;
        if holds(&reading) {
            return before;
        }
        before.extend(reading.err());
        assert!(began.elapsed() < Duration::from_secs(20), "never; before that {before:?}");
        tokio::task::yield_now().await;
    }
}

fn put_pair(folder: &Path, pair: &Pair) {
    put(folder, "client.crt", &pair.chain);
    put(folder, "client.key", &pair.key);
}

#[tokio::test]
async fn a_token_file_that_rotates() {
    let (cluster, folder) = (Cluster::start().await, tempfile::tempdir().unwrap());
    put(folder.path(), "token", "first");
    let path = cluster.kubeconfig(folder.path(), json!({"tokenFile": folder.path().join("token")}), None);
    let mut source = opened(&path).await;
    source.read().await.unwrap();
    assert_eq!(cluster.credentials(), "first");
    put(folder.path(), "token", "second");
    until(&mut source, |reading| reading.is_ok() && cluster.credentials() == "second").await;
    cluster.takes("second");
    source.read().await.expect("and never again with the first one");
}

#[tokio::test]
async fn a_client_certificate_that_is_renewed_and_one_that_is_broken() {
    let [servers, clients] = ["servers", "clients"].map(Authority::new);
    let [first, second] = [clients.pair("gatepost", &[]), clients.pair("gatepost", &[])];
    let cluster = Cluster::over_tls(&servers.server(), Some(&clients)).await;
    let folder = tempfile::tempdir().unwrap();
    put_pair(folder.path(), &first);
    let user = json!({"client-certificate": "client.crt", "client-key": "client.key"});
    let path = cluster.kubeconfig(folder.path(), user, Some(&servers));
    let mut source = opened(&path).await;
    source.read().await.unwrap();
    assert_eq!(cluster.credentials(), shown(&first.der()));

    put_pair(folder.path(), &second);
    let failures = until(&mut source, |_| cluster.credentials() == shown(&second.der())).await;
    assert_eq!(failures, [], "no read fails meanwhile");

    for broken in ["", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", &first.chain] {
        put(folder.path(), "client.crt", broken);
        for _ in 0..5 {
            source.read().await.expect("the old pair is used");
        }
        assert_eq!(cluster.credentials(), shown(&second.der()));
    }
    fs::remove_file(folder.path().join("client.key")).unwrap();
    source.read().await.expect("the old pair is used");
    put_pair(folder.path(), &first);
    until(&mut source, |_| cluster.credentials() == shown(&first.der())).await;
}

#[tokio::test]
async fn a_kubeconfig_that_is_replaced() {
    let (cluster, folder) = (Cluster::start().await, tempfile::tempdir().unwrap());
    let path = cluster.kubeconfig(folder.path(), json!({"token": "first"}), None);
    let mut source = opened(&path).await;
    source.read().await.unwrap();
    fs::write(&path, "users: [").unwrap();
    source.read().await.expect("half a file changes nothing");
    source.read().await.expect("half a file changes nothing");
    cluster.kubeconfig(folder.path(), json!({"token": "second"}), None);
    until(&mut source, |reading| reading.is_ok() && cluster.credentials() == "second").await;
}

/// A plugin that prints the credential in a file, and keeps count of how often it ran.
fn plugin(folder: &Path, pause: &str) -> serde_json::Value {
    let [script, credential, runs] = ["plugin", "credential", "runs"].map(|name| folder.join(name));
    let text = format!(
        "#!/bin/sh\necho run >>'{}'\n{pause}\nprintf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\
         \"kind\":\"ExecCredential\",\"status\":{{\"token\":\"%s\"}}}}' \"$(cat '{}')\"\n",
        runs.display(),
        credential.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let version = "client.authentication.k8s.io/v1";
    json!({"exec": {"apiVersion": version, "command": script, "interactiveMode": "Never"}})
}

fn runs(folder: &Path) -> usize {
    fs::read_to_string(folder.join("runs")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn refused_plugin_token_is_renewed_a_limited_number_of_times() {
    let (cluster, folder) = (Cluster::start().await, tempfile::tempdir().unwrap());
    put(folder.path(), "credential", "first");
    let path = cluster.kubeconfig(folder.path(), plugin(folder.path(), ""), None);
    let mut source = opened(&path).await;
    assert_eq!(runs(folder.path()), 0, "nothing is run before something is asked");
    source.read().await.unwrap();
    for _ in 0..5 {
        source.read().await.unwrap();
    }
    let before = runs(folder.path());
    put(folder.path(), "credential", "second");
    cluster.takes("second");
    let failures = until(&mut source, Result::is_ok).await;
    let refused = |error: &ReadError| matches!(error, ReadError::Kube(KubeError::Refused { code: 401, .. }));
    assert!(!failures.is_empty() && failures.iter().all(refused), "{failures:?}");

    let renewed = runs(folder.path());
    cluster.takes("third");
    for _ in 0..20 {
        source.read().await.expect_err("refused");
    }
    assert!(renewed > before, "the package runs it twice for a client");
    assert_eq!(runs(folder.path()), renewed, "it was run less than five seconds ago");
}

#[tokio::test]
async fn a_plugin_that_takes_longer_than_a_read() {
    let (cluster, folder) = (Cluster::start().await, tempfile::tempdir().unwrap());
    put(folder.path(), "credential", "t");
    // The package runs it twice: once for a token and once to see whether there is a certificate.
    let path = cluster.kubeconfig(folder.path(), plugin(folder.path(), "sleep 0.6"), None);
    let mut source = opened(&path).await;
    let failures = until(&mut source, Result::is_ok).await;
    assert!(!failures.is_empty() && failures.len() < 4, "{failures:?}");
    assert!(failures.iter().all(|error| matches!(error, ReadError::Kube(KubeError::TimedOut { .. }))), "{failures:?}");
}
