//! An election by a lease of a scripted apiserver.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::{advance, pause, resume},
};

use super::*;
use crate::KubeAccess;

/// The one lease of an apiserver, and its version.
type Stored = Arc<Mutex<(Option<Value>, u64)>>;

/// An apiserver that has leases.
async fn apiserver() -> KubeClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let stored = Stored::default();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&stored)));
        }
    });
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    KubeClient::open(&KubeAccess::Kubeconfig { path: Some(path), context: None }).await.unwrap()
}

async fn serve(mut stream: TcpStream, stored: Stored) {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let (mut head, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            if read.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            match line.trim() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let mut sent = vec![0; length];
        read.read_exact(&mut sent).await.unwrap();
        let method = head[0].split(' ').next().unwrap();
        let (code, body) = answer(method, serde_json::from_slice(&sent).unwrap_or_default(), &stored);
        let body = body.to_string();
        let length = body.len();
        let answer = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        write.write_all(format!("{answer}{body}").as_bytes()).await.unwrap();
    }
}

fn answer(method: &str, sent: Value, stored: &Stored) -> (u16, Value) {
    let mut stored = stored.lock().unwrap();
    let refused = |code: u16| (code, json!({"kind": "Status", "code": code, "message": "no"}));
    let (lease, version) = &mut *stored;
    let written = match (method, lease.as_ref()) {
        ("GET", Some(lease)) => return (200, lease.clone()),
        ("GET" | "PATCH", None) => return refused(404),
        ("POST", None) => sent,
        ("PATCH", Some(lease)) if lease["metadata"]["resourceVersion"] == sent["metadata"]["resourceVersion"] => {
            json!({"metadata": {"name": "gatepost-initialize"}, "spec": sent["spec"]})
        }
        _ => return refused(409),
    };
    *version += 1;
    let mut written = written;
    written["metadata"]["resourceVersion"] = version.to_string().into();
    *lease = Some(written.clone());
    (200, written)
}

const DURATION: Duration = Duration::from_secs(15);
const RENEWAL: Duration = Duration::from_secs(5);

fn election(holder: &str) -> LeaderElection {
    LeaderElection::new("gatepost", "gatepost-initialize", holder.to_owned(), DURATION)
}

/// Time passes, and nothing else happens.
async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

#[tokio::test]
async fn another_replica_leads_once_the_lease_is_expired_or_released() {
    let client = apiserver().await;
    let [mut first, mut second, mut third] = ["a", "b", "c"].map(election);
    assert!(first.hold(&client).await.unwrap(), "there was no lease");
    for _ in 0..4 {
        pass(RENEWAL).await;
        assert!(first.hold(&client).await.unwrap());
        assert!(!second.hold(&client).await.unwrap() && !third.hold(&client).await.unwrap());
    }
    // It is killed. To those who have seen the lease last at that moment it is dead after a while.
    pass(DURATION - RENEWAL).await;
    assert!(!second.hold(&client).await.unwrap() && !third.hold(&client).await.unwrap());
    pass(RENEWAL).await;
    let (one, other) = tokio::join!(second.hold(&client), third.hold(&client));
    let (mut leads, mut waits) = match (one.unwrap(), other.unwrap()) {
        (true, false) => (second, third),
        (false, true) => (third, second),
        both => panic!("{both:?}"),
    };
    assert!(!first.hold(&client).await.unwrap(), "who comes back is one of the others");
    pass(RENEWAL).await;
    assert!(leads.hold(&client).await.unwrap() && !waits.hold(&client).await.unwrap());
    // A replica gives back its own lease alone, and another has it at once.
    first.leave(&client).await.unwrap();
    assert!(!waits.hold(&client).await.unwrap());
    leads.leave(&client).await.unwrap();
    assert!(waits.hold(&client).await.unwrap() && !leads.hold(&client).await.unwrap());
}
