//! Admission of clients, and eviction.

use futures_util::FutureExt;

use super::*;

const UNKNOWN: [u8; 4] = [192, 0, 2, 0];

/// The n-th unknown client.
fn unknown(n: u8) -> Identity {
    let [a, b, c, _] = UNKNOWN;
    Identity::of([a, b, c, n].into())
}

fn named(name: &str) -> Identity {
    Identity::Certificate(name.into())
}

/// Connections, in the order they came.
fn connect(clients: &Arc<Clients>, identity: &Identity, count: usize) -> Vec<AdmittedConnection> {
    let now = clients.began;
    (0..count).map(|_| clients.admit(identity.clone(), now).expect("room")).collect()
}

fn is_evicted(admitted: &AdmittedConnection) -> bool {
    admitted.session.evicted().now_or_never().is_some()
}

#[test]
fn idle_connections_are_evicted_for_new_ones() {
    let clients = Clients::new(8, Instant::now());
    let idle = connect(&clients, &Identity::Loopback, 8);
    idle[0].session.had_verdict();
    let new = clients.admit(Identity::Loopback, clients.began).expect("room");
    let evicted: Vec<usize> = (0..8).filter(|n| is_evicted(&idle[*n])).collect();
    assert_eq!(evicted, [1], "the oldest that never had a verdict");
    drop((new, idle));
    assert!(clients.lock().sessions.is_empty());
}

#[test]
fn connection_with_a_review_is_not_evicted() {
    let clients = Clients::new(2, Instant::now());
    let busy = connect(&clients, &Identity::Loopback, 2);
    busy.iter().for_each(|admitted| admitted.session.begin(0));
    assert_eq!(clients.admit(Identity::Loopback, clients.began).expect_err("full"), ConnectionRefusal::Share);
    busy[0].session.end();
    assert!(clients.admit(Identity::Loopback, clients.began).is_ok());
    assert!(is_evicted(&busy[0]) && !is_evicted(&busy[1]));
}

#[test]
fn connection_of_an_instance_is_not_evicted() {
    let clients = Clients::new(2, Instant::now());
    let connections = connect(&clients, &Identity::Loopback, 2);
    let instance = connections[0].session.attach();
    let new = clients.admit(Identity::Loopback, clients.began).expect("room");
    assert!(!is_evicted(&connections[0]) && is_evicted(&connections[1]));
    assert_eq!(clients.busy(), 1);
    drop((new, instance));
    assert_eq!((clients.busy(), connections[0].session.idle_worth()), (0, Some((false, 0))));
}

#[test]
fn flood_of_unknown_clients_leaves_a_quarter_for_known_ones() {
    let clients = Clients::new(8, Instant::now());
    let mut flood: Vec<AdmittedConnection> = (0..6).flat_map(|n| connect(&clients, &unknown(n), 1)).collect();
    flood.iter().for_each(|admitted| admitted.session.begin(0));
    assert_eq!(clients.admit(unknown(6), clients.began).expect_err("kept"), ConnectionRefusal::Full);
    let known = connect(&clients, &named("apiserver"), 2);
    assert_eq!(known.len(), 2);
    // One that had a verdict is a stranger no longer, and its connection stands in nobody's way.
    flood[0].session.client.had_verdict(0);
    flood.remove(5);
    flood.extend(connect(&clients, &unknown(7), 1));
}

#[test]
fn client_share_is_half_unless_known_and_alone() {
    let clients = Clients::new(8, Instant::now());
    let alone = connect(&clients, &unknown(1), 4);
    alone.iter().for_each(|admitted| admitted.session.begin(0));
    assert_eq!(clients.admit(unknown(1), clients.began).expect_err("half"), ConnectionRefusal::Share);
    drop(alone);
    let first = connect(&clients, &named("a"), 6);
    first.iter().for_each(|admitted| admitted.session.begin(0));
    let second = connect(&clients, &named("b"), 1);
    assert_eq!(clients.admit(named("a"), clients.began).expect_err("half"), ConnectionRefusal::Share);
    drop(second);
    assert_eq!(connect(&clients, &named("a"), 2).len(), 2, "all of it, alone");
}

#[test]
fn client_certificate_makes_its_address_known() {
    let clients = Clients::new(8, Instant::now());
    let mut admitted = clients.admit(unknown(1), clients.began).expect("room");
    assert!(!admitted.session.client.is_known(0));
    admitted.identify(named("apiserver"), clients.began).expect("room");
    assert_eq!(admitted.session.client.identity, named("apiserver"));
    drop(admitted);
    let registry = clients.lock();
    assert!(registry.clients[&unknown(1)].is_known(599));
    assert_eq!(registry.sessions.len(), 0);
}

#[test]
fn clients_without_connections_are_forgotten() {
    let clients = Clients::new(2, Instant::now());
    for n in 0..100 {
        let admitted = connect(&clients, &unknown(n), 1);
        if n % 2 == 0 {
            admitted[0].session.client.had_verdict(0);
        }
    }
    assert!(clients.lock().clients.len() <= 2 * REMEMBERED_PER_CONNECTION + 1);
}
