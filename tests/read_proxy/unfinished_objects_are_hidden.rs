//! Objects that are not initialized are left out of LIST and WATCH by the apiserver itself, and are a 202 for GET.
#![allow(clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::world::{Content, World, ask, config_map, content, is_review, not_scripted, reply, review};

const HIDES: &str = "labelSelector=%21init.gatepost.dev%2Fpending";
const ALL: &str = "/api/v1/namespaces/shop/configmaps";

async fn lists(request: Request<Incoming>) -> Response<Content> {
    if is_review(&request) {
        return review(request).await;
    }
    reply(200, &json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "9"}, "items": []}))
}

#[tokio::test]
async fn a_label_selector_is_added_where_objects_are_listed() {
    let world = World::new(lists).await;
    for (sent, wanted) in [
        (ALL.to_owned(), format!("{ALL}?{HIDES}")),
        (format!("{ALL}?limit=5&continue=x"), format!("{ALL}?limit=5&continue=x&{HIDES}")),
        (
            format!("{ALL}?fieldSelector=metadata.name%3Da&watch=1&sendInitialEvents=true"),
            format!("{ALL}?fieldSelector=metadata.name%3Da&watch=1&sendInitialEvents=true&{HIDES}"),
        ),
        (
            "/api/v1/watch/configmaps?labelSelector=app%3Dweb".to_owned(),
            format!("/api/v1/watch/configmaps?{HIDES}%2Capp%3Dweb"),
        ),
        (format!("{ALL}?includeUninitialized=true"), format!("{ALL}?{HIDES}")),
        ("/apis/example.com/v1/widgets".to_owned(), format!("/apis/example.com/v1/widgets?{HIDES}")),
        // Not opted in.
        (
            "/api/v1/secrets?includeUninitialized=true".to_owned(),
            "/api/v1/secrets?includeUninitialized=true".to_owned(),
        ),
        ("/apis/example.com/v1/gadgets".to_owned(), "/apis/example.com/v1/gadgets".to_owned()),
    ] {
        assert_eq!(world.get("ann", &sent).await.0, 200);
        assert_eq!(world.asked().pop().unwrap().target(), wanted, "{sent}");
    }
    let request = ask("DELETE", &format!("{ALL}?labelSelector=a"), "ann").body(Full::default()).unwrap();
    world.call(request).await;
    assert_eq!(world.asked().pop().unwrap().target(), format!("{ALL}?labelSelector=a"), "deletions find all objects");
}

#[tokio::test]
async fn controllers_that_must_see_all_do_and_others_by_permission() {
    let world = World::with(lists, &["h2"], |settings| settings.see_all.push("everything".to_owned())).await;
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let include = format!("{ALL}?includeUninitialized=true&limit=1");
    for (token, sent, wanted) in [
        (collector, ALL, ALL.to_owned()),
        ("everything", ALL, ALL.to_owned()),
        ("init", &*include, format!("{ALL}?limit=1")),
        // A user who may see them does not unless it asks.
        ("init", ALL, format!("{ALL}?{HIDES}")),
        ("ann", &*include, format!("{ALL}?limit=1&{HIDES}")),
        ("", &*include, format!("{ALL}?limit=1&{HIDES}")),
    ] {
        assert_eq!(world.get(token, sent).await.0, 200);
        assert_eq!(world.asked().pop().unwrap().target(), wanted, "{token} {sent}");
    }
    // Impersonation: the apiserver says whether it is allowed.
    let request = ask("GET", ALL, "ann").header("impersonate-user", collector).body(Full::default()).unwrap();
    world.call(request).await;
    assert_eq!(world.asked().pop().unwrap().target(), ALL);
    // Answers are used again for a while.
    let reviewed = world.own().len();
    world.get("init", &include).await;
    assert_eq!(world.own().len(), reviewed);
}

