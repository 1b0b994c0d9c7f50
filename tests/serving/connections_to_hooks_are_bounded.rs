//! Connections to hooks that speak HTTP/1.1: few, whatever a hook does, and never beyond the deadline of their calls.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::front::until;
use crate::support;
use crate::support::http_hook::{HTTP1, HttpHook, HttpScript};
use bytes::Bytes;
use gatepost::hooks::{
    Arrival, Call, Channel, ConnectionBudget, FailedCall, HookRequest, HttpRequest, Reply, Resources, Responses, Reuse,
};
use gatepost_api::{CallFailure, HttpForm, ReviewVersion, Rope, Step};
use gatepost_base::memory::MemoryBudget;
use tokio::{net::TcpListener, runtime::Handle, time::timeout};

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(20);
/// Calls that a hook which hangs is asked with; no sooner is one of them over.
const HUNG: Duration = Duration::from_secs(300);
/// The most connections to one hook.
const MOST: usize = 64;
/// The most calls of one worker that wait for a connection.
const MOST_WAITING: usize = 1024;
const WORKERS: usize = 2;

fn channel_within(resources: &Resources, hook: &HttpHook) -> Arc<Channel> {
    Channel::open_within(resources, hook.endpoint(), hook.client_config(), &vec![Handle::current(); WORKERS])
}

fn channel(hook: &HttpHook) -> Arc<Channel> {
    channel_within(&Resources::unlimited(), hook)
}

/// A call with the tag in its path.
fn call(responses: &Arc<Responses>, tag: usize, time: Duration) -> Call {
    let path = format!("/{tag}").into();
    Call {
        request: HookRequest::Http(HttpRequest { path, form: HttpForm::Json(ReviewVersion::V1), timeout: time }),
        body: Rope::new([Bytes::from_static(b"{}")]),
        deadline: Instant::now() + time,
        responses: responses.clone(),
        tag: tag as u32,
        reuse: Reuse::Allowed,
        resends: 0,
        forwarded: gatepost_api::Hops::FIRST.into(),
    }
}

async fn arrivals(responses: &Responses, calls: usize) -> Vec<Arrival> {
    let mut all = Vec::new();
    while all.len() < calls {
        all.extend(timeout(LONG, responses.take()).await.expect("something arrives"));
    }
    all
}

/// The tags of the calls that the hook has seen, in order.
fn tags(hook: &HttpHook) -> Vec<usize> {
    let number = |path: &str| path[1..path.find('?').expect("a timeout")].parse().expect("a number");
    hook.seen().iter().map(|seen| number(&seen.path)).collect()
}

#[tokio::test]
async fn a_hung_hook_has_few_connections_and_its_calls_wait_in_order() {
    let hook = HttpHook::plain(HttpScript::Held).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    for tag in 0..MOST {
        channel.submit(tag, call(&responses, tag, HUNG));
    }
    until("all connections are in use", || hook.seen().len() == MOST).await;
    for tag in MOST..MOST + 10 {
        channel.submit(0, call(&responses, tag, HUNG));
    }
    for next in MOST..MOST + 10 {
        assert_eq!(hook.connections(), MOST);
        hook.release();
        until("the next one is asked", || hook.seen().len() == next + 1).await;
        assert_eq!(tags(&hook).last(), Some(&next));
    }
    (0..MOST).for_each(|_| hook.release());
    let all = arrivals(&responses, MOST + 10).await;
    assert!(all.iter().all(|(_, result)| matches!(result, Ok(Reply::Http(_)))), "{all:?}");
}

#[tokio::test]
async fn workers_share_the_connections_of_a_hook() {
    let hook = HttpHook::plain(HttpScript::Held).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    for tag in 0..MOST * 3 {
        channel.submit(0, call(&responses, tag, HUNG));
    }
    until("all connections are the first worker's", || hook.seen().len() == MOST).await;
    channel.submit(1, call(&responses, 1000, HUNG));
    // All of the first worker's connections become free at most twice.
    for released in 1..=2 * MOST {
        hook.release();
        arrivals(&responses, 1).await;
        until("somebody is asked", || hook.seen().len() >= MOST + released - 1).await;
        if tags(&hook).contains(&1000) {
            return;
        }
    }
    panic!("the other worker's call was never made");
}

#[tokio::test]
async fn an_idle_connection_of_one_worker_gives_way_to_another() {
    let hook = HttpHook::plain(HttpScript::Held).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    for round in [0, 1] {
        for tag in 0..MOST {
            channel.submit(round, call(&responses, tag, HUNG));
        }
        until("all are asked", || hook.seen().len() == MOST * (round + 1)).await;
        (0..MOST).for_each(|_| hook.release());
        arrivals(&responses, MOST).await;
    }
}

#[tokio::test]
async fn more_calls_than_may_wait_fail_at_once() {
    let hook = HttpHook::plain(HttpScript::Hang).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    for tag in 0..MOST + MOST_WAITING + 5 {
        channel.submit(0, call(&responses, tag, HUNG));
    }
    for (tag, result) in arrivals(&responses, 5).await {
        assert!(tag as usize >= MOST + MOST_WAITING, "{tag}");
        let Err(FailedCall { failure: CallFailure::Connect(why), .. }) = result else { panic!("{result:?}") };
        assert_eq!(why.step, Step::Connect);
        assert_eq!(why.what, "its connections are all in use, and 1024 calls wait for one");
    }
}

