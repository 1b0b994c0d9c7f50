//! The answer to a CREATE is held while the object is not initialized, and tells how that has ended.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use crate::world::{
    Content, LONG, PENDING, STATE, World, ask, chunks, config_map, content, json_content, not_scripted, reply,
};

const ALL: &str = "/api/v1/namespaces/shop/configmaps";
const WARNING: &str = "299 - \"init pending 1f2e\"";

/// An apiserver that creates `a`, waiting for `x` and `y`, and tells of it as the test says.
#[derive(Clone, Default)]
struct Apiserver {
    watches: Arc<Mutex<Vec<mpsc::UnboundedSender<Bytes>>>>,
    /// The object as it is now; `None` where there is none.
    object: Arc<Mutex<Option<Value>>>,
    opened: Arc<tokio::sync::Notify>,
}

impl Apiserver {
    fn answer(&self, request: &Request<Incoming>) -> Response<Content> {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=1"));
        match *request.method() {
            Method::GET if watches => {
                let (sender, receiver) = mpsc::unbounded_channel();
                self.watches.lock().unwrap().push(sender);
                self.opened.notify_one();
                Response::new(chunks(receiver))
            }
            Method::GET if request.uri().path() == format!("{ALL}/a") => match &*self.object.lock().unwrap() {
                Some(object) => reply(200, object),
                None => reply(404, &json!({"kind": "Status", "code": 404})),
            },
            Method::POST | Method::PUT | Method::PATCH => {
                let created = config_map("a", 5, Some(&["x", "y"]));
                *self.object.lock().unwrap() = Some(created.clone());
                let answer = Response::builder().status(201).header("content-type", "application/json");
                let answer = answer.header("warning", "299 - \"mind the gap\"").header("warning", WARNING);
                answer.body(json_content(&created)).unwrap()
            }
            _ => not_scripted(request),
        }
    }

    async fn world(&self, max_holds: usize, hold_timeout: Duration) -> World {
        let this = self.clone();
        let script = move |request: Request<Incoming>| {
            let answer = this.answer(&request);
            async { answer }
        };
        World::with(script, &["h2", "http/1.1"], |settings| {
            settings.max_holds = max_holds;
            settings.hold_timeout = hold_timeout;
        })
        .await
    }

    /// Waits for a watch, which then tells this.
    async fn tells(&self, kind: &str, object: Option<Value>, metadata: &Value) {
        let sender = self.watch().await;
        *self.object.lock().unwrap() = object;
        let event = json!({"type": kind, "object": metadata});
        sender.send(format!("{event}\n").into()).expect("it is watched");
        self.watches.lock().unwrap().push(sender);
        self.opened.notify_one();
    }

    async fn watch(&self) -> mpsc::UnboundedSender<Bytes> {
        timeout(LONG, self.opened.notified()).await.expect("a watch");
        self.watches.lock().unwrap().pop().expect("a watch")
    }
}

fn new() -> Value {
    json!({"kind": "ConfigMap", "metadata": {"generateName": "a-"}})
}

/// The object as it is once it is initialized.
fn finished() -> Value {
    let mut object = config_map("a", 9, None);
    object["data"]["filled"] = json!("in");
    object
}

#[tokio::test]
async fn the_creator_gets_the_finished_object() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, LONG).await;
    for (method, target, form) in [
        ("POST", ALL.to_owned(), "application/json"),
        ("PUT", format!("{ALL}/a"), "application/json"),
        ("PATCH", format!("{ALL}/a?fieldManager=m"), "application/apply-patch+yaml"),
    ] {
        let request =
            ask(method, &target, "ann").header("content-type", form).header("accept", "application/json;q=0.9");
        let request = request.body(Full::from(new().to_string())).unwrap();
        let telling = async {
            apiserver.tells("MODIFIED", None, &config_map("a", 6, Some(&["y"]))).await;
            // It is not there to be read before the label is gone.
            apiserver.tells("MODIFIED", Some(finished()), &config_map("a", 9, None)).await;
        };
        let ((status, headers, body), ()) = tokio::join!(world.call(request), telling);
        apiserver.watch().await;
        assert_eq!(status, 201, "{body:?}");
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), finished());
        let warnings: Vec<_> = headers.get_all("warning").iter().collect();
        assert_eq!(warnings, ["299 - \"mind the gap\""], "only what is no longer true is removed");
    }
    let own = world.own();
    let watch = own.iter().find(|asked| asked.target().contains("watch=1")).unwrap();
    assert!(watch.target().contains("fieldSelector=metadata.name%3Da&resourceVersion=5"), "{}", watch.target());
    let read = own.iter().find(|asked| asked.target() == format!("{ALL}/a")).unwrap();
    assert_eq!(read.header("accept"), ["application/json;q=0.9"], "as the creator wants it");
}

