//! Hooks asked over HTTP: requests, answers, and the reuse of connections.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::front::until;
use crate::support::http_hook::{H2, HTTP1, HttpHook, HttpScript};
use bytes::Bytes;
use gatepost::hooks::{
    Call, Channel, FailedCall, HookRequest, HttpReply, HttpRequest, ProcessingEvidence, Reply, Responses, Reuse,
};
use gatepost_api::{
    CallFailure, Endpoint, HttpForm, ReviewVersion, Rope, Step, TraceContext, Transport,
    hook::{Address, Authorization},
};
use http::Version;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    time::timeout,
};

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(20);
const JSON: HttpForm = HttpForm::Json(ReviewVersion::V1);
const QUESTION: &[u8] = br#"{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1"}}"#;

fn channel(hook: &HttpHook) -> Arc<Channel> {
    Channel::open(hook.endpoint(), hook.client_config(), &[Handle::current()])
}

fn question() -> Rope {
    Rope::new([Bytes::from_static(QUESTION)])
}

async fn post(channel: &Channel) -> Result<HttpReply, CallFailure> {
    channel.post_once("/validate", JSON, question(), LONG).await
}

/// Asks so many at once.
fn ask(channel: &Channel, responses: &Arc<Responses>, calls: u32, body: &Rope) {
    for tag in 0..calls {
        channel.submit(0, call(responses, tag, body));
    }
}

fn call(responses: &Arc<Responses>, tag: u32, body: &Rope) -> Call {
    let request = HookRequest::Http(HttpRequest { path: "/validate".into(), form: JSON, timeout: LONG });
    Call {
        request,
        body: body.clone(),
        deadline: Instant::now() + LONG,
        responses: responses.clone(),
        tag,
        reuse: Reuse::Allowed,
        resends: 0,
        forwarded: gatepost_api::Hops::FIRST.into(),
    }
}

async fn answers(responses: &Responses, calls: usize) {
    let mut arrived = 0;
    while arrived < calls {
        for (tag, result) in timeout(LONG, responses.take()).await.expect("answered") {
            assert!(matches!(&result, Ok(Reply::Http(HttpReply { status: 200, .. }))), "{tag}: {result:?}");
            arrived += 1;
        }
    }
}

/// A hook for each way there is.
async fn every_face(folder: &tempfile::TempDir, script: HttpScript) -> Vec<(&'static str, HttpHook)> {
    let socket = folder.path().join("hook.sock").display().to_string();
    vec![
        ("plain", HttpHook::plain(script.clone()).await),
        ("unix", HttpHook::unix(&socket, script.clone())),
        ("no alpn", HttpHook::tls(script.clone(), &[]).await),
        ("http/1.1", HttpHook::tls(script.clone(), &[HTTP1]).await),
        ("both", HttpHook::tls(script.clone(), &[H2, HTTP1]).await),
        ("h2", HttpHook::tls(script, &[H2]).await),
    ]
}