#[tokio::test]
async fn unanswered_user_lookup_asks_the_client_to_retry() {
    // A watch that is filtered by mistake stays so for as long as it lasts.
    for failing in ["tokenreviews", "subjectaccessreviews"] {
        let world = World::new(move |request: Request<Incoming>| async move {
            match request.uri().path().ends_with(failing) {
                true => reply(429, &json!({"kind": "Status", "code": 429})),
                false => lists(request).await,
            }
        })
        .await;
        for token in ["init", "system:serviceaccount:kube-system:generic-garbage-collector"] {
            let target = format!("{ALL}?includeUninitialized=true");
            let (status, headers, body) = world.call(ask("GET", &target, token).body(Full::default()).unwrap()).await;
            // A user who always sees all needs no permission.
            let needs_none = failing != "tokenreviews" && token != "init";
            assert_eq!(status, if needs_none { 200 } else { 503 }, "{failing} {token}: {body:?}");
            assert_eq!(headers.contains_key("retry-after"), !needs_none);
        }
        assert!(world.asked().iter().all(|asked| asked.target() == ALL), "nothing was filtered by mistake");
    }
}

#[tokio::test]
async fn invalid_token_is_refused_as_by_an_apiserver() {
    let world = World::new(async |request: Request<Incoming>| match is_review(&request) {
        true => reply(201, &json!({"status": {"error": "[invalid bearer token, the webhook timed out]"}})),
        false => lists(request).await,
    })
    .await;
    for _ in 0..2 {
        let (code, status) = world.get("somebody", ALL).await;
        assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    }
    assert_eq!((world.asked().len(), world.own().len()), (0, 2), "it may be somebody's the next time");
}

/// The sender of a request is known before the apiserver is asked anything else in the proxy's name.
#[tokio::test]
async fn invented_users_cause_few_lookups() {
    let world = World::new(async |request: Request<Incoming>| match request.uri().path().ends_with("tokenreviews") {
        true => reply(201, &json!({"status": {"authenticated": false}})),
        false => lists(request).await,
    })
    .await;
    let include = format!("{ALL}?includeUninitialized=true");
    let made_up = |token: &str| ask("GET", &include, token).header("impersonate-user", "init");
    assert_eq!(world.call(made_up("x").body(Full::default()).unwrap()).await.0, 401);
    assert_eq!(world.call(made_up("").body(Full::default()).unwrap()).await.0, 200);
    assert_eq!(world.asked().pop().unwrap().target(), format!("{ALL}?{HIDES}"), "without credentials");
    assert_eq!(world.own().len(), 1, "only the token");

    let world = World::new(lists).await;
    let large = made_up("ann").header("impersonate-extra-a", "b".repeat(40 << 10)).body(Full::default()).unwrap();
    assert_eq!(world.call(large).await.0, 431);
    assert_eq!(world.call(made_up(&"t".repeat(40 << 10)).body(Full::default()).unwrap()).await.0, 431);
    assert_eq!(world.own().len(), 1, "whose the small token is");
    assert_eq!(world.call(made_up("ann").body(Full::default()).unwrap()).await.0, 200);
    assert_eq!(world.asked().pop().unwrap().target(), ALL, "the apiserver says whether she may");
}

/// A field that `Connection` names does not reach the apiserver, and so must not decide here either.
#[tokio::test]
async fn only_forwarded_headers_decide() {
    let world = World::new(lists).await;
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let include = format!("{ALL}?includeUninitialized=true");
    for (connection, name, value, target) in [
        ("Impersonate-User", "impersonate-user", collector, ALL),
        ("x, impersonate-user", "impersonate-user", "init", &*include),
        ("Impersonate-Group", "impersonate-group", "a", ALL),
        ("authorization", "x", "y", &*include),
    ] {
        let request = Request::get(target).header("host", "proxy").header("authorization", "Bearer init");
        let request = request.header("connection", connection).header(name, value).body(Full::default()).unwrap();
        let answer = world.http1(None).await.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 400, "{connection}");
    }
    assert_eq!(world.asked().len(), 0);
    // Another field is only gone.
    let request =
        Request::patch(format!("{ALL}/a")).header("host", "proxy").header("connection", "content-type, close");
    let request = request.header("content-type", "application/apply-patch+yaml").body(Full::default()).unwrap();
    assert_eq!(world.http1(None).await.send_request(request).await.unwrap().status(), 200);
    assert_eq!(world.asked()[0].header("content-type"), [""; 0]);
}

