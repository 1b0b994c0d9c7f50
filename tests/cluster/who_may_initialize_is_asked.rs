//! The right to `initialize` a resource, and so to write the list of a new object, is asked of the apiserver where
//! there is one.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use gatepost::{
    admit::{Caller, Gate, Reasons, decide},
    kube::Access,
    model::{Phase, Rope, Verdict},
    watch::AccessReviews,
    wire::{
        inbound::view,
        pb::k8s::io::{
            api::{
                admission::v1::AdmissionRequest,
                authentication::v1::{ExtraValue, UserInfo},
            },
            apimachinery::pkg::runtime::RawExtension,
        },
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    gate::{caller, gate},
    reviews::{create_pod, message},
};

const CONFIGURATION: &str = "
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: test}
resourceInitializers:
- resource: pods
  mayInitialize: {users: [admin]}
  initializers: [{name: a.example.com, builtIn: {labels: {a: x}}}]
";

/// Access reviews that have arrived, by path.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An apiserver that answers like this, whatever it is asked.
async fn apiserver(code: u16, body: Value) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (body, heard) = (body.to_string(), Arc::clone(&heard));
            tokio::spawn(async move { serve(stream, code, &body, &heard).await });
        }
    });
    (address, asked)
}

async fn serve(stream: TcpStream, code: u16, answer: &str, heard: &Asked) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(first)) = lines.next_line().await {
        let mut length = 0;
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(("content-length", bytes)) = line.to_ascii_lowercase().split_once(": ") {
                length = bytes.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        lines.get_mut().read_exact(&mut body).await.unwrap();
        heard.lock().unwrap().push((first, serde_json::from_slice(&body).unwrap()));
        let length = answer.len();
        let head = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        write.write_all((head + answer).as_bytes()).await.unwrap();
    }
}

/// A gate that asks it.
async fn asking(address: SocketAddr) -> Gate {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let access = Access::Kubeconfig { path: Some(path), context: None };
    let reviews = AccessReviews::new(access).await.unwrap();
    let authorizer = Some(reviews.authorizer());
    tokio::spawn(async move {
        // The client reads it when it is asked first.
        let _folder = folder;
        reviews.run().await;
    });
    Gate { authorizer, ..Arc::into_inner(gate(CONFIGURATION, Reasons::First)).unwrap() }
}

/// A Pod with an empty list of initializers, by this user.
async fn create(gate: &Gate, user: &str) -> Verdict {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"gatepost.dev/initializers": ""}},
    });
    let request = AdmissionRequest {
        user_info: Some(UserInfo {
            username: Some(user.to_owned()),
            uid: Some("7".to_owned()),
            groups: vec!["dev".to_owned()],
            extra: BTreeMap::from([("scopes".to_owned(), ExtraValue { items: vec!["all".to_owned()] })]),
        }),
        object: Some(RawExtension { raw: Some(object.to_string().into()) }),
        ..create_pod("u", 0)
    };
    let review = view(Rope::new([message(request)])).unwrap();
    decide(gate, &review, &Caller { phase: Phase::Mutate, ..caller(Duration::from_secs(20)) }).await
}

#[tokio::test]
async fn whoever_the_apiserver_lets_initialize_writes_the_list() {
    for (allowed, code) in [(true, None), (false, Some(403))] {
        let (address, asked) = apiserver(201, json!({"status": {"allowed": allowed}})).await;
        let gate = asking(address).await;
        let verdict = create(&gate, "ann").await;
        assert_eq!((verdict.refusal.map(|refusal| refusal.code), verdict.patch), (code, None), "{allowed}");
        let (line, review) = asked.lock().unwrap().pop().unwrap();
        assert_eq!(line, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1");
        let of = json!({"verb": "initialize", "namespace": "shop", "group": "", "version": "*", "resource": "pods", "subresource": "", "name": "web"});
        let spec = json!({"user": "ann", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["all"]}, "resourceAttributes": of});
        assert_eq!((&review["kind"], &review["spec"]), (&"SubjectAccessReview".into(), &spec));
        // Whom the configuration names need not be asked about.
        assert_eq!(create(&gate, "admin").await.refusal, None);
        assert!(asked.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_apiserver_that_does_not_say_lets_nobody() {
    for (code, body) in [(403, json!({"kind": "Status", "message": "not for you"})), (201, json!({}))] {
        let (address, _) = apiserver(code, body).await;
        let refusal = create(&asking(address).await, "ann").await.refusal.unwrap();
        assert_eq!((refusal.code, &*refusal.reason), (500, "InternalError"));
        assert!(refusal.message.contains("cannot find out whether you may \"initialize\""), "{}", refusal.message);
    }
}
