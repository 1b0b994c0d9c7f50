//! Encoding of a review's objects: those in protobuf are only for hooks that take them so.
//!
//! A plugin sends them by its rule index, which may be that of the generation before. So each generation decides anew,
//! by the same rules as the index: if anything else is to read an object, the request is rejected before a hook is
//! called, and the verdict requests it in JSON from the caller.

use super::{
    context::{ReviewContext, ServedView},
    draft::{Draft, Flow},
    initialize, rejection,
};
use crate::telemetry::RequestOutcome;
use gatepost_api::{Verdict, verdict::OBJECT_ENCODING_ANNOTATION};
use gatepost_config::MatchSet;
use gatepost_wire::protobuf_object;

/// Rejects a request whose objects are in protobuf if something reads them in JSON, or if they are malformed.
pub(super) async fn check(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Flow {
    if !protobuf_object::has_any(ctx.review) {
        return Flow::Continue(());
    }
    check_readers(ctx, draft)?;
    let review = ctx.review.clone();
    let reading = move || Ok(protobuf_object::check(&review));
    match ctx.run_reading(ctx.review.bytes.len(), reading).await {
        Ok(Ok(())) => Flow::Continue(()),
        Ok(Err(why)) => draft.refuse(Box::new(rejection::unreadable_object(&why))),
        Err(refusal) => draft.refuse(refusal),
    }
}

/// Rejects a request whose objects are in protobuf if something reads them in JSON.
pub(super) fn check_readers(ctx: &ReviewContext<'_>, draft: &mut Draft<'_>) -> Flow {
    if !protobuf_object::has_any(ctx.review) {
        return Flow::Continue(());
    }
    let Some(reader) = json_reader(ctx) else { return Flow::Continue(()) };
    draft.wants_json = true;
    draft.outcome = Some(RequestOutcome::WrongEncoding);
    draft.refuse(Box::new(rejection::wants_json(&reader)))
}

/// Returns what may read the objects of this request in JSON, with its verb; also what decides in shadow. Selectors are
/// not compared.
fn json_reader(ctx: &ReviewContext<'_>) -> Option<String> {
    let snapshot = &ctx.generation.snapshot;
    if initialize::reads_objects(ctx) {
        return Some("initializers read them".to_owned());
    }
    let (view, mut matching) = (ctx.served(), MatchSet::new());
    let served = view.as_ref().map(ServedView::served);
    snapshot.matching_policies(ctx.review, served, &mut matching);
    let policies = matching.iter().filter_map(|matched| snapshot.policies().get(matched.index as usize));
    if let Some(policy) = policies.map(|policy| &policy.definition).find(|policy| ctx.calls(policy.hook_type)) {
        return Some(format!("policy {:?} reads them", policy.name));
    }
    snapshot.matching(ctx.review, served, &mut matching);
    // A hook that moves is still called as its former entry says.
    let takes_protobuf = |index: u32| {
        let live = ctx.generation.hooks.get(index as usize);
        snapshot.takes_protobuf(index) && live.is_none_or(|live| live.target.entry.takes_protobuf)
    };
    let hooks = matching.iter().filter(|matched| !takes_protobuf(matched.index));
    let mut hooks = hooks.filter_map(|matched| snapshot.hooks.get(matched.index as usize));
    hooks.find(|hook| ctx.calls(hook.hook_type)).map(|hook| format!("hook {:?} reads them", hook.name))
}

/// Tells the caller to send the request in JSON, if that is why it is rejected.
pub(super) fn annotate(draft: &Draft<'_>, verdict: &mut Verdict) {
    verdict.audit_annotations.retain(|(key, _)| key != OBJECT_ENCODING_ANNOTATION);
    if draft.wants_json {
        verdict.audit_annotations.push((OBJECT_ENCODING_ANNOTATION.to_owned(), "JSON".to_owned()));
    }
}
