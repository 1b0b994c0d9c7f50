//! A gate over hooks of one's choice, without sockets of our own.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use gatepost::{
    hooks::Channel,
    live::{CallTarget, Current, Generation, LiveHook, Rotation, break_glass::BreakGlassOrigin},
    review::{AdmissionDeps, Caller, Reasons, decide},
    telemetry::Metrics,
};
use gatepost_api::{BreakGlass, Deadline, Hook, Phase, Rope, Verdict};
use gatepost_config::{Snapshot, SourceFile};
use gatepost_wire::{inbound::view, pb::k8s::io::api::admission::v1::AdmissionRequest};

/// The configuration of one hook at this URL, with further lines of YAML (each indented by two).
pub fn hook(name: &str, url: &str, more: &str) -> String {
    format!(
        "- name: {name}\n  clientConfig: {{url: \"{url}\"}}\n  rules: [{{operations: [\"*\"], apiGroups: [\"*\"], apiVersions: [\"*\"], resources: [\"*/*\"]}}]\n{}",
        more.lines().map(|line| format!("  {line}\n")).collect::<String>()
    )
}

/// A whole configuration document of these hooks.
pub fn document(hooks: &[String]) -> String {
    format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\nexternalAdmissionHooks:\n{}",
        if hooks.is_empty() { "  []\n".to_owned() } else { hooks.concat() }
    )
}

/// A gate with this configuration in force, every hook Active.
pub fn gate(yaml: &str, reasons: Reasons) -> Arc<AdmissionDeps> {
    let files = [SourceFile { name: "test.yaml".into(), bytes: yaml.to_owned().into() }];
    let snapshot = gatepost_config::load(&files, &|path| std::fs::read(path)).expect("a valid configuration");
    let hooks = snapshot.hooks.clone();
    in_force(snapshot, &hooks, reasons)
}

/// The configuration is read in an hour's time: fresh for as long as a test may last on a busy machine.
pub const READ_IN: Duration = Duration::from_secs(3600);

/// A gate with this snapshot in force, every hook Active. `hooks` may say other things of a hook than the snapshot
/// does, where no configuration could: all but its rules, which were compiled.
pub fn in_force(snapshot: Snapshot, hooks: &[Arc<Hook>], reasons: Reasons) -> Arc<AdmissionDeps> {
    let metrics = Arc::new(Metrics::new(1));
    let workers = [tokio::runtime::Handle::current()];
    let hooks = hooks
        .iter()
        .map(|hook| LiveHook {
            hook: hook.clone(),
            target: CallTarget::new(hook.clone(), Channel::open(hook.endpoint.clone(), None, &workers)),
            rotation: Rotation::Active { since: SystemTime::now() },
            replacing: None,
            overdue: None,
            metrics: metrics.hook(hook.hook_type, &hook.name),
        })
        .collect();
    let current = Arc::new(Current::new(Instant::now()));
    current.publish(Arc::new(Generation { hooks, ..Generation::of(Arc::new(snapshot), &metrics) }));
    current.freshness().stamp_awake(Instant::now() + READ_IN);
    Arc::new(AdmissionDeps { reasons, patch_annotations: true, ..AdmissionDeps::new(current, metrics) })
}

/// The audit annotation that names the revision of [`gate`].
pub fn revision() -> (String, String) {
    ("gatepost.dev/revision".to_owned(), "1".to_owned())
}

/// Opens break-glass for these hooks, for a quarter of an hour.
pub fn open_break_glass(gate: &AdmissionDeps, hooks: &[&str]) {
    let document = BreakGlass {
        name: "night".into(),
        opened: SystemTime::now(),
        duration: Duration::from_secs(900),
        reason: "told so".into(),
        hooks: hooks.iter().map(|hook| (*hook).into()).collect(),
        opened_by: "ann".into(),
    };
    gate.break_glass.set_documents(BreakGlassOrigin::Source, vec![document], Instant::now(), SystemTime::now());
}

/// Decides one request with two seconds' time.
pub async fn ask(gate: &AdmissionDeps, request: AdmissionRequest) -> Verdict {
    ask_within(gate, request, Duration::from_secs(2)).await
}

/// Decides one request with this much time.
pub async fn ask_within(gate: &AdmissionDeps, request: AdmissionRequest, budget: Duration) -> Verdict {
    let review = view(Rope::new([super::reviews::message(request)])).expect("a review");
    decide(gate, &review, &caller(budget)).await
}

/// A caller that waits so long.
pub fn caller(budget: Duration) -> Caller {
    Caller::new(Phase::Review, Deadline::after(Instant::now(), budget))
}
