//! Reads, and their cost.

use std::{fs, ops::Range, path::Path, time::Duration};

use gatepost::source::{EtcdLocation, SourceLocation, poll};
use gatepost_api::Revision;
use gatepost_etcd_client::{EtcdAccess, EtcdClient, EtcdError};
use tokio::sync::mpsc;

use crate::{
    cases::Case,
    etcd::{Cluster, LONG, wait},
    proxy::Proxy,
    setting::{PREFIX, Reader, configuration, hooks, names, place, runtime, sidecar, until_hook},
};

pub(crate) const CASES: &[Case] = &[
    ("keys_are_documents_and_changes_are_seen", keys_are_documents_and_changes_are_seen),
    ("a_change_is_read_at_once", a_change_is_read_at_once),
    ("an_unchanged_poll_costs_one_question_and_less_than_a_kilobyte", an_unchanged_poll_is_cheap),
    ("an_empty_prefix_is_said_aloud", an_empty_prefix_is_said_aloud),
    ("certificates_come_from_a_folder_of_this_machine", certificates_come_from_a_folder_of_this_machine),
    ("garbage_in_a_key_is_rejected_and_the_last_good_stays", garbage_in_a_key_is_rejected),
    ("a_prefix_larger_than_the_limit_is_said_to_be", a_prefix_larger_than_the_limit),
];

fn keys_are_documents_and_changes_are_seen(program: &Path) {
    let cluster = Cluster::start(program, 1);
    let two = configuration("two.example.com");
    cluster.put("/gatepost/configuration", "not ours");
    cluster.put(&format!("{PREFIX}teams/b.json"), "{}");
    let at = cluster.put(&format!("{PREFIX}a"), &two);
    let mut reader = Reader::open(place(cluster.urls()));
    let first = reader.good();
    assert_eq!(names(&first), ["a", "teams/b.json"]);
    assert_eq!(&*first.files[0].bytes, two.as_bytes());
    assert_eq!((&first.revision, first.as_of), (&Revision::Store(at), Some(at)));

    let elsewhere = cluster.put("/elsewhere", "x");
    let same = reader.good();
    assert_eq!((&same.digest, &same.revision, same.as_of), (&first.digest, &first.revision, Some(elsewhere)));

    let changed = cluster.put(&format!("{PREFIX}a"), "# changed");
    let second = reader.good();
    assert_eq!((&*second.files[0].bytes, &second.revision), (&b"# changed"[..], &Revision::Store(changed)));

    // Both what was put last, and what was not.
    for (key, left) in [("teams/b.json", vec!["a"]), ("a", vec![])] {
        let deleted = cluster.delete(&format!("{PREFIX}{key}"));
        let read = reader.good();
        assert_eq!((names(&read), &read.revision), (left, &Revision::Store(deleted)));
    }
    // Put and deleted again between two reads: what is held is the same.
    cluster.put(&format!("{PREFIX}z"), "x");
    cluster.delete(&format!("{PREFIX}z"));
    assert!(reader.good().files.is_empty());
}

/// Without a hint the next read would be an hour later.
fn a_change_is_read_at_once(program: &Path) {
    let cluster = Cluster::start(program, 1);
    let put = |hook: &str| cluster.put(&format!("{PREFIX}a"), &configuration(hook));
    put("one.example.com");
    runtime().block_on(async {
        let source = SourceLocation::Etcd(place(cluster.urls())).open().await.expect("opens");
        let (readings, mut read) = mpsc::channel(1);
        tokio::spawn(poll(source, Duration::from_secs(3600), readings, || {}));
        let mut revision_of = async |hook: &str| {
            loop {
                let contents = read.recv().await.expect("a read").outcome.expect("good");
                if String::from_utf8_lossy(&contents.files[0].bytes).contains(hook) {
                    return contents.revision;
                }
            }
        };
        revision_of("one.example.com").await;
        for hook in ["two.example.com", "three.example.com"] {
            let at = put(hook);
            assert_eq!(revision_of(hook).await, Revision::Store(at));
        }
    });
}