#[tokio::test]
async fn a_post_has_the_headers_of_kube_apiserver() {
    let folder = tempfile::tempdir().expect("a folder");
    for (face, hook) in every_face(&folder, HttpScript::Allow).await {
        let channel = channel(&hook);
        assert_eq!(channel.probe(None, LONG).await, Ok(()), "{face}");
        until("it is agreed on by both sides", || hook.connections() == 1).await;
        assert!(hook.seen().is_empty(), "{face}: a probe connects and asks nothing");
        let ten = Duration::from_secs(10);
        let proto = HttpForm::Protobuf(ReviewVersion::V1);
        let reply = channel.post_once("/validate", JSON, question(), ten).await.expect("a reply");
        assert_eq!((reply.status, reply.retry_after, reply.readable_type), (200, None, true), "{face}");
        let body = reply.body().expect("as it came");
        assert!(body.starts_with(br#"{"apiVersion":"admission.k8s.io/v1","kind":"#), "{face}: {body:?}");
        channel.post_once("/v?tenant=a", proto, question(), ten).await.expect("a reply");
        channel.post_once("/", HttpForm::Legacy, Rope::new([]), ten).await.expect("a reply");

        let seen = hook.seen();
        let http2 = matches!(face, "both" | "h2");
        let connections = if http2 { 1 } else { 2 };
        assert_eq!(hook.connections(), connections, "{face}: one connection serves all calls");
        assert!(seen.iter().all(|seen| (seen.version == Version::HTTP_2) == http2), "{face}: {seen:?}");
        let [json, proto, empty] = &seen[..] else { panic!("{face}: {seen:?}") };
        assert_eq!((&*json.path, &json.body[..]), ("/validate?timeout=10s", QUESTION), "{face}");
        assert_eq!(json.header("content-type"), "application/json");
        assert_eq!(json.header("accept"), "application/json, */*");
        assert_eq!(json.header("accept-encoding"), "gzip", "as Go's transport");
        assert_eq!(json.header("content-length"), QUESTION.len().to_string());
        assert!(json.header("user-agent").starts_with("gatepost/"));
        assert!(http2 || !json.header("host").is_empty());
        assert_eq!((json.header("te"), json.header("grpc-timeout"), json.header("transfer-encoding")), ("", "", ""));
        assert_eq!(proto.path, "/v?tenant=a&timeout=10s");
        assert_eq!(proto.header("content-type"), "application/vnd.kubernetes.protobuf");
        assert_eq!(proto.header("accept"), "application/vnd.kubernetes.protobuf, application/json");
        assert_eq!(
            (&*empty.path, empty.body.len(), empty.header("content-type")),
            ("/?timeout=10s", 0, "application/json")
        );
    }
}

#[tokio::test]
async fn trace_headers_reach_the_hook() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = [("traceparent", "00-ab-cd-01"), ("tracestate", "vendor=1"), ("baggage", "tenant=a,user=b")];
    for (face, hook) in every_face(&folder, HttpScript::Allow).await {
        let responses = Arc::new(Responses::default());
        let mut traced = call(&responses, 0, &question());
        traced.forwarded.trace =
            TraceContext::new(|name| trace.iter().filter(move |(of, _)| *of == name).map(|(_, text)| text.as_bytes()));
        channel(&hook).submit(0, traced);
        answers(&responses, 1).await;
        channel(&hook).submit(0, call(&responses, 1, &question()));
        answers(&responses, 1).await;
        let [traced, plain] = &hook.seen()[..] else { panic!("{face}: {:?}", hook.seen()) };
        for (name, value) in trace {
            assert_eq!((traced.header(name), plain.header(name)), (value, ""), "{face}: {name}");
        }
    }
}

#[tokio::test]
async fn our_credentials_are_in_every_post() {
    let folder = tempfile::tempdir().expect("a folder");
    for (face, hook) in every_face(&folder, HttpScript::Allow).await {
        let endpoint = Endpoint { authorization: Authorization::new(b"a-token\n"), ..hook.endpoint() };
        let channel = Channel::open(endpoint, hook.client_config(), &[Handle::current()]);
        for _ in 0..2 {
            post(&channel).await.expect("a reply");
        }
        let seen = hook.seen();
        assert!(seen.iter().all(|seen| seen.header("authorization") == "Bearer a-token"), "{face}: {seen:?}");
    }
}

#[tokio::test]
async fn every_status_is_a_reply() {
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::Status(204, None), &[protocol]).await;
        let channel = channel(&hook);
        let reply = |status, retry_after: Option<u64>, body: &'static str| {
            let mut reply = HttpReply::new(status, Bytes::from_static(body.as_bytes()));
            reply.retry_after = retry_after.map(Duration::from_secs);
            reply
        };
        assert_eq!(post(&channel).await, Ok(reply(204, None, "")));
        hook.set(HttpScript::Status(503, Some("7")));
        assert_eq!(post(&channel).await, Ok(reply(503, Some(7), "")));
        hook.set(HttpScript::Status(429, Some("Sun, 06 Nov 1994 08:49:37 GMT")));
        assert_eq!(post(&channel).await, Ok(reply(429, None, "")), "a date is none");
        hook.set(HttpScript::Status(500, Some("soon")));
        assert_eq!(post(&channel).await, Ok(reply(500, None, "")));
        hook.set(HttpScript::Reply(404, Vec::new(), Bytes::from_static(b"nothing here")));
        assert_eq!(post(&channel).await, Ok(reply(404, None, "nothing here")));
        hook.set(HttpScript::Stream(200, Vec::new(), Bytes::from_static(b"no length")));
        assert_eq!(post(&channel).await, Ok(reply(200, None, "no length")));
        assert_eq!(hook.connections(), 1, "none of them costs the connection");
    }
}

