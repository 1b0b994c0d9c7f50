//! Verdict: combines calls into one verdict. Pure, and independent of the order in which the answers arrived.
//!
//! Warnings and audit annotations are merged within upstream's limits: `docs/reference/webhook-semantics.md` §10.2
//! (`pkg/endpoints/filters/warning.go`) and §10.3 (`pkg/admission/attributes.go`).

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map::Entry},
};

use serde::Serialize;
use serde_json::value::RawValue;

use super::record::{CallRecord, Change, Ending};
use crate::telemetry::{DroppedAnnotation, HookOutcome};
use gatepost_api::{
    Enforcement, HookType, StatusCause, StatusInfo, Verdict,
    names::{is_dns_subdomain, is_label_word},
};
use gatepost_wire::answer::{JSON_PATCH, MAX_ANNOTATIONS, shortened_to};

/// Prefix of the annotations that state for each call of a mutating hook whether it changed the object. Upstream:
/// `W/mutating/dispatcher.go`.
const MUTATION: &str = "mutation.webhook.admission.k8s.io";
/// Prefix of the annotations with the patches that were applied.
const PATCH: &str = "patch.webhook.admission.k8s.io";
/// Maximum size of a patch in an annotation, in bytes.
const MAX_ANNOTATED_PATCH: usize = 256 << 10;
/// Maximum number of characters of all warnings of a request together.
pub(super) const MAX_WARNINGS: usize = 4096;
/// Maximum number of characters of one warning, once all together exceed [`MAX_WARNINGS`].
const MAX_CUT_WARNING: usize = 256;
/// Maximum size of the message of one rejection that is not enforced, in a warning or an annotation, in bytes.
const MAX_UNENFORCED: usize = 1024;
/// Maximum size of one answer's annotations, keys and values, in bytes.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// Returns the prefix of the annotations that name hooks of this type which failed open. Upstream:
/// `W/validating/dispatcher.go`, `W/mutating/dispatcher.go`.
fn failed_open_prefix(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "failed-open.validating.webhook.admission.k8s.io",
        HookType::Mutating => "failed-open.mutation.webhook.admission.k8s.io",
    }
}

/// Returns the prefix of the annotations that name hooks of this type which have not passed their probe yet.
fn probing_prefix(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "probing.validating.gatepost.dev",
        HookType::Mutating => "probing.mutation.gatepost.dev",
    }
}

/// Returns the prefix of the annotations about rejections by hooks and policies of this type that do not enforce.
fn would_deny_prefix(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "would-deny.validating.gatepost.dev",
        HookType::Mutating => "would-deny.mutation.gatepost.dev",
    }
}

/// A verdict, and the annotations that were dropped from it.
#[derive(Debug, Default)]
pub struct CombinedVerdict {
    /// Answer to the caller.
    pub verdict: Verdict,
    /// Audit annotations that were dropped.
    pub dropped: Vec<DroppedAnnotations>,
}

/// Dropped audit annotations of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedAnnotations {
    /// Index of the call whose answer had them.
    pub call: usize,
    /// Reason why they were dropped.
    pub cause: DroppedAnnotation,
    /// Number of dropped annotations.
    pub count: usize,
}

