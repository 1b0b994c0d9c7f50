//! Patching an object takes little memory, however large the object: no piece of it is copied.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gatepost::{
    model::Rope,
    patch::{Document, Limits, Patch},
};
use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// The largest allocation of the measured step, and how many bytes there were; other threads do not count.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static ALL: AtomicUsize = AtomicUsize::new(0);

struct Counter;

impl AllocationTracker for Counter {
    fn allocated(&self, _: usize, size: usize, _: usize, group: AllocationGroupId) {
        if group != AllocationGroupId::ROOT {
            LARGEST.fetch_max(size, Ordering::Relaxed);
            ALL.fetch_add(size, Ordering::Relaxed);
        }
    }

    fn deallocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {}
}

const PATCH: &str = r#"[
    {"op": "add", "path": "/metadata/labels/tier", "value": "web"},
    {"op": "add", "path": "/metadata/annotations", "value": {"audit.example.com/by": "policy"}},
    {"op": "replace", "path": "/spec/containers/700/image", "value": "app@sha256:0123456789abcdef"}
]"#;

/// A Pod with so many containers that it has about the size.
fn pod(size: usize) -> Bytes {
    let container =
        |n: usize| format!(r#"{{"name":"c{n}","image":"app:{n}","args":["--port={n}","{}"]}}"#, "x".repeat(size / 900));
    let containers: Vec<_> = (0..800).map(container).collect();
    let containers = containers.join(",");
    format!(r#"{{"kind":"Pod","metadata":{{"name":"p","labels":{{"a":"b"}}}},"spec":{{"containers":[{containers}]}}}}"#)
        .into()
}

#[test]
fn no_allocation_grows_with_the_object() {
    AllocationRegistry::set_global_tracker(Counter).expect("the only tracker");
    let mut token = AllocationGroupToken::register().expect("a group");
    let mut all = Vec::new();
    for size in [256 << 10, 2900 << 10] {
        let object = pod(size);
        assert!(object.len() > size * 8 / 10);
        let patch = Bytes::from_static(PATCH.as_bytes());
        LARGEST.store(0, Ordering::Relaxed);
        ALL.store(0, Ordering::Relaxed);
        AllocationRegistry::enable_tracking();
        let guard = token.enter();
        let patch = Patch::parse(patch).expect("a patch");
        let document = Document::new(Rope::new([object.clone()])).expect("an object");
        let patched = document.patched(&patch, Limits::default()).expect("it applies");
        let difference = patched.difference().expect("it differs");
        drop(guard);
        AllocationRegistry::disable_tracking();
        assert!(difference.len() < 600);
        let (largest, bytes) = (LARGEST.load(Ordering::Relaxed), ALL.load(Ordering::Relaxed));
        assert!(largest > 0, "nothing was measured");
        assert!(largest < 4 << 10, "{largest} bytes at once, of an object of {}", object.len());
        all.push(bytes);
        let shared = patched.rope().chunks().iter().filter(|chunk| object.as_ptr_range().contains(&chunk.as_ptr()));
        let copied = object.len() - shared.map(Bytes::len).sum::<usize>();
        assert!(copied < 256, "{copied} bytes are copied");
    }
    assert!(all[1] < all[0] * 2, "memory grows with the object: {all:?}");
}