#[tokio::test]
async fn an_http_answer_beyond_the_limit_is_a_call_failure() {
    let limit = 16 << 20;
    for protocol in [HTTP1, H2] {
        let whole = Bytes::from(vec![b'x'; limit]);
        let hook = HttpHook::tls(HttpScript::Stream(200, Vec::new(), whole.clone()), &[protocol]).await;
        let channel = channel(&hook);
        assert_eq!(post(&channel).await.expect("the largest there may be").body(), Ok(whole));
        let more = Bytes::from(vec![b'x'; limit + 1]);
        for script in [HttpScript::Stream(200, Vec::new(), more.clone()), HttpScript::Reply(200, Vec::new(), more)] {
            hook.set(script);
            assert_eq!(post(&channel).await, Err(CallFailure::TooLarge { limit }));
        }
        hook.set(HttpScript::Allow);
        assert_eq!(post(&channel).await.expect("the next call is unharmed").status, 200);
    }
}

#[tokio::test]
async fn an_http_answer_shorter_than_announced_is_a_call_failure() {
    let short = vec![("content-length", "99".to_owned())];
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::Stream(200, short.clone(), Bytes::from_static(b"{}")), &[protocol]).await;
        let failure = post(&channel(&hook)).await.expect_err("no reply");
        let as_expected = match protocol {
            H2 => matches!(&failure, CallFailure::NotHttp(_)),
            _ => matches!(&failure, CallFailure::Connection(_)),
        };
        assert!(as_expected, "{failure:?}");
    }
}

#[tokio::test]
async fn concurrent_calls_share_one_http2_connection() {
    for (protocol, connections) in [(HTTP1, 8), (H2, 1)] {
        let hook = HttpHook::tls(HttpScript::Held, &[protocol]).await;
        let channel = channel(&hook);
        let responses = Arc::new(Responses::default());
        ask(&channel, &responses, 8, &question());
        until("all have arrived", || hook.seen().len() == 8).await;
        assert_eq!(hook.connections(), connections);
        (0..8).for_each(|_| hook.release());
        answers(&responses, 8).await;
        hook.set(HttpScript::Allow);
        ask(&channel, &responses, 8, &question());
        answers(&responses, 8).await;
        assert_eq!((hook.connections(), hook.open_connections()), (connections, connections), "used again");
    }
}

#[tokio::test]
async fn a_large_shared_body_arrives_byte_for_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    // Pieces of uneven lengths, as they come from a socket, some tiny, one large.
    let lengths = [1, 16_384, 0, 700_001, 16_383, 3, 65_536, 200_000].into_iter().chain([9000; 40]);
    let pieces: Vec<Bytes> = lengths
        .enumerate()
        .map(|(n, len)| (0..len).map(|at: usize| (at * 31 + n * 7 + (at >> 8)) as u8).collect::<Vec<_>>().into())
        .collect();
    let (whole, rope) = (pieces.concat(), Rope::new(pieces));
    for (face, hook) in every_face(&folder, HttpScript::Status(200, None)).await {
        let responses = Arc::new(Responses::default());
        let channel = channel(&hook);
        ask(&channel, &responses, 5, &rope);
        answers(&responses, 5).await;
        let seen = hook.seen();
        assert_eq!(seen.len(), 5);
        assert!(seen.iter().all(|seen| seen.body == whole), "{face}");
    }
}

#[tokio::test]
async fn an_abandoned_http_call_is_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    for (face, hook) in every_face(&folder, HttpScript::Hang).await {
        let channel = channel(&hook);
        let (kept, left) = (Arc::new(Responses::default()), Arc::new(Responses::default()));
        ask(&channel, &left, 2, &question());
        until("they have arrived", || hook.seen().len() == 2).await;
        hook.set(HttpScript::Held);
        ask(&channel, &kept, 1, &question());
        until("it has arrived", || hook.seen().len() == 3).await;
        left.close();
        channel.cancel_abandoned(0);
        until("the hook sees the cancellation", || hook.cancelled() == 2).await;
        hook.release();
        answers(&kept, 1).await;
        let (accepted, open) = if matches!(face, "both" | "h2") { (1, 1) } else { (3, 1) };
        until("their connections are closed", || hook.open_connections() == open).await;
        assert_eq!((hook.connections(), hook.cancelled()), (accepted, 2), "{face}: other calls are not touched");
    }
}

#[tokio::test]
async fn a_call_abandoned_while_it_is_sent_closes_its_connection() {
    // More than sockets buffer, to a hook that reads nothing.
    let body = Rope::new([Bytes::from(vec![b'x'; 32 << 20])]);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let channel = at(&listener);
    let responses = Arc::new(Responses::default());
    ask(&channel, &responses, 1, &body);
    let (mut first, _) = listener.accept().await.expect("dialled");
    first.read_u8().await.expect("the call has begun");
    responses.close();
    channel.cancel_abandoned(0);
    let mut rest = Vec::new();
    let ended = timeout(LONG, first.read_to_end(&mut rest)).await.expect("it ends");
    assert!(ended.is_err() || rest.len() < 32 << 20, "the rest was not sent");
}

