//! The admin address says what is going on.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "test code")]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use gatepost::{
    front::admin::Admin,
    live::{Current, FailedRead, Generation, Namespaces, Rejection, ReplicaHealth},
    telemetry::{Metrics, RefusalReason},
};
use gatepost_api::Labels;
use gatepost_config::{Problem, Snapshot};
use gatepost_replicas::{Replica, ReplicaReport};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

async fn admin(health: &Arc<ReplicaHealth>, metrics: &Arc<Metrics>) -> SocketAddr {
    let (health, metrics) = (Arc::clone(health), Arc::clone(metrics));
    serving(Admin { health, replica: replica(), metrics, namespaces: None, tls: None }).await
}

fn replica() -> Arc<Replica> {
    Arc::new(Replica::new("a"))
}

async fn serving(admin: Admin) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    tokio::spawn(admin.serve(listener, std::future::pending()));
    address
}

/// Status line, the rest of the head, body.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.expect("in time").expect("read");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("status").parse().expect("number");
    (status, head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn readyz_is_ok_from_the_first_read_to_the_drain() {
    let current = Arc::new(Current::new(Instant::now()));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let address = admin(&health, &Arc::default()).await;
    let ready = async || {
        let (status, _, body) = ask(address, "GET", "/readyz").await;
        (status, body)
    };
    assert_eq!(ready().await, (503, "not ready: the configuration has not been read yet\n".into()));
    assert_eq!(ask(address, "GET", "/livez").await.0, 200, "alive all the same");
    current.freshness().stamp_awake(Instant::now());
    assert_eq!(ready().await, (200, "ok\n".into()));
    health.begin_stopping();
    assert_eq!(ready().await, (503, "not ready: shutting down\n".into()));
}

#[tokio::test]
async fn readyz_of_a_stale_replica_is_unready_among_replicas() {
    let long_ago = Instant::now().checked_sub(Duration::from_secs(31)).expect("a machine that has run for longer");
    let current = Arc::new(Current::new(long_ago));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let address = admin(&health, &Arc::default()).await;
    current.freshness().stamp_awake(long_ago);
    assert_eq!(ask(address, "GET", "/readyz").await.0, 200, "another replica is no help to a caller of this one alone");
    let (status, _, body) = ask(address, "GET", "/readyz?fresh").await;
    assert_eq!((status, body.starts_with("not ready: the configuration is stale")), (503, true), "{body}");
    current.freshness().stamp_awake(Instant::now());
    assert_eq!(ask(address, "GET", "/readyz?fresh").await.2, "ok\n");
}

#[tokio::test]
async fn readyz_verbose_lists_faults_that_do_not_make_unready() {
    use gatepost::{
        hooks::Channel,
        live::{CallTarget, LiveHook, Overdue, Rotation},
    };
    use gatepost_api::{Step, Unreachable};
    use gatepost_config::{SourceFile, load};
    let (current, metrics) = (Arc::new(Current::new(Instant::now())), Arc::new(Metrics::new(1)));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let address = admin(&health, &metrics).await;
    current.freshness().stamp_awake(Instant::now());
    assert_eq!(ask(address, "GET", "/readyz?verbose").await.2, "ok\n");
    let text = r#"{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration", "metadata": {"name": "c"},
        "externalAdmissionHooks": [{"name": "h.x", "clientConfig": {"url": "http://127.0.0.1:1/p"}, "rules": []}]}"#;
    let file = SourceFile { name: "a.json".into(), bytes: text.into() };
    let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("sound");
    let hook = Arc::clone(&snapshot.hooks[0]);
    let channel = Channel::open(hook.endpoint.clone(), None, &[tokio::runtime::Handle::current()]);
    let since = SystemTime::UNIX_EPOCH;
    let refused = Unreachable::at(Step::Connect, "refused").into();
    let overdue = Overdue { since, within: Duration::from_secs(300), last_failure: Some(refused) };
    let live = LiveHook {
        target: CallTarget::new(Arc::clone(&hook), channel),
        metrics: metrics.hook(hook.hook_type, &hook.name),
        hook,
        rotation: Rotation::Probing { since, last_failure: None },
        replacing: None,
        overdue: Some(overdue),
    };
    let generation =
        Generation { published: since, hooks: vec![live], ..Generation::of(Arc::new(snapshot), &Metrics::new(1)) };
    current.publish(Arc::new(generation));
    let (status, _, body) = ask(address, "GET", "/readyz?verbose").await;
    let line = "[-] hook h.x: has passed no probe within 5m; it is not called, and what it would refuse passes: \
                cannot connect: refused (step: connect)";
    assert_eq!((status, body), (200, format!("ok, degraded\n{line}\n")));
    assert_eq!(ask(address, "GET", "/readyz").await.2, "ok\n", "whoever asks for less sees less");
    let page: Value = serde_json::from_str(&ask(address, "GET", "/configz").await.2).expect("JSON");
    let hook = &page["hooks"][0];
    assert_eq!((&hook["overdue"]["probeWithin"], &hook["protocol"]["path"]), (&json!("5m"), &json!("/p")));
    let reported = &page["replica"]["hooks"][0]["overdue"];
    assert_eq!(reported, "it is not called, and what it would refuse passes");
}