#[tokio::test]
async fn a_url_without_room_for_the_selector_is_refused() {
    let world = World::new(lists).await;
    let long = |length: usize| format!("{ALL}?x={}", "a".repeat(length - ALL.len() - 3));
    assert_eq!(world.get("ann", &long(60_000)).await.0, 200);
    assert!(world.asked().pop().unwrap().target().ends_with(HIDES));
    let (code, status) = world.get("ann", &long(65_500)).await;
    assert_eq!((code, &status["status"]), (414, &json!("Failure")));
    assert_eq!(world.asked().len(), 1, "it was not sent");
}

/// Of a query with more than 10,000 parameters Go's parser, and so an apiserver, takes none.
#[tokio::test]
async fn a_query_of_which_an_apiserver_might_read_nothing_is_refused() {
    let world = World::new(lists).await;
    let many = |at: &str, count: usize| format!("{at}?{}", vec!["x"; count].join("&"));
    assert_eq!(world.get("ann", &many(ALL, 1_000)).await.0, 200);
    assert!(world.asked().pop().unwrap().target().ends_with(HIDES));
    for at in [ALL.to_owned(), format!("{ALL}/a"), "/api/v1/watch/configmaps".to_owned()] {
        assert_eq!(world.get("ann", &many(&at, 1_001)).await.0, 400, "{at}");
    }
    assert_eq!(world.asked().len(), 1, "none was sent");
}

/// kube-apiserver's handler of custom resources goes by the parts of the path alone: not by the method, and not by what
/// follows the third part.
#[tokio::test]
async fn a_path_that_may_be_read_in_another_way_does_not_pass() {
    let world = World::new(lists).await;
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";
    for (method, target) in [
        ("GET", format!("{WIDGETS}/w//%FF")),
        ("GET", format!("{WIDGETS}///%FF?watch=1")),
        ("GET", format!("{WIDGETS}//w")),
        ("GET", "/apis/example.com/v1/namespaces//widgets/w".to_owned()),
        ("PUT", format!("{WIDGETS}/%FF")),
    ] {
        let (status, _, body) = world.call(ask(method, &target, "ann").body(Full::default()).unwrap()).await;
        assert_eq!(status, 400, "{method} {target}: {body:?}");
    }
    assert_eq!(world.asked().len(), 0);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let target = "/apis/example.com/v1/watch/namespaces/shop/widgets";
        let request = ask(method, target, "ann").body(Full::default()).unwrap();
        assert_eq!(world.call(request).await.0, 200);
        assert_eq!(world.asked().pop().unwrap().target(), format!("{target}?{HIDES}"), "{method}");
    }
}

/// Objects by name; those that begin with `new` are not initialized. As a table with and without their metadata, and in
/// protobuf.
async fn objects(request: Request<Incoming>) -> Response<Content> {
    if is_review(&request) {
        return review(request).await;
    }
    let uri: &Uri = request.uri();
    let name = uri.path().split('/').nth(6).unwrap_or_default();
    if name == "none" {
        return reply(404, &json!({"kind": "Status", "reason": "NotFound", "code": 404}));
    }
    let object = config_map(name, 7, name.starts_with("new").then_some(&["x"]));
    let accept = request.headers()["accept"].to_str().unwrap();
    match accept {
        "application/vnd.kubernetes.protobuf" => {
            let answer = Response::builder().header("content-type", accept);
            answer.body(content(protobuf(name.starts_with("new")))).unwrap()
        }
        _ if accept.contains("as=Table") => {
            let object = if uri.query() == Some("includeObject=None") { Value::Null } else { object };
            let rows = json!([{"cells": [name], "object": object}]);
            reply(200, &json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {}, "rows": rows}))
        }
        "application/yaml" => {
            let answer = Response::builder().header("content-type", accept);
            answer.body(content("kind: ConfigMap")).unwrap()
        }
        _ if accept.starts_with("application/json") => reply(200, &object),
        _ => not_scripted(&request),
    }
}

