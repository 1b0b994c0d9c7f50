//! Answers over HTTP/1.1 that never end: given up after so many bytes, or at the call's deadline.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost::hooks::{Call, Channel, ConnectionBudget, HookRequest, HttpRequest, Reply, Resources, Responses, Reuse};
use gatepost_api::{CallFailure, Endpoint, HttpForm, ReviewVersion, Rope, Transport, hook::Address};
use gatepost_base::memory::{MemoryBudget, Purpose};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    time::timeout,
};

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(60);
/// The largest answer.
const LARGEST: usize = 16 << 20;
const QUESTION: &[u8] = b"{}";

/// A hook that hears one call on a connection of its own.
struct Hook(TcpListener);

impl Hook {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    async fn hear(&self) -> TcpStream {
        let (mut socket, _) = self.0.accept().await.expect("accepted");
        let (mut heard, mut byte) = (Vec::new(), [0]);
        while !heard.ends_with(QUESTION) {
            socket.read_exact(&mut byte).await.expect("a call");
            heard.extend(byte);
        }
        socket
    }

    /// Says this, and then that again and again, until it is hung up on; how many bytes it was rid of.
    async fn says_without_end(&self, first: &[u8], again: &[u8]) -> usize {
        let mut socket = self.hear().await;
        let again = again.repeat((4096 / again.len()).max(1));
        let (mut said, mut next) = (0, first);
        loop {
            match socket.write(next).await {
                Ok(written) => said += written,
                Err(_) => return said,
            }
            next = &again;
        }
    }

    async fn ask(&self, memory: &Arc<MemoryBudget>, time: Duration) -> Option<Result<Reply, CallFailure>> {
        let address = self.0.local_addr().expect("an address");
        let address = Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
        let endpoint = Endpoint { address, tls: None, transport: Transport::Http, authorization: None };
        let resources = Resources::new(memory.clone(), ConnectionBudget::new(100));
        let channel = Channel::open_within(&resources, endpoint, None, &[Handle::current()]);
        let responses = Arc::new(Responses::default());
        let request =
            HookRequest::Http(HttpRequest { path: "/".into(), form: HttpForm::Json(ReviewVersion::V1), timeout: time });
        let (body, deadline) = (Rope::new([Bytes::from_static(QUESTION)]), Instant::now() + time);
        channel.submit(
            0,
            Call {
                request,
                body,
                deadline,
                responses: responses.clone(),
                tag: 0,
                reuse: Reuse::Allowed,
                resends: 0,
                forwarded: gatepost_api::Hops::FIRST.into(),
            },
        );
        let mut arrived = timeout(time.min(LONG), responses.take()).await.ok()?;
        Some(arrived.remove(0).1.map_err(|lost| lost.failure))
    }

    /// Failure of a call that is answered without end, and the bytes that it took to find out.
    async fn flood(&self, first: &[u8], again: &[u8]) -> (CallFailure, usize) {
        let memory = MemoryBudget::new(64 << 20);
        let (result, said) = tokio::join!(self.ask(&memory, LONG), self.says_without_end(first, again));
        assert_eq!(memory.held_for(Purpose::Answer), 0, "nothing is kept");
        (result.expect("an end").expect_err("no answer"), said)
    }
}

/// Bytes in sockets' buffers without a reader.
const IN_BUFFERS: usize = 8 << 20;

#[tokio::test]
async fn interim_answers_without_end_are_no_answer() {
    let (failure, said) = Hook::new().await.flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(matches!(&failure, CallFailure::NotHttp(why) if why.contains("more than 262144 bytes")), "{failure}");
    assert!(said <= IN_BUFFERS, "{said}");
}

#[tokio::test]
async fn an_endless_http1_head_is_a_call_failure() {
    for again in [&b"x-many: 1\r\n"[..], b"x"] {
        let (failure, said) = Hook::new().await.flood(b"HTTP/1.1 200 OK\r\n", again).await;
        assert!(matches!(failure, CallFailure::NotHttp(_)), "{failure}");
        assert!(said <= IN_BUFFERS, "{said}");
    }
}

#[tokio::test]
async fn chunks_that_are_mostly_extensions_are_no_answer() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = [&b"1;"[..], &[b'x'; 1000], b"\r\ny\r\n"].concat();
    let (failure, said) = Hook::new().await.flood(head, &chunk).await;
    assert!(matches!(failure, CallFailure::NotHttp(_)), "{failure}");
    assert!(said <= IN_BUFFERS, "{said}");
}

#[tokio::test]
async fn tiny_chunks_without_end_are_no_answer() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (failure, said) = Hook::new().await.flood(head, b"1\r\nx\r\n").await;
    assert!(matches!(&failure, CallFailure::NotHttp(why) if why.contains("tiny chunks")), "{failure}");
    assert!(said <= IN_BUFFERS, "{said}");
}

#[tokio::test]
async fn an_http1_answer_without_length_is_cut_at_the_limit() {
    let (failure, said) = Hook::new().await.flood(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096]).await;
    assert_eq!(failure, CallFailure::TooLarge { limit: LARGEST });
    assert!(said <= LARGEST + IN_BUFFERS, "{said}");
}

#[tokio::test]
async fn a_dripping_http1_answer_ends_at_the_deadline() {
    let (hook, memory) = (Hook::new().await, MemoryBudget::new(64 << 20));
    let dripping = async {
        let mut socket = hook.hear().await;
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\nyes").await.expect("said");
        // Until it is hung up on.
        while socket.write_all(b".").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let (result, hung_up) = tokio::join!(hook.ask(&memory, Duration::from_secs(1)), timeout(LONG, dripping));
    hung_up.expect("hung up on");
    assert!(result.is_none(), "{result:?}");
    assert_eq!(memory.held_for(Purpose::Answer), 0);
}

#[tokio::test]
async fn an_http1_answer_is_in_the_budget_until_it_is_dropped() {
    let (hook, memory) = (Hook::new().await, MemoryBudget::new(64 << 20));
    let answering = async {
        let mut socket = hook.hear().await;
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n").await.expect("said");
        for _ in 0..300 {
            socket.write_all(&[b'x'; 1000]).await.expect("said");
        }
        socket
    };
    let (result, _socket) = tokio::join!(hook.ask(&memory, LONG), answering);
    let Some(Ok(Reply::Http(reply))) = result else { panic!("{result:?}") };
    let body = reply.body().expect("as it came");
    assert_eq!(body.len(), 300_000);
    let held = memory.held_for(Purpose::Answer);
    assert!((300_000..=600_000).contains(&held), "{held}");
    drop(body);
    assert_eq!(memory.held_for(Purpose::Answer), 0);
}

#[tokio::test]
async fn an_http1_answer_beyond_the_budget_is_a_call_failure() {
    let (hook, memory) = (Hook::new().await, MemoryBudget::new(100_000));
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
    let (result, _) = tokio::join!(hook.ask(&memory, LONG), hook.says_without_end(head, b"x"));
    assert!(matches!(result, Some(Err(CallFailure::Overloaded))), "{result:?}");
    assert_eq!(memory.held(), 0);
}