/// Combines calls into the verdict: first those of mutating hooks, in order, then those of validating ones, in
/// configuration order. With `patches`, patches are put into annotations.
///
/// Any rejection rejects. If there are several, the verdict gives every reason, ordered by hook name, with the code of
/// the first. Upstream gives only the reason that arrived first.
pub fn combine(calls: &[CallRecord<'_>], patches: bool) -> CombinedVerdict {
    let mut parts = Parts::default();
    // First, so that no hook's own warnings take their room.
    for call in calls.iter().filter(|call| call.enforcement == Enforcement::Warn) {
        for refusal in call.refusals() {
            parts.warnings.add(format!("not enforced: {}", shortened_to(MAX_UNENFORCED, &refusal.message)));
        }
    }
    for (index, call) in calls.iter().enumerate() {
        parts.add(index, call, patches);
    }
    for hook_type in [HookType::Mutating, HookType::Validating] {
        let is_unproven =
            |call: &&CallRecord<'_>| call.hook_type == hook_type && matches!(call.ending, Ending::Unproven);
        for (index, call) in calls.iter().filter(is_unproven).enumerate() {
            let name = call.decider.name();
            let warning = format!("admission hook \"{name}\" was not called: it has not yet passed its probe");
            parts.warnings.add(warning);
            parts.annotations.add(probing_prefix(hook_type), &format!("round_0_index_{index}"), name);
        }
    }
    parts.combined()
}

/// Parts of a verdict, which calls are added to.
#[derive(Default)]
struct Parts<'a> {
    warnings: Warnings<'a>,
    annotations: Annotations,
    dropped: Vec<DroppedAnnotations>,
    rejections: Vec<(&'a str, StatusInfo)>,
    /// Number of annotations so far about unenforced rejections, by type of the hook.
    audited: [usize; 2],
}

impl<'a> Parts<'a> {
    fn add(&mut self, index: usize, call: &'a CallRecord<'a>, patches: bool) {
        let Self { annotations, dropped, rejections, warnings, .. } = self;
        let name = call.decider.name();
        if let Some(answer) = call.answer() {
            answer.warnings.iter().for_each(|text| warnings.add(&**text));
            let mut drop = |cause, count| dropped.push(DroppedAnnotations { call: index, cause, count });
            // Only a hook that may itself be a sidecar can name its own hooks in keys. Upstream does not allow it.
            annotations.add_all(name, call.decider.is_chained(), &answer.audit_annotations, &mut drop);
            if answer.annotations_left_out > 0 {
                drop(DroppedAnnotation::Limit, answer.annotations_left_out);
            }
        }
        match (&call.ending, call.outcome()) {
            (Ending::OutOfTime(_) | Ending::Unproven, _) => return,
            // As in upstream, a skipped policy is not reported.
            (_, Some(HookOutcome::FailedOpen(_))) if !call.decider.is_policy() => {
                annotations.add(failed_open_prefix(call.hook_type), &key(call), name);
            }
            _ => {}
        }
        for refusal in call.refusals() {
            match call.enforcement {
                Enforcement::Deny => rejections.push((name, refusal)),
                Enforcement::Audit => {
                    let number = &mut self.audited[call.hook_type as usize];
                    let message = shortened_to(MAX_UNENFORCED, &refusal.message);
                    annotations.add(would_deny_prefix(call.hook_type), &number.to_string(), &message);
                    *number += 1;
                }
                Enforcement::Warn | Enforcement::Shadow => {}
            }
        }
        if call.hook_type == HookType::Mutating && !call.decider.is_policy() {
            self.add_mutation(call, patches);
        }
    }

    fn add_mutation(&mut self, call: &'a CallRecord<'a>, patches: bool) {
        let (webhook, configuration, change) = (call.decider.name(), configuration(call), call.change.as_deref());
        let mutated = matches!(change, Some(Change::Patched(_)));
        self.annotations.add(MUTATION, &key(call), &json(&MutationAnnotation { configuration, webhook, mutated }));
        match change {
            Some(Change::Patched(text) | Change::Unchanged(text)) if patches && text.len() <= MAX_ANNOTATED_PATCH => {
                // It was parsed as JSON before, so it is valid.
                if let Ok(patch) = serde_json::from_slice(text) {
                    let patch = PatchAnnotation { configuration, webhook, patch, patch_type: JSON_PATCH };
                    self.annotations.add(PATCH, &key(call), &json(&patch));
                }
            }
            _ => {}
        }
    }

    fn combined(self) -> CombinedVerdict {
        let Self { warnings, annotations, dropped, mut rejections, .. } = self;
        rejections.sort_by_key(|(name, _)| *name);
        let verdict = Verdict {
            refusal: all_reasons(rejections),
            patch: None,
            warnings: warnings.into_vec(),
            audit_annotations: annotations.into_vec(),
        };
        CombinedVerdict { verdict, dropped }
    }
}

/// Returns the key of the annotations about a call, without the prefix.
fn key(call: &CallRecord<'_>) -> String {
    format!("round_{}_index_{}", call.round, call.index)
}

/// Returns the name of the configuration that contains the decider.
fn configuration<'a>(call: &CallRecord<'a>) -> &'a str {
    let id = call.decider.id();
    id.strip_prefix("manifest/").unwrap_or(id).split('/').next().unwrap_or_default()
}