fn an_unchanged_poll_is_cheap(program: &Path) {
    let cluster = Cluster::start(program, 1);
    for number in 0..20 {
        cluster.put(&format!("{PREFIX}{number:02}.yaml"), &"# a long comment\n".repeat(1000));
    }
    let proxy = Proxy::before(cluster.nodes[0].client);
    let mut reader = Reader::open(place(vec![proxy.url.clone()]));
    assert_eq!(reader.good().files.len(), 20);
    assert!(proxy.carried() > 300_000, "the first read takes everything");
    reader.good();
    let ranges = || cluster.counted("grpc_server_started_total{grpc_method=\"Range\"");
    let (before, asked) = (proxy.carried(), ranges());
    let polls = 50;
    let largest = (0..polls).fold(0, |largest, _| {
        let before = proxy.carried();
        reader.good();
        largest.max(proxy.carried() - before)
    });
    let each = (proxy.carried() - before) / polls;
    println!("  an unchanged poll: {each} bytes on average, {largest} at most, both ways together");
    assert!(largest < 1024, "{largest} bytes");
    assert_eq!(ranges() - asked, polls as f64, "one question each");
}

fn an_empty_prefix_is_said_aloud(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put("/gatepost/confg/a", "a wrong prefix");
    let contents = Reader::open(place(cluster.urls())).good();
    assert!(contents.files.is_empty());
    let message = contents.notes.iter().map(ToString::to_string).collect::<String>();
    assert!(message.contains(PREFIX) && message.contains("there are no hooks"), "{message}");

    let running = sidecar(place(cluster.urls()));
    wait("the first generation", || (running.current.load().number > 0).then_some(()));
    assert!(running.current.load().snapshot.describe().to_string().contains("no key with this prefix"));
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    until_hook(&running, "one.example.com");
}

fn certificates_come_from_a_folder_of_this_machine(program: &Path) {
    let cluster = Cluster::start(program, 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    fs::write(&path, "one").unwrap();
    let hook = "- name: a.example.com\n  rules: []\n  clientConfig: {url: 'grpcs://a.example.com:1', caFile: ca.crt}\n";
    let at = cluster.put(&format!("{PREFIX}a"), &crate::support::gate::document(&[hook.to_owned()]));
    let mut reader = Reader::open(EtcdLocation { files: Some(folder.path().to_owned()), ..place(cluster.urls()) });
    let first = reader.good();
    assert_eq!(first.reference("ca.crt").unwrap(), b"one");
    fs::write(&path, "two").unwrap();
    let second = reader.good();
    assert_eq!(second.reference("ca.crt").unwrap(), b"two");
    assert_ne!(first.digest, second.digest);
    assert_eq!(second.revision, Revision::Store(at), "the store has not moved");

    let error = Reader::open(place(cluster.urls())).good().reference("ca.crt").unwrap_err();
    assert!(error.to_string().contains("--files"), "{error}");
}

fn garbage_in_a_key_is_rejected(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    let running = sidecar(place(cluster.urls()));
    until_hook(&running, "one.example.com");
    cluster.put(&format!("{PREFIX}broken"), "{[garbage");
    let rejected = wait("a rejection", || running.health.status.rejected.get());
    assert!(rejected.problems.iter().any(|problem| problem.file == "broken"), "{rejected:?}");
    assert_eq!(hooks(&running), ["one.example.com"]);
    assert!(running.current.freshness().is_fresh(std::time::Instant::now()));
    cluster.delete(&format!("{PREFIX}broken"));
    wait("no rejection", || running.health.status.rejected.get().is_none().then_some(()));
}

/// Past what gRPC takes by default, up to the limit, and past that. Asked with time to spare: how much comes over
/// within a read depends on the machine.
fn a_prefix_larger_than_the_limit(program: &Path) {
    const VALUE: usize = 1_200 << 10;
    let cluster = Cluster::start(program, 1);
    let value = "#".repeat(VALUE);
    let access = EtcdAccess { endpoints: cluster.urls(), ..EtcdAccess::default() };
    let whole = || runtime().block_on(async { EtcdClient::open(&access).await?.within(LONG).get_prefix(PREFIX).await });
    let put = |keys: Range<usize>| {
        for key in keys {
            cluster.put(&format!("{PREFIX}{key}"), &value);
        }
    };
    put(0..8);
    assert_eq!(whole().expect("nine MiB are taken").pairs.len(), 8);
    put(8..56);
    let error = whole().unwrap_err();
    assert!(matches!(error, EtcdError::TooLarge { .. }), "{error}");
    cluster.delete(&format!("{PREFIX}0"));
    cluster.delete(&format!("{PREFIX}1"));
    assert_eq!(whole().expect("63 MiB are taken").pairs.len(), 54);
}
