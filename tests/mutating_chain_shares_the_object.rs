//! A chain of gRPC hooks of which one changes the object: the object is never copied, and is sent on as it arrived
//! around the few new bytes.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops where its own setup is wrong")]

#[path = "support/mod.rs"]
mod support;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use bytes::Bytes;
use gatepost::review::{Caller, Reasons, decide};
use gatepost_api::{Phase, Rope};
use gatepost_wire::{
    inbound::view,
    pb::k8s::io::{
        api::admission::v1::{AdmissionRequest, AdmissionResponse},
        apimachinery::pkg::runtime::RawExtension,
    },
};
use support::{
    gate::{caller, document, gate, hook},
    mutating::LONG,
    reviews::{create_pod, message},
    scripted_hook::{Script, ScriptedHook},
};
use tokio::{runtime::Builder, sync::oneshot};
use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator<std::alloc::System> = Allocator::system();

/// The largest allocation of the measured step, and how many bytes there were, on whatever thread.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static ALL: AtomicUsize = AtomicUsize::new(0);
/// Allocations on the hooks' thread, which do not count.
static HOOKS_OWN: OnceLock<AllocationGroupId> = OnceLock::new();

struct Counter;

impl AllocationTracker for Counter {
    fn allocated(&self, _: usize, size: usize, _: usize, group: AllocationGroupId) {
        if HOOKS_OWN.get() != Some(&group) {
            LARGEST.fetch_max(size, Ordering::Relaxed);
            ALL.fetch_add(size, Ordering::Relaxed);
        }
    }

    fn deallocated(&self, _: usize, _: usize, _: usize, _: AllocationGroupId, _: AllocationGroupId) {}
}

/// Bytes of an object that is patched on the worker, and of one that is patched beside it.
const SIZES: [usize; 2] = [240 << 10, 256 << 10];
const HOOKS: usize = 8;
/// Most bytes by which an object of four times the size may take more: notes on it, and on the frames that carry it.
const DIFFERENCE: usize = 16 << 10;

/// Hooks on a thread of their own, of which the fourth adds a label.
struct Chain {
    urls: Vec<String>,
    _stop: oneshot::Sender<()>,
}

impl Chain {
    fn start() -> Self {
        let (urls, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::spawn(move || {
            let mut token = AllocationGroupToken::register().expect("a group");
            HOOKS_OWN.set(token.id()).expect("the only chain");
            let _guard = token.enter();
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let mut hooks = Vec::new();
                for n in 0..HOOKS {
                    let patches = Script::Respond(AdmissionResponse {
                        uid: Some("u".into()),
                        allowed: Some(true),
                        patch: Some(r#"[{"op":"add","path":"/metadata/labels/a","value":"1"}]"#.into()),
                        patch_type: Some("JSONPatch".into()),
                        ..AdmissionResponse::default()
                    });
                    hooks.push(ScriptedHook::start(if n == 3 { patches } else { Script::Allow }).await);
                }
                urls.send(hooks.iter().map(ScriptedHook::url).collect()).unwrap();
                let _ = stopped.await;
            });
        });
        Self { urls: started.recv().unwrap(), _stop: stop }
    }
}

/// A Pod of at least so many bytes, and some hundreds more.
fn large_pod(size: usize) -> AdmissionRequest {
    const ARGUMENT: usize = 98;
    let arguments =
        (0..size.div_ceil(ARGUMENT)).map(|n| format!("\"--argument-{n:06}={}\"", "x".repeat(77))).collect::<Vec<_>>();
    let containers = format!(r#"[{{"name":"c","image":"web:1","args":[{}]}}]"#, arguments.join(","));
    let pod = format!(
        r#"{{"kind":"Pod","metadata":{{"name":"p","labels":{{"b":"c"}}}},"spec":{{"containers":{containers}}}}}"#
    );
    AdmissionRequest { object: Some(RawExtension { raw: Some(pod.into()) }), ..create_pod("u", 0) }
}

#[test]
fn single_change_in_a_chain_writes_only_new_bytes() {
    AllocationRegistry::set_global_tracker(Counter).expect("the only tracker");
    let chain = Chain::start();
    let entry =
        |(n, url): (usize, &String)| hook(&format!("h{n}.example.com"), url, "type: Mutating\nsideEffects: None");
    let yaml = document(&chain.urls.iter().enumerate().map(entry).collect::<Vec<_>>());
    for size in SIZES {
        let whole = message(large_pod(size));
        // In one piece, and in DATA frames of the usual size: these are joined once, to be read.
        let frames: Vec<Bytes> =
            (0..whole.len()).step_by(16 << 10).map(|at| whole.slice(at..whole.len().min(at + (16 << 10)))).collect();
        for (pieces, joined) in [(vec![whole.clone()], 0), (frames, whole.len())] {
            let (all, largest) = allocated(&yaml, &pieces);
            assert!(all > 0, "nothing was measured");
            assert!(all < joined + (128 << 10), "{all} bytes, {largest} at once, of an object of {size}");
            assert!(largest < joined.max(33 << 10), "{largest} bytes at once, of an object of {size}");
        }
    }
    let of = |size| allocated(&yaml, &[message(large_pod(size))]).0;
    let (small, large) = (of(256 << 10), of(1 << 20));
    assert!(large.abs_diff(small) < DIFFERENCE, "{small} bytes of 256 KiB, {large} bytes of 1 MiB");
}

/// Bytes that deciding a review takes, which came in these pieces: all of them, and the most at once.
fn allocated(yaml: &str, pieces: &[Bytes]) -> (usize, usize) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let gate = gate(yaml, Reasons::First);
        let caller = Caller { phase: Phase::Mutate, ..caller(LONG) };
        for is_measured in [false, false, true] {
            let review = view(Rope::new(pieces.to_vec())).unwrap();
            LARGEST.store(0, Ordering::Relaxed);
            ALL.store(0, Ordering::Relaxed);
            if is_measured {
                AllocationRegistry::enable_tracking();
            }
            let verdict = decide(&gate, &review, &caller).await;
            AllocationRegistry::disable_tracking();
            assert!(verdict.allowed() && verdict.patch.is_some(), "{:?}", verdict.refusal);
        }
    });
    (ALL.load(Ordering::Relaxed), LARGEST.load(Ordering::Relaxed))
}