/// A ConfigMap with uid `u` in Kubernetes' envelope.
fn protobuf(pending: bool) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[(number << 3) | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
    }
    let label = [field(1, b"init.gatepost.dev/pending"), field(2, b"1f")].concat();
    let label = if pending { field(11, &label) } else { Vec::new() };
    let metadata = [field(1, b"new"), field(5, b"u"), field(6, b"7"), label].concat();
    let types = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, &field(1, &metadata))].concat()
}

#[tokio::test]
async fn a_hidden_object_is_a_202_in_every_form() {
    let world = World::new(objects).await;
    for (accept, query) in [
        ("application/json", ""),
        ("application/vnd.kubernetes.protobuf", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=None"),
        ("application/yaml", ""),
    ] {
        let get = async |name: &str, agent: &str| {
            let request = ask("GET", &format!("{ALL}/{name}{query}"), "ann").header("accept", accept);
            let request = request.header("user-agent", agent).header("accept-encoding", "gzip");
            world.call(request.body(Full::default()).unwrap()).await
        };
        let (status, headers, body) = get("new", "kubectl/v1.36").await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (status.as_u16(), &headers["content-type"]),
            (202, &"application/json".parse().unwrap()),
            "{accept}"
        );
        // client-go makes an error of a Status below 300 only where it says so.
        let said = [&answer["kind"], &answer["apiVersion"], &answer["status"], &answer["reason"], &answer["code"]];
        assert_eq!(said, [&json!("Status"), &json!("v1"), &json!("Failure"), &json!("Initializing"), &json!(202)]);
        assert_eq!(answer["metadata"]["resourceVersion"], "7");
        assert!(answer["details"]["uid"].is_string(), "{answer}");
        let (status, _, body) = get("new", "kubelet/v1.36").await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status.as_u16(), &answer["reason"]), (404, &json!("NotFound")), "{accept}");
        let (status, headers, body) = get("old", "kubectl/v1.36").await;
        assert_eq!(status, 200);
        assert!(!body.is_empty() && headers["content-type"].to_str().unwrap().starts_with(&accept[..16]));
        assert_eq!(get("none", "kubectl/v1.36").await.0, 404);
    }
    let asked = world.asked();
    assert!(
        asked.iter().all(|asked| asked.header("accept-encoding").is_empty()),
        "what is looked at is not compressed"
    );
    // Only where the answer does not show the object: of a table without objects, and of YAML.
    let own: Vec<_> = world.own().into_iter().filter(|asked| asked.method == "GET").collect();
    assert!(
        own.iter()
            .all(|asked| asked.header("accept") == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"])
    );
    assert_eq!(own.iter().filter(|asked| asked.target().ends_with("/new")).count(), 4);
}

/// A body of the past, from a cache, beside metadata of the present.
#[tokio::test]
async fn views_without_labels_are_read_after_a_finished_check() {
    for is_replaced in [false, true] {
        let reads = std::sync::atomic::AtomicUsize::new(0);
        let world = World::new(move |request: Request<Incoming>| {
            let of_metadata = request.headers()["accept"].to_str().unwrap().contains("PartialObjectMetadata");
            let past = request.uri().query() == Some("resourceVersion=0");
            let read = reads.fetch_add(usize::from(of_metadata), std::sync::atomic::Ordering::Relaxed);
            let mut now = config_map("a", 9, None);
            if is_replaced && read > 0 {
                now["metadata"]["uid"] = json!("another");
            }
            let yaml = Response::builder().header("content-type", "application/yaml");
            let text = if past { "unfinished" } else { "finished" };
            let answer = if of_metadata { reply(200, &now) } else { yaml.body(content(text)).unwrap() };
            async { answer }
        })
        .await;
        let request = ask("GET", &format!("{ALL}/a?resourceVersion=0"), "ann").header("accept", "application/yaml");
        let (status, _, body) = world.call(request.body(Full::default()).unwrap()).await;
        match is_replaced {
            false => assert_eq!((status.as_u16(), &body[..]), (200, &b"finished"[..])),
            true => assert_eq!(status, 503, "it may be another, unfinished one: {body:?}"),
        }
    }
}

