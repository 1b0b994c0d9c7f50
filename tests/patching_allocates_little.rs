//! Patching an object takes little memory, however large the object: no piece of it is copied, and no path once for each
//! operation.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use std::sync::{
    Mutex, Once, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use gatepost_api::Rope;
use gatepost_json_patch::{Document, Patch, PatchLimits};
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

/// The document with a patch applied and its difference, the largest allocation on the way, and the bytes of all of them.
fn measured(object: &Bytes, patch: &Bytes) -> (Document, Rope, usize, usize) {
    static TRACKER: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    TRACKER.call_once(|| AllocationRegistry::set_global_tracker(Counter).expect("the only tracker"));
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut token = AllocationGroupToken::register().expect("a group");
    LARGEST.store(0, Ordering::Relaxed);
    ALL.store(0, Ordering::Relaxed);
    AllocationRegistry::enable_tracking();
    let guard = token.enter();
    let patch = Patch::parse(patch.clone()).expect("a patch");
    let document = Document::new(Rope::new([object.clone()])).expect("an object");
    let patched = document.patched(&patch, PatchLimits::default()).expect("it applies");
    let difference = patched.difference().expect("it differs");
    drop(guard);
    AllocationRegistry::disable_tracking();
    (patched, difference, LARGEST.load(Ordering::Relaxed), ALL.load(Ordering::Relaxed))
}

#[test]
fn no_allocation_grows_with_the_object() {
    let mut all = Vec::new();
    for size in [256 << 10, 2900 << 10] {
        let object = pod(size);
        assert!(object.len() > size * 8 / 10);
        let (patched, difference, largest, bytes) = measured(&object, &Bytes::from_static(PATCH.as_bytes()));
        assert!(difference.len() < 600);
        assert!(largest > 0, "nothing was measured");
        assert!(largest < 4 << 10, "{largest} bytes at once, of an object of {}", object.len());
        all.push(bytes);
        let shared = patched.rope().chunks().iter().filter(|chunk| object.as_ptr_range().contains(&chunk.as_ptr()));
        let copied = object.len() - shared.map(Bytes::len).sum::<usize>();
        assert!(copied < 256, "{copied} bytes are copied");
    }
    assert!(all[1] < all[0] * 2, "memory grows with the object: {all:?}");
}

/// The changes below a long key are many and short: what they take is no multiple of the key.
#[test]
fn no_path_is_held_for_each_operation() {
    const ITEMS: usize = 2000;
    let key = "k".repeat(100_000);
    let object = Bytes::from(format!(r#"{{"{key}":[{}0]}}"#, "0,".repeat(ITEMS)));
    let away = format!(r#"{{"op":"move","from":"/{key}","path":"/t"}}"#);
    let back = format!(r#"{{"op":"move","from":"/t","path":"/{key}"}}"#);
    let removed = vec![r#"{"op":"remove","path":"/t/0"}"#; ITEMS - 10].join(",");
    let patch = Bytes::from(format!("[{away},{removed},{back}]"));
    let (_, difference, _, all) = measured(&object, &patch);
    assert!(difference.len() < 2 * object.len());
    let bytes = object.len() + patch.len();
    assert!(all < 20 * bytes, "{all} bytes for an object and a patch of {bytes}");
}
