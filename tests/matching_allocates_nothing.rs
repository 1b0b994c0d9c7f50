//! Matching a request takes no memory, however many rules there are.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gatepost_api::{Bypass, Encoding, Gvk, Gvr, Operation, Review, ReviewVersion, Rope};
use gatepost_config::{MatchSet, SourceFile, load};
use gatepost_wire::groups;
use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// Allocations made by the measured step; the test harness's other threads do not count.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counter;

impl AllocationTracker for Counter {
    fn allocated(&self, _: usize, _: usize, _: usize, group: AllocationGroupId) {
        if group != AllocationGroupId::ROOT {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn deallocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {}
}

/// `matching` hooks for the review's resource, and hooks for resources of their own up to `rules`.
fn configuration(rules: usize, matching: usize) -> SourceFile {
    let hooks: Vec<String> = (0..rules)
        .map(|n| {
            let resource = if n < matching { "deployments/*".into() } else { format!("things{n}") };
            format!(
                r#"{{"name": "hook{n}", "clientConfig": {{"url": "grpc://127.0.0.1:1"}},
                    "rules": [{{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
                                "resources": ["{resource}"]}}]}}"#
            )
        })
        .collect();
    let text = format!(
        r#"{{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
            "metadata": {{"name": "c"}}, "externalAdmissionHooks": [{}]}}"#,
        hooks.join(",")
    );
    SourceFile { name: "c.json".into(), bytes: Bytes::from(text) }
}

/// A user in the groups `a` and `ops`, in both encodings.
const USERS: [(Encoding, &[u8]); 2] = [
    (Encoding::Grpc, b"\x0a\x03ann\x1a\x01a\x1a\x03ops"),
    (Encoding::Json(ReviewVersion::V1), br#"{"username": "ann", "groups": ["a", "ops"]}"#),
];

/// A hundred bypass rules, the last of which applies to them.
fn bypasses() -> SourceFile {
    let rule = |n: usize| format!(r#"{{"name": "b{n}", "reason": "x", "groups": ["group{n}"], "users": ["user{n}"]}}"#);
    let mut rules: Vec<_> = (0..99).map(rule).collect();
    rules.push(r#"{"name": "last", "reason": "x", "groups": ["nobody", "ops"], "namespaces": ["ns"]}"#.to_owned());
    let text = format!(
        r#"{{"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
            "metadata": {{"name": "c"}}, "bypass": [{}]}}"#,
        rules.join(",")
    );
    SourceFile { name: "c.json".into(), bytes: Bytes::from(text) }
}

#[test]
fn matching_allocates_nothing() {
    let review = Review {
        uid: "u".into(),
        kind: Gvk::default(),
        resource: Gvr { group: "apps".into(), version: "v1".into(), resource: "deployments".into() },
        sub_resource: "scale".into(),
        request_kind: None,
        request_resource: None,
        request_sub_resource: "".into(),
        name: "n".into(),
        namespace: "ns".into(),
        operation: Operation::Create,
        username: "".into(),
        dry_run: false,
        user: None,
        object: None,
        object_ends: None,
        old_object: None,
        old_object_ends: None,
        options: None,
        encoding: Encoding::Grpc,
        message: 0..0,
        bytes: Rope::new(Vec::new()),
    };
    let beta = Gvr { version: "v1beta1".into(), ..review.resource.clone() };
    let converted = Review {
        request_resource: Some(beta.clone()),
        request_sub_resource: review.sub_resource.clone(),
        ..review.clone()
    };
    let other = Review { resource: beta, ..review.clone() };
    AllocationRegistry::set_global_tracker(Counter).expect("the only tracker");
    AllocationRegistry::enable_tracking();
    let mut measured = AllocationGroupToken::register().expect("a group");
    let mut count = |step: &mut dyn FnMut()| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let guard = measured.enter();
        step();
        drop(guard);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    // The counter counts: a test that cannot fail would be none.
    assert_eq!(count(&mut || drop(std::hint::black_box(Box::new(1u64)))), 1);
    for (rules, matching) in [(0, 0), (10, 4), (1_000, 4), (10_000, 4), (10_000, 32)] {
        let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        let snapshot = load(&[configuration(rules, matching)], &nothing).expect("good");
        let mut found = MatchSet::new();
        for (how, review) in [("as made", &review), ("as sent", &converted), ("in another version", &other)] {
            assert_eq!(count(&mut || snapshot.matching(review, None, &mut found)), 0, "{rules} rules, {how}");
            assert_eq!(found.len(), matching, "{how}");
        }
    }
    for (encoding, user) in USERS {
        let bytes = Bytes::from_static(user);
        let review = Review { encoding, user: Some(0..bytes.len()), bytes: Rope::new([bytes]), ..review.clone() };
        let snapshot = load(&[bypasses()], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("good");
        let mut applied = 0;
        let applies = |bypass: &Bypass| bypass.applies(&review, |wanted| groups::any_of(&review, wanted));
        let took = count(&mut || applied = snapshot.bypasses().iter().filter(|bypass| applies(bypass)).count());
        assert_eq!((took, applied), (0, 1), "bypass rules, {encoding:?}");
    }
}
