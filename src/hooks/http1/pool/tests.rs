use tokio::net::UnixStream;

use super::*;
use crate::model::{Endpoint, Transport, hook::Address};

async fn pool(idle: usize) -> (Pool, Vec<UnixStream>) {
    let endpoint = Endpoint { address: Address::Unix("/none".into()), tls: None, transport: Transport::Http };
    let mut pool = Pool::new(Arc::new(Dialler::new(endpoint, None)), Arc::default());
    let mut hooks = Vec::new();
    for _ in 0..idle {
        let (ours, hook) = UnixStream::pair().expect("a pair");
        let link = Link::over(Socket::Unix(ours), pool.carrier.gone.clone()).await.expect("a link");
        pool.rest(link);
        hooks.push(hook);
    }
    (pool, hooks)
}

#[tokio::test]
async fn idle_connections_are_few_and_not_old() {
    let (mut pool, _hooks) = pool(MOST_IDLE + 5).await;
    let now = Instant::now();
    pool.tidy(now);
    assert_eq!(pool.idle.len(), MOST_IDLE);
    assert!(pool.alarm().is_some_and(|alarm| alarm <= now + IDLE_FOR));
    pool.tidy(now + IDLE_FOR);
    assert!(pool.is_bare());
    assert_eq!(pool.alarm(), None);
}

#[tokio::test]
async fn idle_connections_give_way_to_a_call_that_waits() {
    let (mut pool, _hooks) = pool(2).await;
    let (turns, now) = (pool.carrier.turns.clone(), Instant::now());
    pool.tidy(now + PATIENCE);
    assert_eq!(pool.idle.len(), 2);
    let _waiting = turns.wait();
    assert!(pool.alarm().is_some_and(|alarm| alarm <= now + PATIENCE));
    pool.tidy(now + PATIENCE);
    assert!(pool.is_bare());
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_let_go() {
    let (mut pool, hooks) = pool(2).await;
    drop(hooks);
    while pool.idle.iter().any(|idle| idle.link.is_alive()) {
        pool.carrier.gone.notified().await;
    }
    assert!(pool.take_idle().is_none());
    assert!(pool.is_bare());
}