#[tokio::test]
async fn an_http_2_connection_is_always_ready() {
    let hook = HttpHook::tls(HttpScript::Allow, &[H2, HTTP1]).await;
    let channel = channel(&hook);
    for n in 1..4 {
        until("dialled ahead", || hook.connections() == n && hook.open_connections() == 1).await;
        channel.probe(None, LONG).await.expect("connected");
        hook.hang_up();
    }
    until("dialled ahead", || hook.connections() == 4 && hook.open_connections() == 1).await;
    assert_eq!(post(&channel).await.expect("a reply").status, 200);
}

#[tokio::test]
async fn an_http_1_connection_is_open_only_once_it_has_carried_a_call() {
    let folder = tempfile::tempdir().expect("a folder");
    for (face, hook) in every_face(&folder, HttpScript::Allow).await {
        if matches!(face, "both" | "h2") {
            continue;
        }
        let channel = channel(&hook);
        let mut dialled = usize::from(matches!(face, "no alpn" | "http/1.1"));
        until("the protocol is learnt", || hook.connections() == dialled && hook.open_connections() == 0).await;
        for _ in 0..2 {
            channel.probe(None, LONG).await.expect("connects");
            dialled += 1;
            until("a probe leaves", || hook.connections() == dialled && hook.open_connections() == 0).await;
        }
        post(&channel).await.expect("a reply");
        channel.probe(None, LONG).await.expect("connected");
        post(&channel).await.expect("a reply");
        assert_eq!((hook.connections(), hook.open_connections()), (dialled + 1, 1), "{face}: it is kept");
        hook.hang_up();
        until("it is let go", || hook.open_connections() == 0).await;
        post(&channel).await.expect("a reply");
        assert_eq!(hook.connections(), dialled + 2, "{face}: nothing was dialled but for a call");
    }
}

#[tokio::test]
async fn a_hook_that_closes_connections_is_called_over_new_ones() {
    let hook = HttpHook::plain(HttpScript::AllowAndClose).await;
    let channel = channel(&hook);
    for _ in 0..5 {
        assert_eq!(post(&channel).await.expect("a reply").status, 200);
    }
    let responses = Arc::new(Responses::default());
    ask(&channel, &responses, 5, &question());
    answers(&responses, 5).await;
    assert_eq!(hook.seen().len(), 10);
    assert!(hook.connections() >= 10);
}

#[tokio::test]
async fn a_hook_that_closes_without_an_answer_is_a_connection_failure() {
    for protocol in [HTTP1, H2] {
        let hook = HttpHook::tls(HttpScript::GiveUp, &[protocol]).await;
        let failure = post(&channel(&hook)).await.expect_err("no reply");
        assert!(matches!(failure, CallFailure::Connection(_)), "{failure:?}");
        assert!(failure.may_retry());
        assert_eq!(hook.seen().len(), 1, "a new connection cannot have been dead");
    }
}

#[tokio::test]
async fn a_failed_probe_names_the_step() {
    let refused = |hook: &HttpHook, tls| {
        let channel = Channel::open(hook.endpoint(), tls, &[Handle::current()]);
        async move { channel.probe(None, LONG).await.expect_err("no connection").to_string() }
    };
    let (hook, stranger) =
        (HttpHook::tls(HttpScript::Allow, &[H2]).await, HttpHook::tls(HttpScript::Allow, &[H2]).await);
    let why = refused(&hook, stranger.client_config()).await;
    assert!(
        why.starts_with("cannot connect: TLS with 127.0.0.1:") && why.contains("invalid peer certificate"),
        "{why}"
    );
    assert!(hook.seen().is_empty());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let address = Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
    let nobody = Endpoint { address, tls: None, transport: Transport::Http, authorization: None };
    let channel = Channel::open(nobody, None, &[Handle::current()]);
    let failure = channel.probe(None, LONG).await.expect_err("nobody listens");
    assert!(matches!(failure.cause, CallFailure::Connect(_)) && failure.step == Step::Connect, "{failure:?}");
    assert!(matches!(post(&channel).await, Err(CallFailure::Connect(_))));
}

// === hooks that break the rules, byte by byte ===

fn at(listener: &TcpListener) -> Arc<Channel> {
    let address = listener.local_addr().expect("an address");
    let address = Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
    Channel::open(
        Endpoint { address, tls: None, transport: Transport::Http, authorization: None },
        None,
        &[Handle::current()],
    )
}