#[tokio::test]
async fn a_failure_reaches_the_creator_as_it_was_written() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, LONG).await;
    let result = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "x says no"});
    let mut failed = config_map("a", 6, Some(&["x", "y"]));
    let state = json!({"state": "Failed", "pending": ["x", "y"], "result": result});
    failed["metadata"]["annotations"][STATE] = state.to_string().into();
    let telling = async {
        apiserver.tells("MODIFIED", Some(failed.clone()), &failed).await;
        apiserver.tells("DELETED", None, &failed).await;
    };
    let object = new();
    let ((code, _, status), ()) = tokio::join!(world.post(ALL, &object), telling);
    let said = [&status["message"], &status["reason"], &status["kind"], &status["status"]];
    assert_eq!((code, said), (403, [&json!("x says no"), &json!("Forbidden"), &json!("Status"), &json!("Failure")]));
}

#[tokio::test]
async fn an_object_that_is_deleted_meanwhile_is_an_error() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, LONG).await;
    let object = new();
    let deleted = config_map("a", 6, Some(&["x"]));
    let ((code, _, status), ()) = tokio::join!(world.post(ALL, &object), apiserver.tells("DELETED", None, &deleted));
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert!(status["message"].as_str().unwrap().contains("was deleted before it was initialized"), "{status}");
}

#[tokio::test]
async fn time_runs_out_with_all_that_it_takes_to_go_on() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, Duration::from_millis(200)).await;
    let (code, headers, status) = world.post(ALL, &new()).await;
    assert_eq!((code, &status["reason"], &status["status"]), (504, &json!("Timeout"), &json!("Failure")));
    let cause = &status["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("InitializationPending"), &json!("x")));
    assert_eq!((&status["details"]["uid"], &status["metadata"]["resourceVersion"]), (&json!("uid-a"), &json!("5")));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(!headers.contains_key("retry-after"), "client-go would create the object again");
    // The client's own time counts, too.
    let world = Apiserver::default().world(4, LONG).await;
    assert_eq!(world.post(&format!("{ALL}?timeout=200ms"), &new()).await.0, 504);
}

#[tokio::test]
async fn a_watch_that_breaks_is_begun_again() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, LONG).await;
    let telling = async {
        drop(apiserver.watch().await);
        // Meanwhile another watch has begun, from what was read anew.
        apiserver.tells("MODIFIED", Some(finished()), &config_map("a", 9, None)).await;
    };
    let object = new();
    let ((code, ..), ()) = tokio::join!(world.post(ALL, &object), telling);
    assert_eq!(code, 201);
}

#[tokio::test]
async fn dry_runs_and_finished_objects_are_not_held() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(4, LONG).await;
    assert_eq!(world.post(&format!("{ALL}?dryRun=All"), &new()).await.0, 201, "a dry run");
    assert_eq!(world.post("/api/v1/namespaces/shop/secrets", &new()).await.0, 201, "not opted in");
    assert_eq!(world.own().len(), 0);

    let world = World::new(async |_: Request<Incoming>| {
        let mut finished = reply(201, &config_map("a", 5, None));
        finished.headers_mut().insert("warning", WARNING.parse().unwrap());
        finished
    })
    .await;
    let (code, headers, _) = world.post(ALL, &new()).await;
    assert_eq!((code, headers.get("warning")), (201, None), "it has no label");
}

/// A webhook has marked it, and it was not stored.
#[tokio::test]
async fn the_warning_is_dropped_from_an_answer_that_is_no_success() {
    let world = World::new(async |request: Request<Incoming>| {
        let code = request.uri().query().and_then(|query| query.strip_prefix("fieldManager=")).unwrap();
        let mut refused = reply(code.parse().unwrap(), &json!({"kind": "Status"}));
        refused.headers_mut().append("warning", "299 - \"mind the gap\"".parse().unwrap());
        refused.headers_mut().append("warning", WARNING.parse().unwrap());
        refused
    })
    .await;
    for resource in ["configmaps", "secrets"] {
        for code in [409, 422, 500, 504] {
            let at = format!("/api/v1/namespaces/shop/{resource}?fieldManager={code}");
            let (status, headers, _) = world.post(&at, &new()).await;
            let warnings: Vec<_> = headers.get_all("warning").iter().collect();
            assert_eq!((status, &warnings[..]), (code, &[&HeaderValue::from_static("299 - \"mind the gap\"")][..]));
        }
    }
}