#[tokio::test]
async fn metadata_that_cannot_be_read_shows_nothing() {
    let world =
        World::new(async |request: Request<Incoming>| match request.headers()["accept"] == "application/yaml" {
            true => Response::builder().header("content-type", "application/yaml").body(content("unfinished")).unwrap(),
            false => reply(200, &json!({"kind": "PartialObjectMetadata"})),
        })
        .await;
    let request = ask("GET", &format!("{ALL}/a"), "ann").header("accept", "application/yaml");
    assert_eq!(world.call(request.body(Full::default()).unwrap()).await.0, 500);
}

#[tokio::test]
async fn hidden_object_is_shown_to_permitted_users() {
    let world = World::new(objects).await;
    let get = async |token: &str, target: &str| {
        let request = ask("GET", target, token).header("accept", "application/json").body(Full::default()).unwrap();
        world.call(request).await.0.as_u16()
    };
    let new = format!("{ALL}/new");
    let include = format!("{new}?includeUninitialized=true");
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    assert_eq!(get(collector, &new).await, 200);
    assert_eq!(get("init", &include).await, 200);
    assert_eq!(world.asked().pop().unwrap().target(), new);
    assert_eq!(get("init", &new).await, 202);
    assert_eq!(get("ann", &include).await, 202);
    assert_eq!(get("ann", &format!("{new}/status")).await, 202, "which shows all of it");
    assert_eq!(get("ann", &format!("{new}/scale")).await, 202, "which shows a part without its labels");
    assert_eq!(get("ann", &format!("{ALL}/old/scale")).await, 200);
    assert_eq!(get("ann", "/api/v1/namespaces/shop/secrets/new").await, 200, "not opted in");
}

/// Text of a finished object; what an apiserver says of its fields is nested as deep as they are.
fn deep() -> String {
    let deep = format!("{}1{}", "{\"f:a\":".repeat(150), "}".repeat(150));
    let metadata = r#""name": "a", "namespace": "shop", "uid": "uid-a", "resourceVersion": "7""#;
    let managed = format!(r#""managedFields": [{{"fieldsV1": {deep}}}]"#);
    format!(r#"{{"kind": "Widget", "metadata": {{{metadata}, {managed}}}, "spec": {deep}}}"#)
}

#[tokio::test]
async fn a_deeply_nested_object_is_shown_in_every_form() {
    let world = World::new(async |request: Request<Incoming>| {
        let accept = request.headers()["accept"].to_str().unwrap();
        let form = accept.split(';').next().unwrap().to_owned();
        let text = if form == "application/json" { deep() } else { "spec: deep".to_owned() };
        Response::builder().header("content-type", form).body(content(text)).unwrap()
    })
    .await;
    for accept in ["application/json", "application/yaml", "application/cbor"] {
        let target = "/apis/example.com/v1/namespaces/shop/widgets/a";
        let request = ask("GET", target, "ann").header("accept", accept).body(Full::default()).unwrap();
        let (status, headers, body) = world.call(request).await;
        assert_eq!((status.as_u16(), headers["content-type"].to_str().unwrap()), (200, accept), "{body:?}");
    }
}

/// Of another group than that whose `Table` shows objects as rows.
#[tokio::test]
async fn object_of_kind_table_is_hidden_regardless_of_rows() {
    let world = World::new(async |request: Request<Incoming>| {
        if is_review(&request) {
            return review(request).await;
        }
        let pending = request.uri().path().ends_with("/new").then_some(&["x"][..]);
        let mut table = config_map("a", 7, pending);
        table["apiVersion"] = json!("example.com/v1");
        table["kind"] = json!("Table");
        table["rows"] = json!([{"object": config_map("b", 7, None)}]);
        reply(if request.method() == "POST" { 201 } else { 200 }, &table)
    })
    .await;
    for (name, code) in [("new", 202), ("old", 200)] {
        let target = format!("/apis/example.com/v1/namespaces/shop/widgets/{name}");
        assert_eq!(world.get("ann", &target).await.0, code);
    }
    let all = "/apis/example.com/v1/namespaces/shop/widgets";
    assert_eq!(world.post(all, &json!({"kind": "Table"})).await.0, 201, "it is stored");
}
