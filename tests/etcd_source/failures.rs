//! Members that die, and stores that are not what they were.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gatepost::{
    runtime::Running,
    source::{READ_TIMEOUT, ReadError},
};

use crate::{
    cases::Case,
    etcd::{Cluster, wait},
    setting::{PREFIX, Reader, configuration, hooks, place, sidecar, until_hook},
};

pub(crate) const CASES: &[Case] = &[
    ("the_leader_is_killed_and_the_configuration_stays_fresh", the_leader_is_killed),
    ("a_silent_member_is_passed_over_within_one_read", a_silent_member_is_passed_over),
    ("all_nodes_stop_and_it_is_stale_until_they_are_back", all_nodes_stop),
    ("another_cluster_at_the_same_address_is_never_applied", another_cluster_is_never_applied),
    ("a_store_that_went_back_is_never_applied", a_store_that_went_back_is_never_applied),
];

/// Looks at the age of the configuration all the time, beside the test.
struct Watcher {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Watcher {
    fn of(running: &Running) -> Self {
        let (current, over) = (Arc::clone(&running.current), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut oldest = Duration::ZERO;
            while !ended.load(Ordering::SeqCst) {
                oldest = oldest.max(current.freshness().age(Instant::now()).expect("it was read once"));
                thread::sleep(Duration::from_millis(5));
            }
            oldest
        });
        Self { over, thread }
    }

    /// The oldest that it was.
    fn oldest(self) -> Duration {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

fn the_leader_is_killed(program: &Path) {
    let mut cluster = Cluster::start(program, 3);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    // The leader first, so that it is the one that is asked.
    let leader = cluster.leader();
    let mut urls = cluster.urls();
    urls.swap(0, leader);
    let running = sidecar(place(urls));
    until_hook(&running, "one.example.com");
    let watcher = Watcher::of(&running);
    cluster.kill(leader);
    wait("a cluster with another leader", || {
        cluster.try_put(&format!("{PREFIX}a"), &configuration("two.example.com")).ok()
    });
    until_hook(&running, "two.example.com");
    let oldest = watcher.oldest();
    println!("  the leader is killed: the configuration was never older than {:.1} s", oldest.as_secs_f64());
    assert!(oldest < Duration::from_secs(5), "{oldest:?}");

    // One alone has no leader, and must not answer from memory.
    let second = cluster.leader();
    cluster.kill(second);
    let last = (0..3).find(|index| ![leader, second].contains(index)).unwrap();
    Reader::open(place(vec![cluster.url(last)])).fails_with("no leader");
    wait("staleness", || (!running.current.freshness().is_fresh(Instant::now())).then_some(()));
    cluster.start_node(second);
    wait("freshness", || running.current.freshness().is_fresh(Instant::now()).then_some(()));
}

fn a_silent_member_is_passed_over(program: &Path) {
    let cluster = Cluster::start(program, 1);
    // It takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut urls = vec![format!("http://{}", silent.local_addr().unwrap())];
    let alone = Reader::open(place(urls.clone())).read().unwrap_err().to_string();
    assert!(alone.contains("no answer within") && alone.contains(&urls[0]), "{alone}");
    urls.extend(cluster.urls());
    let mut reader = Reader::open(place(urls));
    reader.read().expect("the next endpoint answers in time");
    let began = Instant::now();
    reader.read().unwrap();
    assert!(began.elapsed() < READ_TIMEOUT / 4, "now it is asked first: {:?}", began.elapsed());
}

fn all_nodes_stop(program: &Path) {
    let mut cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    let running = sidecar(place(cluster.urls()));
    until_hook(&running, "one.example.com");
    cluster.kill(0);
    wait("staleness", || (!running.current.freshness().is_fresh(Instant::now())).then_some(()));
    assert_eq!(hooks(&running), ["one.example.com"], "what was in force stays, and is not trusted");
    cluster.start_node(0);
    wait("freshness", || running.current.freshness().is_fresh(Instant::now()).then_some(()));
    cluster.put(&format!("{PREFIX}a"), &configuration("two.example.com"));
    until_hook(&running, "two.example.com");

    // A sidecar that starts while nobody is there refuses until somebody is.
    cluster.kill(0);
    let late = sidecar(place(cluster.urls()));
    assert_eq!(late.current.freshness().age(Instant::now()), None);
    cluster.start_node(0);
    until_hook(&late, "two.example.com");
}

fn another_cluster_is_never_applied(program: &Path) {
    let mut cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), "# first");
    let mut reader = Reader::open(place(cluster.urls()));
    reader.good();
    cluster.begin_anew("second");
    for _ in 0..20 {
        cluster.put(&format!("{PREFIX}a"), "# second");
    }
    let refused = |read: Result<_, ReadError>| read.err().filter(|e| matches!(e, ReadError::OtherStore { .. }));
    println!("  {}", reader.until("the other cluster", refused));
    assert!(matches!(reader.read(), Err(ReadError::OtherStore { .. })), "and again");
}

fn a_store_that_went_back_is_never_applied(program: &Path) {
    let mut cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), "# old");
    let (data, backup) = (cluster.nodes[0].data(), cluster.nodes[0].folder.path().join("backup"));
    cluster.kill(0);
    copy(&data, &backup);
    cluster.start_node(0);
    cluster.wait_until_writable();
    for _ in 0..5 {
        cluster.put(&format!("{PREFIX}a"), "# new");
    }
    let mut reader = Reader::open(place(cluster.urls()));
    let before = reader.good();
    cluster.kill(0);
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    cluster.start_node(0);
    let refused = |read: Result<_, ReadError>| read.err().filter(|e| matches!(e, ReadError::WentBack { .. }));
    println!("  {}", reader.until("the past", refused));
    // Until it is as far again.
    while cluster.put("/other", "x") < before.as_of.unwrap() {
        assert!(matches!(reader.read(), Err(ReadError::WentBack { .. })));
    }
    assert_eq!(&*reader.good().files[0].bytes, b"# old", "its own word then, and nothing remembered");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match source.is_dir() {
            true => copy(&source, &target),
            false => drop(fs::copy(source, target).unwrap()),
        }
    }
}