/// An apiserver says of its fields as much, as deep.
#[tokio::test]
async fn a_hold_of_a_deeply_nested_object_ends_with_it() {
    let deep = |mut object: Value| {
        object["metadata"]["managedFields"] = (0..150).fold(json!(1), |deep, _| json!({"f:a": deep}));
        object
    };
    for is_watched in [true, false] {
        let world = World::new(move |request: Request<Incoming>| {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=1"));
            let answer = match *request.method() {
                Method::POST => reply(201, &deep(config_map("a", 5, Some(&["x"])))),
                _ if watches && !is_watched => reply(500, &json!({"kind": "Status"})),
                _ if watches => {
                    let event = json!({"type": "MODIFIED", "object": deep(config_map("a", 9, None))});
                    Response::new(content(format!("{event}\n")))
                }
                _ => reply(200, &deep(finished())),
            };
            async { answer }
        })
        .await;
        let request = ask("POST", ALL, "ann").header("accept", "application/json");
        let (status, _, body) = world.call(request.body(Full::from(new().to_string())).unwrap()).await;
        assert_eq!(status, 201, "{body:?}");
    }
}

/// An apiserver leaves out warnings where there are many.
#[tokio::test]
async fn labelled_object_is_held_in_every_encoding() {
    let world = World::new(async |request: Request<Incoming>| {
        if request.uri().query().is_some_and(|query| query.contains("watch=1")) {
            let event = json!({"type": "MODIFIED", "object": config_map("a", 9, None)});
            return Response::new(content(format!("{event}\n")));
        }
        let accept = request.headers().get("accept").map(|accept| accept.to_str().unwrap().to_owned());
        match (request.method(), accept.as_deref()) {
            (&Method::POST, None | Some("application/json")) => reply(201, &config_map("a", 5, Some(&["x"]))),
            (&Method::PUT, Some("application/json")) if request.uri().path().ends_with("/b") => {
                reply(200, &config_map("b", 5, None))
            }
            (&Method::PUT, Some("application/json")) => reply(200, &config_map("a", 5, None)),
            (&Method::GET, None | Some("application/json")) => reply(200, &finished()),
            (&Method::GET, Some("application/yaml")) => {
                Response::builder().header("content-type", "application/yaml").body(content("filled: in")).unwrap()
            }
            // Look-up of the object that the answer in YAML shows.
            (&Method::GET, Some(accept)) if accept.contains("as=PartialObjectMetadata") => reply(200, &finished()),
            _ => not_scripted(&request),
        }
    })
    .await;
    let (code, _, object) = world.post(ALL, &new()).await;
    assert_eq!((code, object), (201, finished()));
    let other = ask("PUT", &format!("{ALL}/b"), "ann").header("accept", "application/yaml");
    let (status, ..) = world.call(other.body(Full::from(new().to_string())).unwrap()).await;
    assert_eq!(status.as_u16(), 500, "an object of that name has another uid now");
    for (method, target, wanted) in [("POST", ALL.to_owned(), 201), ("PUT", format!("{ALL}/a"), 200)] {
        let request = ask(method, &target, "ann").header("accept", "application/yaml");
        let (status, headers, body) = world.call(request.body(Full::from(new().to_string())).unwrap()).await;
        assert_eq!((status.as_u16(), &body[..]), (wanted, &b"filled: in"[..]));
        assert_eq!(headers["content-type"], "application/yaml");
    }
}

#[tokio::test]
async fn an_answer_without_an_object_is_an_error() {
    let world = World::new(async |_: Request<Incoming>| reply(201, &json!({"kind": "ConfigMap"}))).await;
    let (code, headers, status) = world.post(ALL, &new()).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")));
    assert!(!headers.contains_key("retry-after"), "it was created");
}

#[tokio::test]
async fn too_many_holds_are_refused_before_anything_is_stored() {
    let apiserver = Apiserver::default();
    let world = apiserver.world(1, LONG).await;
    let (mut one, mut two) = (world.http2(None).await, world.http2(None).await);
    let request = || {
        let request = ask("POST", ALL, "ann").header("content-type", "application/json");
        request.body(Full::from(new().to_string())).unwrap()
    };
    let held = tokio::spawn(async move { one.send_request(request()).await });
    let watch = apiserver.watch().await;
    let refused = two.send_request(request()).await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(world.asked().len(), 1, "it was not sent");
    // The creator leaves: the proxy stops watching, and there is room again.
    held.abort();
    timeout(LONG, watch.closed()).await.expect("the watch ends");
    let again = timeout(LONG, async {
        loop {
            let sending = world.http2(None).await.send_request(request());
            let sending = tokio::spawn(sending);
            // Either it is held, which a watch shows, or it was refused.
            tokio::select! {
                watch = apiserver.watch() => break watch,
                answer = sending => assert_eq!(answer.unwrap().unwrap().status(), 429),
            }
        }
    });
    again.await.expect("there is room");
    assert!(world.own().iter().all(|asked| !asked.target().contains(PENDING)));
}