#[tokio::test]
async fn an_http1_call_is_cancelled_at_its_deadline() {
    let hook = HttpHook::plain(HttpScript::Hang).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    let time = Duration::from_secs(2);
    for tag in 0..MOST + 20 {
        channel.submit(0, call(&responses, tag, time));
    }
    until("all connections are in use", || hook.seen().len() == MOST).await;
    // The request whose calls these are goes on: its responses is open.
    until("they are hung up on", || hook.cancelled() == MOST && hook.open_connections() == 0).await;
    // One that comes now is asked, and by then those that waited would have been.
    hook.set(HttpScript::Allow);
    channel.submit(0, call(&responses, 1000, LONG));
    let arrived = arrivals(&responses, 1).await;
    assert!(matches!(&arrived[..], [(1000, Ok(_))]), "whoever waits has a clock of its own: {arrived:?}");
    let asked = tags(&hook);
    assert_eq!((asked.len(), asked.last()), (MOST + 1, Some(&1000)), "{asked:?}");
}

#[tokio::test]
async fn a_late_http1_call_is_not_sent() {
    let hook = HttpHook::plain(HttpScript::Allow).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    channel.submit(0, call(&responses, 0, LONG));
    arrivals(&responses, 1).await;
    channel.submit(0, call(&responses, 1, Duration::ZERO));
    channel.submit(0, call(&responses, 2, LONG));
    arrivals(&responses, 1).await;
    assert_eq!(tags(&hook), [0, 2]);
}

#[tokio::test]
async fn greedy_hooks_leave_guaranteed_connections_to_others() {
    let connections = ConnectionBudget::new(40);
    let resources = Resources::new(MemoryBudget::unlimited(), connections.clone());
    let (hung, other) = (HttpHook::plain(HttpScript::Hang).await, HttpHook::plain(HttpScript::Allow).await);
    let (to_hung, to_other) = (channel_within(&resources, &hung), channel_within(&resources, &other));
    let responses = Arc::new(Responses::default());
    for tag in 0..100 {
        to_hung.submit(tag, call(&responses, tag, HUNG));
    }
    // A client for each worker, one for retries, and one more.
    let guaranteed = WORKERS + 2;
    until("it has taken all it can", || hung.seen().len() == 40 - guaranteed).await;
    for tag in 1000..1020 {
        to_other.submit(tag, call(&responses, tag, LONG));
    }
    let all = arrivals(&responses, 20).await;
    assert!(all.iter().all(|(tag, result)| *tag >= 1000 && result.is_ok()), "{all:?}");
    assert!(connections.open() <= 40);
    drop((to_hung, to_other));
    responses.close();
}

#[tokio::test]
async fn dropped_channel_returns_its_connections_to_the_budget() {
    let connections = ConnectionBudget::new(1000);
    let resources = Resources::new(MemoryBudget::unlimited(), connections.clone());
    for protocol in [&[HTTP1][..], &[support::http_hook::H2]] {
        let hook = HttpHook::tls(HttpScript::Allow, protocol).await;
        let (channel, responses) = (channel_within(&resources, &hook), Arc::new(Responses::default()));
        for tag in 0..10 {
            channel.submit(tag, call(&responses, tag, LONG));
        }
        arrivals(&responses, 10).await;
        assert!(connections.open() > 0, "they are kept");
        drop(channel);
        until("all are closed", || connections.open() == 0).await;
    }
}

#[tokio::test]
async fn hook_that_closes_connections_is_dialled_with_backoff() {
    let hook = HttpHook::plain(HttpScript::GiveUp).await;
    let (channel, responses) = (channel(&hook), Arc::new(Responses::default()));
    let (began, calls) = (Instant::now(), 1000);
    for tag in 0..calls {
        channel.submit(0, call(&responses, tag, LONG));
        let arrived = arrivals(&responses, 1).await;
        let [(_, Err(FailedCall { failure: CallFailure::Connection(_), .. }))] = &arrived[..] else {
            panic!("{arrived:?}");
        };
    }
    // 16 at once, then at 50, 100, 200, 400, 800 ms and every second.
    let most = 16 + 5 + began.elapsed().as_secs() as usize + 1;
    assert!(hook.connections() <= most && most < calls, "{} of {most}", hook.connections());
    // It is found again by itself.
    hook.set(HttpScript::Allow);
    let found = async {
        loop {
            channel.submit(0, call(&responses, 0, LONG));
            if matches!(&arrivals(&responses, 1).await[..], [(_, Ok(_))]) {
                return;
            }
        }
    };
    timeout(LONG, found).await.expect("it is asked again");
}

#[tokio::test]
async fn where_tls_is_wanted_and_missing_nothing_is_dialled() {
    let hook = HttpHook::tls(HttpScript::Allow, &[HTTP1]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let mut endpoint = hook.endpoint();
    let address = listener.local_addr().expect("an address");
    endpoint.address = gatepost_api::hook::Address::Tcp { host: address.ip().to_string().into(), port: address.port() };
    let (channel, responses) = (Channel::open(endpoint, None, &[Handle::current()]), Arc::new(Responses::default()));
    channel.submit(0, call(&responses, 0, LONG));
    let arrived = arrivals(&responses, 1).await;
    let [(0, Err(FailedCall { failure: CallFailure::Connect(why), .. }))] = &arrived[..] else {
        panic!("{arrived:?}");
    };
    assert_eq!(why.step, Step::Tls, "{why}");
    assert!(timeout(Duration::ZERO, listener.accept()).await.is_err(), "not even connected to");
}
