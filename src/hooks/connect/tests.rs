use std::{cell::RefCell, future::pending};

use tokio::net::TcpListener;

use super::*;
use gatepost_api::{Transport, hook::EndpointTls};

/// Behaviour of an address.
#[derive(Clone, Copy)]
enum Does {
    Connects(u64),
    Refuses(u64),
    Hangs,
}

const TIME: Duration = Duration::from_secs(5);

/// Races addresses that do this, and says how it ended, when, and when each attempt began (in ms).
async fn raced(does: &[Does]) -> (Result<usize, Vec<FailedAttempt<usize, &'static str>>>, u128, Vec<(usize, u128)>) {
    let began = Instant::now();
    let attempts = RefCell::new(Vec::new());
    let addresses: Vec<_> = (0..does.len()).collect();
    let result = race(&addresses, TIME, |address| {
        attempts.borrow_mut().push((address, began.elapsed().as_millis()));
        async move {
            match does[address] {
                Does::Connects(after) => {
                    sleep(Duration::from_millis(after)).await;
                    Ok(address)
                }
                Does::Refuses(after) => {
                    sleep(Duration::from_millis(after)).await;
                    Err("refused")
                }
                Does::Hangs => pending().await,
            }
        }
    });
    (result.await, began.elapsed().as_millis(), attempts.into_inner())
}

#[tokio::test(start_paused = true)]
async fn an_address_that_connects_at_once_is_the_only_one_tried() {
    let (result, took, attempts) = raced(&[Does::Connects(200), Does::Connects(0)]).await;
    assert_eq!((result, took, attempts), (Ok(0), 200, vec![(0, 0)]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_address_costs_250_ms_and_not_the_whole_time() {
    let (result, took, attempts) = raced(&[Does::Hangs, Does::Hangs, Does::Connects(10)]).await;
    assert_eq!((result, took), (Ok(2), 510));
    assert_eq!(attempts, [(0, 0), (1, 250), (2, 500)]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_refuses_has_the_next_tried_at_once() {
    let (result, took, attempts) = raced(&[Does::Refuses(20), Does::Refuses(0), Does::Connects(5)]).await;
    assert_eq!((result, took), (Ok(2), 25));
    assert_eq!(attempts, [(0, 0), (1, 20), (2, 20)]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_address_still_wins_over_a_slower_one() {
    let (result, took, _) = raced(&[Does::Connects(300), Does::Connects(100)]).await;
    assert_eq!((result, took), (Ok(0), 300));
}

#[tokio::test(start_paused = true)]
async fn a_race_without_a_winner_reports_every_attempt() {
    let (result, took, _) = raced(&[Does::Refuses(10), Does::Refuses(300)]).await;
    assert_eq!((result, took), (Err(vec![(0, Some("refused")), (1, Some("refused"))]), 310));
    let (result, took, _) = raced(&[Does::Hangs, Does::Refuses(0)]).await;
    assert_eq!((result, took), (Err(vec![(1, Some("refused")), (0, None)]), TIME.as_millis()));
    let (result, took, _) = raced(&[]).await;
    assert_eq!((result, took), (Err(vec![]), 0));
}

#[tokio::test(start_paused = true)]
async fn other_attempts_are_dropped_when_one_has_won() {
    struct Open<'a>(&'a AtomicUsize);
    impl Drop for Open<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let open = AtomicUsize::new(0);
    let won = race(&[1, 2, 3], TIME, |address| {
        open.fetch_add(1, SeqCst);
        let socket = Open(&open);
        async move {
            match address {
                3 => Ok::<_, ()>(socket),
                _ => pending().await,
            }
        }
    })
    .await;
    assert!(won.is_ok());
    assert_eq!(open.load(SeqCst), 1, "the winner's alone");
}

#[test]
fn address_families_take_turns_and_each_dial_begins_elsewhere() {
    let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (a, b, c) = (at("[::1]:1"), at("[::2]:1"), at("[::3]:1"));
    let (x, y) = (at("10.0.0.1:1"), at("10.0.0.2:1"));
    let all = [a, b, c, x, y];
    assert_eq!(interleaved(&all, 0), [a, x, b, y, c]);
    assert_eq!(interleaved(&all, 1), [b, y, c, x, a]);
    assert_eq!(interleaved(&all, 2), [c, x, a, y, b]);
    assert_eq!(interleaved(&all, usize::MAX).len(), 5);
    assert_eq!(interleaved(&[x, x, y], 0), [x, y], "named twice, tried once");
    assert_eq!(interleaved(&[], 3), []);
    let many: Vec<_> = (0..100).map(|last| SocketAddr::from(([10, 0, 0, last], 1))).collect();
    assert_eq!(interleaved(&many, 50), many[50..50 + MAX_ADDRESSES], "and others the next time");
}

#[tokio::test]
async fn dials_try_all_addresses_in_rotating_order() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    // The other two have no listener.
    let addresses = ["127.0.0.2", "127.0.0.1", "127.0.0.3"];
    let addresses = addresses.map(|address| SocketAddr::new(address.parse().expect("an address"), 0));
    let resolver = Resolver::with_lookup(move |_| Ok(addresses.to_vec()));
    let further_attempts = &Semaphore::new(10);
    let resolver = &resolver;
    let until = Instant::now() + Duration::from_secs(20);
    let params = |turn| ConnectParams { resolver, further_attempts, turn, until };
    for turn in 0..3 {
        let stream = connect_any("hook", port, params(turn)).await.expect("connects");
        assert_eq!(stream.peer_addr().expect("a peer").port(), port, "{turn}");
    }
    drop(listener);
    let why = connect_any("hook", port, params(0)).await.expect_err("nobody listens");
    assert_eq!(why.what.matches("refused").count(), 3, "{why}");
}

#[test]
fn failed_addresses_are_reported_in_one_order_and_bounded() {
    let at = |last| SocketAddr::from(([10, 0, 0, last], 443));
    let refused = || Some(io::Error::other("refused"));
    let message = failures(vec![(at(2), None), (at(1), refused())]);
    assert_eq!(message, "10.0.0.1:443: refused; 10.0.0.2:443: no answer");
    assert_eq!(message, failures(vec![(at(1), refused()), (at(2), None)]));
    let many = failures((0..8).map(|last| (at(last), None)).collect());
    assert!(many.ends_with("10.0.0.3:443: no answer; and 4 more"), "{many}");
}

#[test]
fn an_endpoint_with_tls_is_not_dialled_without() {
    let tls = Some(EndpointTls { server_name: "hook".into(), ca_pem: None, client_pem: None });
    let tcp = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
    for address in [tcp.clone(), Address::Unix("/hook".into())] {
        let endpoint = Endpoint { address, tls: tls.clone(), transport: Transport::Http, authorization: None };
        assert_eq!(Tls::of(&endpoint, None).expect_err("refused").step, Step::Tls, "{endpoint}");
    }
    let endpoint = Endpoint { address: tcp, tls: None, transport: Transport::Http, authorization: None };
    assert!(matches!(Tls::of(&endpoint, None), Ok(None)));
}
