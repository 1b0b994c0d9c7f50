use tokio::{net::UnixStream, time::timeout};

use super::*;
use crate::hooks::{Resources, connect::Stream};
use gatepost_api::{Endpoint, Transport, hook::Address};

/// The hook's share of the connection budget.
const MAX_CONNECTIONS: usize = 64;

/// The longest anything may take here.
const LONG: Duration = Duration::from_secs(20);

async fn pool(idle: usize) -> (Pool, Vec<UnixStream>) {
    let endpoint =
        Endpoint { address: Address::Unix("/none".into()), tls: None, transport: Transport::Http, authorization: None };
    let dialler = Dialler::new(endpoint, None, &Resources::unlimited(), 2);
    let mut pool = Pool::new(Arc::new(dialler), Arc::default());
    let mut hooks = Vec::new();
    for _ in 0..idle {
        let (ours, hook) = UnixStream::pair().expect("a pair");
        let slot = pool.runner.dialler.slot().await.expect("room");
        let socket = Socket { stream: Stream::Unix(ours), slot };
        let connection = Http1Connection::connect(socket, pool.runner.gone.clone()).await.expect("a connection");
        let _guard = pool.runner.arbiter.idle_guard();
        pool.idle.push_back(Idle { since: now(), connection, _guard });
        hooks.push(hook);
    }
    (pool, hooks)
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_timeout() {
    let (mut pool, _hooks) = pool(5).await;
    let now = Instant::now();
    pool.tidy(now);
    assert_eq!(pool.idle.len(), 5);
    assert!(pool.alarm().is_some_and(|alarm| alarm <= now + IDLE_TIMEOUT));
    pool.tidy(now + IDLE_TIMEOUT);
    assert!(pool.idle.is_empty() && pool.running.is_empty());
    assert_eq!(pool.alarm(), None);
}

#[tokio::test]
async fn idle_connection_yields_its_slot_to_a_waiting_client() {
    let (mut pool, _hooks) = pool(MAX_CONNECTIONS).await;
    let dialler = pool.runner.dialler.clone();
    pool.tidy(Instant::now());
    assert_eq!(pool.idle.len(), MAX_CONNECTIONS, "nobody wants their room");
    let waits = tokio::spawn(async move { dialler.slot().await });
    while pool.runner.dialler.share.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    pool.tidy(Instant::now());
    assert_eq!(pool.idle.len(), MAX_CONNECTIONS - 1);
    assert!(timeout(LONG, waits).await.expect("in time").expect("no panic").is_ok());
    pool.tidy(Instant::now());
    assert_eq!(pool.idle.len(), MAX_CONNECTIONS - 1);
}

#[tokio::test]
async fn client_above_its_share_gives_up_a_connection() {
    let (mut pool, _hooks) = pool(MAX_CONNECTIONS).await;
    let mut links: Vec<_> = pool.idle.drain(..).map(|idle| idle.connection).collect();
    // One call of this client waits, and one of another.
    let Ok(ConnectionChoice::Wait(mut offer)) = pool.queue.join() else { panic!("there is place in the queue") };
    let dialler = pool.runner.dialler.clone();
    let other = tokio::spawn(async move { dialler.slot().await });
    while pool.runner.dialler.share.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // All of them are busy.
    for _ in &links {
        pool.running.spawn(pending());
    }
    pool.release(links.pop().expect("a connection"));
    assert!(offer.try_recv().is_err(), "its own call waits on");
    let slot: Slot = timeout(LONG, other).await.expect("in time").expect("no panic").expect("a slot");
    pool.release(links.pop().expect("a connection"));
    assert!(matches!(offer.try_recv(), Ok(ConnectionChoice::Reused(_))), "nobody else waits");
    drop(slot);
}

#[tokio::test]
async fn idle_connections_give_way_to_a_call_that_waits() {
    let (mut pool, _hooks) = pool(2).await;
    let (arbiter, now) = (pool.runner.arbiter.clone(), Instant::now());
    pool.tidy(now + EVICTION_DELAY);
    assert_eq!(pool.idle.len(), 2);
    let _waiting = arbiter.want_eviction();
    assert!(pool.alarm().is_some_and(|alarm| alarm <= now + EVICTION_DELAY));
    pool.tidy(now + EVICTION_DELAY);
    assert!(pool.idle.is_empty() && pool.running.is_empty());
}

#[tokio::test]
async fn an_idle_connection_that_has_ended_is_dropped() {
    let (mut pool, hooks) = pool(2).await;
    drop(hooks);
    while pool.idle.iter().any(|idle| idle.connection.is_alive()) {
        pool.runner.gone.notified().await;
    }
    assert!(pool.take_idle().is_none());
    assert!(pool.idle.is_empty() && pool.running.is_empty());
}