/// Value of the annotation about a call, with its fields in upstream's order.
#[derive(Serialize)]
struct MutationAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// Value of the annotation about a patch, with its fields in upstream's order.
#[derive(Serialize)]
struct PatchAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a RawValue,
    #[serde(rename = "patchType")]
    patch_type: &'static str,
}

fn json(text: &impl Serialize) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn all_reasons(mut rejections: Vec<(&str, StatusInfo)>) -> Option<StatusInfo> {
    if rejections.len() < 2 {
        return rejections.pop().map(|(_, only)| only);
    }
    let messages: Vec<&str> = rejections.iter().map(|(_, status)| &*status.message).collect();
    let message = messages.join("; ");
    let causes = rejections
        .iter()
        .map(|(name, status)| StatusCause {
            reason: status.reason.clone(),
            message: status.message.clone(),
            field: (*name).to_owned(),
        })
        .collect();
    let (_, first) = rejections.swap_remove(0);
    Some(StatusInfo { message, causes, ..first })
}

/// Warnings of one request, within upstream's limits.
#[derive(Debug, Default)]
struct Warnings<'a> {
    /// Accepted warnings in order, not truncated.
    accepted: Vec<Cow<'a, str>>,
    /// Accepted warnings, to find repeats. The hash is keyed, as hooks choose the texts.
    seen: HashSet<Cow<'a, str>>,
    /// Number of characters that the client gets.
    written: usize,
    truncating: bool,
}

impl<'a> Warnings<'a> {
    /// Adds a warning, unless it is empty, repeated, not printable, or beyond the limit.
    fn add(&mut self, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if self.written >= MAX_WARNINGS || text.is_empty() || text.chars().any(char::is_control) {
            return;
        }
        if !self.seen.insert(text.clone()) {
            return;
        }
        let len = text.chars().count();
        self.accepted.push(text);
        if self.truncating {
            self.written += len.min(MAX_CUT_WARNING);
        } else if self.written + len > MAX_WARNINGS {
            self.truncating = true;
            self.written = self.accepted.iter().map(|text| text.chars().take(MAX_CUT_WARNING).count()).sum();
        } else {
            self.written += len;
        }
    }

    /// Returns the warnings for the client.
    fn into_vec(self) -> Vec<String> {
        let item = if self.truncating { MAX_CUT_WARNING } else { MAX_WARNINGS };
        let cut = |text: Cow<'a, str>| text.chars().take(item).collect::<String>();
        let mut written = 0;
        let mut kept: Vec<_> = self.accepted.into_iter().map(cut).collect();
        kept.retain(|text| {
            let fits = written < MAX_WARNINGS;
            written += text.chars().count();
            fits
        });
        kept
    }
}

/// Audit annotations of one request.
#[derive(Debug, Default)]
struct Annotations {
    /// Annotations by key, each with its index in the order of addition. The hash is keyed, as hooks choose the keys.
    by_key: HashMap<String, (usize, String)>,
}

impl Annotations {
    /// Adds the annotations of one hook's answer as `<hook>/<key>`, and reports how many are dropped and why.
    ///
    /// `chained`: the hook may itself be a sidecar. Its keys may then name its own hooks (`<inner hook>/<key>`), and
    /// are kept as `<hook>/<inner hook>.<key>` if that is valid.
    fn add_all(
        &mut self,
        hook: &str,
        chained: bool,
        pairs: &[(String, String)],
        mut dropped: impl FnMut(DroppedAnnotation, usize),
    ) {
        // Usually there are none. Then the hook's name is not checked.
        if pairs.is_empty() {
            return;
        }
        let (mut left, is_valid_name) = (MAX_ANNOTATION_BYTES, is_dns_subdomain(hook));
        for (position, (key, value)) in pairs.iter().enumerate() {
            let size = hook.len() + 1 + key.len() + value.len();
            if position == MAX_ANNOTATIONS || size > left {
                return dropped(DroppedAnnotation::Limit, pairs.len() - position);
            }
            let added =
                if is_valid_name { self.add_one(hook, chained, key, value) } else { Err(DroppedAnnotation::Key) };
            match added {
                Ok(()) => left -= size,
                Err(cause) => dropped(cause, 1),
            }
        }
    }