/// Reads one whole call.
async fn hear(socket: &mut TcpStream) {
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while !heard.ends_with(QUESTION) {
        socket.read_exact(&mut byte).await.expect("a call");
        heard.extend(byte);
    }
}

/// Accepts a connection, hears a call, says this, and hangs up.
async fn say(listener: &TcpListener, answer: &[u8]) {
    let (mut socket, _) = listener.accept().await.expect("accepted");
    hear(&mut socket).await;
    socket.write_all(answer).await.expect("said");
    socket.shutdown().await.expect("hung up");
}

const YES: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";

#[tokio::test]
async fn informational_heads_are_passed_by() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let channel = at(&listener);
    let answer = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", YES].concat();
    let (reply, ()) = tokio::join!(post(&channel), say(&listener, &answer));
    assert_eq!(reply.expect("a reply").body().expect("as it came"), "yes");
}

#[tokio::test]
async fn answer_that_is_not_http_fails_the_call() {
    for (answer, is_not_http) in [
        (&b"SSH-2.0-OpenSSH_9.9\r\n"[..], true),
        (b"HTTP/1.1 two hundred\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nno", true),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nno", true),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno", false),
        (b"HTTP/1.1 200 O", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let channel = at(&listener);
        let (reply, ()) = tokio::join!(post(&channel), say(&listener, answer));
        let failure = reply.expect_err("no reply");
        let text = String::from_utf8_lossy(answer);
        assert_eq!(matches!(failure, CallFailure::NotHttp(_)), is_not_http, "{text:?}: {failure:?}");
        assert_eq!(matches!(failure, CallFailure::Connection(_)), !is_not_http, "{text:?}: {failure:?}");
    }
}

#[tokio::test]
async fn a_call_over_a_stale_connection_is_resent_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let channel = at(&listener);
    let (reply, mut first) = tokio::join!(post(&channel), async {
        let (mut socket, _) = listener.accept().await.expect("accepted");
        hear(&mut socket).await;
        socket.write_all(YES).await.expect("said");
        socket
    });
    assert_eq!(reply.expect("a reply").body().expect("as it came"), "yes");
    // It was closing just as the next call came.
    let (reply, ()) = tokio::join!(post(&channel), async {
        hear(&mut first).await;
        drop(first);
        say(&listener, YES).await;
    });
    assert_eq!(reply.expect("made good").body().expect("as it came"), "yes");
}

#[tokio::test]
async fn http_call_over_a_stale_connection_is_not_retried() {
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let channel = channel(&hook);
    post(&channel).await.expect("a reply");
    hook.set(HttpScript::GiveUp);
    let responses = Arc::new(Responses::default());
    for (reuse, evidence) in [
        (Reuse::Allowed, ProcessingEvidence::ReusedConnectionEnded { may_have_arrived: true }),
        (Reuse::Forbidden, ProcessingEvidence::Unknown),
    ] {
        channel.submit(0, Call { reuse, ..call(&responses, 0, &question()) });
        let mut arrived = timeout(LONG, responses.take()).await.expect("an end");
        let lost: FailedCall = arrived.remove(0).1.expect_err("no answer");
        assert!(matches!(lost.failure, CallFailure::Connection(_)), "{lost:?}");
        assert_eq!(lost.evidence, evidence, "{reuse:?}");
    }
    assert_eq!((hook.seen().len(), hook.connections()), (3, 2));
}

#[tokio::test]
async fn call_is_not_repeated_after_the_answer_began() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let channel = at(&listener);
    let asked = async {
        let (mut first, _) = listener.accept().await.expect("dialled");
        hear(&mut first).await;
        first.write_all(YES).await.expect("said");
        hear(&mut first).await;
        first.write_all(b"HTTP/1.1 2").await.expect("said");
        drop(first);
    };
    let ((yes, no), ()) = tokio::join!(async { (post(&channel).await, post(&channel).await) }, asked);
    assert_eq!(yes.expect("a reply").body().expect("as it came"), "yes");
    assert!(matches!(no, Err(CallFailure::Connection(_))), "{no:?}");
}

#[tokio::test]
async fn a_closed_idle_connection_is_not_reused() {
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let channel = channel(&hook);
    for _ in 0..20 {
        post(&channel).await.expect("a reply");
        // Whether the client hears of it before the next call or after, the call is answered.
        hook.hang_up();
    }
    assert_eq!(hook.seen().len(), 20, "each was asked once");
}
