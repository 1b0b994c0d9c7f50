use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::pb::etcdserverpb::ResponseHeader;

const AT: &str = "http://etcd";

fn answer(revision: i64, count: i64, keys: &[(&str, i64)]) -> RangeResponse {
    let pair = |(key, mod_revision): &(&str, i64)| KeyValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        mod_revision: *mod_revision,
        ..KeyValue::default()
    };
    let header = ResponseHeader { cluster_id: 1, revision, raft_term: 2 };
    RangeResponse { header: Some(header), kvs: keys.iter().map(pair).collect(), more: false, count }
}

#[test]
fn a_prefix_is_the_range_up_to_itself_plus_one() {
    for (prefix, key, end) in [
        (&b"/a/"[..], &b"/a/"[..], &b"/a0"[..]),
        (b"a\xff", b"a\xff", b"b"),
        (b"\xff\xff", b"\xff\xff", b"\0"),
        (b"", b"\0", b"\0"),
    ] {
        assert_eq!(below(prefix), (Bytes::from_static(key), Bytes::from_static(end)), "{prefix:?}");
    }
}

/// Requests only the key with the highest `mod_revision`. Our subset of the protocol has no fields for old revisions or
/// serializable reads.
#[test]
fn summary_requests_the_newest_key() {
    let (all, last) = (whole(b"/a/"), newest(b"/a/"));
    assert_eq!((all.limit, all.keys_only), (0, false));
    assert_eq!((last.limit, last.keys_only), (1, true));
    assert_eq!((last.sort_target(), last.sort_order()), (SortTarget::Mod, SortOrder::Descend));
    assert_eq!((last.key, last.range_end), (all.key, all.range_end));
}

#[test]
fn summary_of_another_store_or_term_is_never_the_same() {
    let summary = PrefixSummary { cluster_id: 1, raft_term: 2, revision: 9, newest_mod: 9, count: 2 };
    assert!(summary.has_same_content_as(&PrefixSummary { revision: 12, ..summary }), "other keys have moved");
    assert!(!summary.has_same_content_as(&PrefixSummary { cluster_id: 3, ..summary }));
    assert!(!summary.has_same_content_as(&PrefixSummary { raft_term: 3, ..summary }), "it may come from a backup");
}

#[test]
fn sound_answers_are_read() {
    let read = ranged(AT, b"/a/", answer(9, 2, &[("/a/y", 9), ("/a/x", 3)])).unwrap();
    assert_eq!(read.pairs.iter().map(|pair| &*pair.key).collect::<Vec<_>>(), [b"/a/x", b"/a/y"]);
    let summarized = summary(AT, b"/a/", &RangeResponse { more: true, ..answer(9, 2, &[("/a/y", 9)]) }).unwrap();
    assert_eq!(summarized, PrefixSummary { cluster_id: 1, raft_term: 2, revision: 9, newest_mod: 9, count: 2 });
    assert_eq!(read.summary(), summarized);
    let empty = summary(AT, b"/a/", &answer(9, 0, &[])).unwrap();
    assert_eq!((empty.newest_mod, empty.count), (0, 0));
}

#[test]
fn incomplete_or_contradictory_responses_are_rejected() {
    let sound = || answer(9, 1, &[("/a/x", 3)]);
    for (what, wrong) in [
        ("more", RangeResponse { more: true, ..sound() }),
        ("a count too large", RangeResponse { count: 2, ..sound() }),
        ("a negative count", RangeResponse { count: -1, ..sound() }),
        ("no header", RangeResponse { header: None, ..sound() }),
        ("no revision", answer(0, 1, &[("/a/x", 3)])),
        ("a foreign key", answer(9, 1, &[("/b/x", 3)])),
        ("a key from the future", answer(9, 1, &[("/a/x", 10)])),
        ("a key twice", answer(9, 2, &[("/a/x", 3), ("/a/x", 4)])),
    ] {
        assert!(matches!(ranged(AT, b"/a/", wrong), Err(EtcdError::InvalidResponse { .. })), "{what}");
    }
    for (what, wrong) in [
        ("keys without a count", answer(9, 0, &[("/a/x", 3)])),
        ("a count without keys", answer(9, 1, &[])),
        ("more than was asked for", answer(9, 2, &[("/a/x", 3), ("/a/y", 4)])),
        ("a foreign key", answer(9, 1, &[("/b/x", 3)])),
        ("a revision of nothing", answer(9, 1, &[("/a/x", 0)])),
    ] {
        assert!(matches!(summary(AT, b"/a/", &wrong), Err(EtcdError::InvalidResponse { .. })), "{what}");
    }
}

proptest! {
    /// After arbitrary puts and deletes, two summaries have the same content only if the stores do.
    #[test]
    fn summaries_show_every_change(
        steps in prop::collection::vec(prop::collection::vec((0..4_u8, prop::option::of(0..2_u8)), 0..4), 2..8),
    ) {
        let mut store = BTreeMap::new();
        let mut revision = 1_u64;
        let mut seen = Vec::new();
        for step in steps {
            for (key, value) in step {
                revision += 1;
                match value {
                    Some(value) => drop(store.insert(key, (value, revision))),
                    None => drop(store.remove(&key)),
                }
            }
            let newest_mod = store.values().map(|(_, at)| *at).max().unwrap_or(0);
            let count = store.len() as u64;
            seen.push((PrefixSummary { cluster_id: 1, raft_term: 1, revision, newest_mod, count }, store.clone()));
        }
        for (i, (one, before)) in seen.iter().enumerate() {
            for (other, after) in &seen[i..] {
                prop_assert!(!one.has_same_content_as(other) || before == after, "{before:?} {after:?}");
            }
        }
    }
}