    /// Adds an annotation of Gatepost's own.
    fn add(&mut self, prefix: &str, key: &str, value: &str) {
        let _ = self.insert(format!("{prefix}/{key}"), value);
    }

    fn add_one(&mut self, hook: &str, chained: bool, key: &str, value: &str) -> Result<(), DroppedAnnotation> {
        let inner = key.split_once('/').filter(|(inner, _)| chained && is_dns_subdomain(inner));
        let full = match inner {
            Some((inner, rest)) => format!("{hook}/{inner}.{rest}"),
            None => format!("{hook}/{key}"),
        };
        if is_label_word(&full[hook.len() + 1..]) { self.insert(full, value) } else { Err(DroppedAnnotation::Key) }
    }

    /// Adds an annotation. The first value of a key stays.
    fn insert(&mut self, full: String, value: &str) -> Result<(), DroppedAnnotation> {
        let place = self.by_key.len();
        match self.by_key.entry(full) {
            Entry::Vacant(entry) => _ = entry.insert((place, value.to_owned())),
            Entry::Occupied(entry) if entry.get().1 == value => {}
            Entry::Occupied(_) => return Err(DroppedAnnotation::Value),
        }
        Ok(())
    }

    /// Returns all annotations, in the order of addition.
    fn into_vec(self) -> Vec<(String, String)> {
        let mut all: Vec<_> = self.by_key.into_iter().map(|(key, (place, value))| (place, key, value)).collect();
        all.sort_unstable_by_key(|(place, ..)| *place);
        all.into_iter().map(|(_, key, value)| (key, value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::review::record::Decider;
    use gatepost_api::{Answer, Denial, FailurePolicy};

    #[derive(Debug)]
    struct Warns;

    impl Decider for Warns {
        fn name(&self) -> &str {
            "warns"
        }

        fn id(&self) -> &str {
            "warns"
        }

        fn failure_policy(&self) -> FailurePolicy {
            FailurePolicy::Fail
        }

        fn enforcement(&self) -> Enforcement {
            Enforcement::Warn
        }
    }

    #[test]
    fn warn_denials_are_kept_despite_many_warnings() {
        let answered = |answer| CallRecord::new(&Warns, HookType::Validating, Ending::Answered(answer), Duration::ZERO);
        let denial = StatusInfo { message: "first\nsecond".to_owned(), ..StatusInfo::default() };
        let calls = [
            answered(Answer { warnings: vec!["x".repeat(5000)], ..Answer::default() }),
            answered(Answer { denial: Some(Denial(Box::new(denial))), ..Answer::default() }),
        ];
        let warnings = combine(&calls, false).verdict.warnings;
        assert_eq!(warnings.len(), 2);
        assert_eq!(warnings[0], "not enforced: admission webhook \"warns\" denied the request: first second");
    }

    #[derive(Debug)]
    struct Named(&'static str);

    impl Decider for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn id(&self) -> &str {
            self.0
        }

        fn failure_policy(&self) -> FailurePolicy {
            FailurePolicy::Fail
        }
    }

    #[test]
    fn probed_hooks_are_named_by_their_effect() {
        let probed = |hook, hook_type| CallRecord::new(hook, hook_type, Ending::Unproven, Duration::ZERO);
        let calls = [
            probed(&Named("m"), HookType::Mutating),
            probed(&Named("a"), HookType::Validating),
            probed(&Named("b"), HookType::Validating),
        ];
        let CombinedVerdict { verdict, .. } = combine(&calls, false);
        let named: Vec<_> = verdict.audit_annotations.iter().map(|(key, name)| (&**key, &**name)).collect();
        let wanted = [
            ("probing.mutation.gatepost.dev/round_0_index_0", "m"),
            ("probing.validating.gatepost.dev/round_0_index_0", "a"),
            ("probing.validating.gatepost.dev/round_0_index_1", "b"),
        ];
        assert_eq!(named, wanted);
        assert_eq!(verdict.warnings.len(), 3);
    }

    fn merged<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Vec<String> {
        let mut warnings = Warnings::default();
        let texts: Vec<S> = texts.into_iter().collect();
        texts.iter().for_each(|text| warnings.add(text.as_ref()));
        warnings.into_vec()
    }

    #[test]
    fn empty_repeated_and_unprintable_ones_are_dropped() {
        assert_eq!(merged(["a", "", "b", "a", "x\ny", "c\u{7f}"]), ["a", "b"]);
    }

    #[test]
    fn warnings_are_complete_until_the_first_overflow() {
        let long = "é".repeat(4000);
        assert_eq!(merged(std::slice::from_ref(&long)), std::slice::from_ref(&long));
        assert_eq!(
            merged([long, "second".into(), "x".repeat(300)]),
            ["é".repeat(256), "second".into(), "x".repeat(256)]
        );
    }

    #[test]
    fn nothing_is_added_beyond_the_total() {
        let many = (0..100).map(|n| format!("{n:0>300}"));
        let kept = merged(many);
        assert_eq!(kept.len(), 16);
        assert!(kept.iter().all(|text| text.len() == 256));
    }

    fn added(
        annotations: &mut Annotations,
        hook: &str,
        chained: bool,
        pairs: &[(&str, &str)],
    ) -> Vec<(DroppedAnnotation, usize)> {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut dropped = Vec::new();
        annotations.add_all(hook, chained, &pairs, |cause, count| dropped.push((cause, count)));
        dropped
    }

    /// Upstream: pkg/admission/attributes_test.go TestAddAnnotation, restated.
    #[test]
    fn keys_must_be_qualified_and_the_first_value_wins() {
        let mut annotations = Annotations::default();
        let hook = "podsecuritypolicy.admission.k8s.io";
        let dropped = added(
            &mut annotations,
            hook,
            false,
            &[
                ("validate-policy", "privileged"),
                ("admit-policy", "privileged"),
                ("admit-policy", "another"),
                ("admit-policy", "privileged"),
            ],
        );
        assert_eq!(dropped, [(DroppedAnnotation::Value, 1)]);
        for bad in ["", "two/slashes/here", "Not.a.subdomain/key", "-x", "x-", "ümlaut", &"x".repeat(64)] {
            assert_eq!(added(&mut annotations, hook, false, &[(bad, "value")]), [(DroppedAnnotation::Key, 1)], "{bad}");
        }
        let bad = [(DroppedAnnotation::Key, 1)];
        assert_eq!(added(&mut annotations, "Upper.case", false, &[("key", "value")]), bad);
        assert_eq!(added(&mut annotations, "hook.example.com", false, &[("inner.example.com/checked", "yes")]), bad);
        assert_eq!(added(&mut annotations, "sidecar.example.com", true, &[("inner.example.com/checked", "yes")]), []);
        assert_eq!(added(&mut annotations, "sidecar.example.com", true, &[("two/slashes/here", "yes")]), bad);
        assert_eq!(
            annotations.into_vec(),
            [
                ("podsecuritypolicy.admission.k8s.io/validate-policy".to_owned(), "privileged".to_owned()),
                ("podsecuritypolicy.admission.k8s.io/admit-policy".to_owned(), "privileged".to_owned()),
                ("sidecar.example.com/inner.example.com.checked".to_owned(), "yes".to_owned()),
            ]
        );
    }

    #[test]
    fn one_answer_adds_so_many_and_so_much_and_no_more() {
        let many: Vec<_> = (0..100_000).map(|n| (format!("key-{n}"), "v".to_owned())).collect();
        let mut annotations = Annotations::default();
        for hook in ["a.example.com", "b.example.com"] {
            let mut dropped = Vec::new();
            annotations.add_all(hook, false, &many, |cause, count| dropped.push((cause, count)));
            assert_eq!(dropped, [(DroppedAnnotation::Limit, 99_000)], "reported once");
        }
        assert_eq!(annotations.into_vec().len(), 2 * MAX_ANNOTATIONS);

        let large = "v".repeat(MAX_ANNOTATION_BYTES / 2);
        let mut annotations = Annotations::default();
        let pairs = [("a", &*large), ("b", &*large), ("c", "v")];
        assert_eq!(added(&mut annotations, "a.example.com", false, &pairs), [(DroppedAnnotation::Limit, 2)]);
        assert_eq!(annotations.into_vec().len(), 1);
    }
}