#[tokio::test]
async fn admin_refuses_other_paths_and_methods_in_words() {
    let address = admin(&Arc::new(ReplicaHealth::new(Arc::new(Current::new(Instant::now())))), &Arc::default()).await;
    let (status, _, body) = ask(address, "GET", "/secret").await;
    assert_eq!((status, body.as_str()), (404, "there are /livez, /readyz, /metrics and /configz\n"));
    let (status, head, body) = ask(address, "POST", "/configz").await;
    assert_eq!((status, body.as_str()), (405, "/configz can only be read: use GET\n"));
    assert!(head.contains("allow: GET, HEAD"), "{head}");
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let metrics = Arc::new(Metrics::default());
    metrics.record_refusal(RefusalReason::TooLarge);
    let address = admin(&Arc::new(ReplicaHealth::new(Arc::new(Current::new(Instant::now())))), &metrics).await;
    let (status, head, body) = ask(address, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(body.contains("gatepost_refused_total{reason=\"too_large\"} 1\n") && body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn configz_shows_active_and_rejected_configuration() {
    let current = Arc::new(Current::new(Instant::now()));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let address = admin(&health, &Arc::default()).await;
    let page = async || -> Value {
        let (status, head, body) = ask(address, "GET", "/configz").await;
        assert_eq!(status, 200);
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&body).expect("json")
    };
    let before = page().await;
    assert_eq!(before["freshness"], json!({ "ageSeconds": null, "stale": true, "lastFailure": null }));
    assert_eq!(before["generation"]["published"], Value::Null);
    current.publish(Arc::new(Generation {
        number: 7,
        digest: "abc".into(),
        published: SystemTime::UNIX_EPOCH,
        ..Generation::of(Arc::new(Snapshot::empty()), &Metrics::new(1))
    }));
    current.freshness().stamp_awake(Instant::now());
    let error = "etcd is gone; start it".to_owned();
    health.status.failed_read.set(Some(FailedRead { error, since: SystemTime::UNIX_EPOCH, count: 3 }));
    let problem = Problem {
        file: "a.yaml".into(),
        path: "x".into(),
        what: "is wrong".into(),
        why: "so it is not read".into(),
        fix: "mend it".into(),
    };
    health.status.rejected.set(Some(Rejection {
        problems: vec![problem],
        revision: gatepost_api::Revision::Store(2),
        since: SystemTime::UNIX_EPOCH,
        quarantined: Vec::new(),
    }));
    let page_now = page().await;
    assert_eq!(
        page_now["generation"],
        json!({ "number": 7, "digest": "abc", "revision": "1", "published": "1970-01-01T00:00:00Z" })
    );
    assert_eq!(page_now["freshness"]["stale"], false);
    let last = json!({ "error": "etcd is gone; start it", "since": "1970-01-01T00:00:00Z", "count": 3 });
    assert_eq!(page_now["freshness"]["lastFailure"], last);
    assert_eq!(
        page_now["rejected"],
        json!({
            "since": "1970-01-01T00:00:00Z",
            "revision": "2",
            "whole": true,
            "held": [],
            "problems": [{ "file": "a.yaml", "path": "x", "what": "is wrong", "why": "so it is not read", "fix": "mend it" }],
        })
    );
    health.status.rejected.set(None);
    assert_eq!(page().await["rejected"], Value::Null);
    let report: ReplicaReport = serde_json::from_value(page_now["replica"].clone()).expect("a report");
    assert_eq!((&*report.replica, report.generation, &*report.revision), ("a", 7, "1"));
    assert_eq!(report.rejected.map(|rejected| rejected.revision).as_deref(), Some("2"));
    assert_eq!(page_now["telling"], json!({ "place": null, "told": null, "failure": null }));
    let not_followed = json!({ "followed": false, "count": null, "ageSeconds": null, "stale": null });
    assert_eq!(page_now["namespaces"], not_followed);
}

#[tokio::test]
async fn configz_shows_number_and_age_of_namespaces() {
    let (namespaces, _questions) = Namespaces::new(Instant::now());
    let current = Arc::new(Current::new(Instant::now()));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let metrics = Arc::default();
    let pages = Admin { health, replica: replica(), metrics, namespaces: Some(Arc::clone(&namespaces)), tls: None };
    let address = serving(pages).await;
    let page = async || -> Value { serde_json::from_str(&ask(address, "GET", "/configz").await.2).expect("json") };
    let never_listed = json!({ "followed": true, "count": 0, "ageSeconds": null, "stale": true });
    assert_eq!(page().await["namespaces"], never_listed);
    namespaces.set("shop", Labels::default());
    namespaces.stamp(Instant::now());
    let known = page().await["namespaces"].take();
    assert_eq!((&known["count"], &known["stale"]), (&json!(1), &json!(false)));
    assert!(known["ageSeconds"].as_f64().expect("a number") < 60.0, "{known}");
}

#[tokio::test]
async fn admin_connections_kept_open_do_not_keep_out_others() {
    let current = Arc::new(Current::new(Instant::now()));
    let health = Arc::new(ReplicaHealth::new(Arc::clone(&current)));
    let address = admin(&health, &Arc::default()).await;
    let mut kept = Vec::new();
    for _ in 0..64 {
        kept.push(TcpStream::connect(address).await.expect("connects"));
    }
    let mut byte = [0];
    // Before they are closed for sending no head, which takes 5 s.
    let at_once = timeout(Duration::from_secs(4), async {
        assert_eq!(ask(address, "GET", "/livez").await.0, 200);
        // Closed, whichever way: it was sent nothing.
        assert!(!matches!(kept[0].read(&mut byte).await, Ok(1)), "the oldest gave way");
    });
    at_once.await.expect("nobody waits for them");
    assert!(kept[63].try_read(&mut byte).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}
