//! Which hooks are asked: rules, then selectors. Source: `docs/reference/webhook-semantics.md` §4.

use std::cell::OnceCell;

use smallvec::SmallVec;

use super::{Caller, status, status::Refusal};
use crate::{
    live::{Generation, LiveHook, Rotation},
    model::{HookType, Labels, Operation, Phase, Review, Selector},
    snapshot::{HookSet, How, Wanted},
    wire::labels,
};

/// The hooks a request is for, in configuration order.
#[derive(Debug, Default)]
pub(super) struct Selected<'a> {
    /// In rotation: to be asked.
    pub(super) asked: SmallVec<[&'a LiveHook; 16]>,
    /// Still being probed: only named in the verdict.
    pub(super) probing: SmallVec<[&'a LiveHook; 2]>,
    /// In rotation, and not to be asked: they want the object in another version than the caller sent.
    pub(super) other_version: SmallVec<[(&'a LiveHook, Wanted); 2]>,
}

/// Selects the validating hooks of this request.
///
/// Every hook is decided before any is called. An error in deciding one (a namespace that does not exist, an object
/// that is not JSON) only counts for a hook that a rule would have matched; it then rejects the request, whatever the
/// hook's failure policy.
pub(super) fn select<'a>(
    generation: &'a Generation,
    review: &Review,
    caller: &Caller,
) -> Result<Selected<'a>, Refusal> {
    let mut selected = Selected::default();
    if caller.phase == Phase::Mutate {
        return Ok(selected);
    }
    let mut matching = HookSet::new();
    generation.snapshot.matching(review, &mut matching);
    let lookup = Lookup::new(generation, review, caller);
    for matched in matching {
        let Some(live) = generation.hooks.get(matched.hook as usize) else { continue };
        if live.hook.hook_type != HookType::Validating {
            continue;
        }
        match live.rotation {
            Rotation::Active { .. } if lookup.selects(live)? => match matched.how {
                How::AsMade | How::AsSent => selected.asked.push(live),
                How::OtherVersion(wanted) => selected.other_version.push((live, wanted)),
            },
            // A hook that is not asked rejects nothing, not even by an error in deciding it.
            Rotation::Probing { .. } if matches!(lookup.selects(live), Ok(true)) => selected.probing.push(live),
            _ => {}
        }
    }
    Ok(selected)
}

/// Labels looked up at most once a request, and only when a selector asks for them.
struct Lookup<'a> {
    generation: &'a Generation,
    review: &'a Review,
    caller: &'a Caller,
    own_object: OnceCell<Result<Option<Labels>, Refusal>>,
    old_object: OnceCell<Result<Option<Labels>, Refusal>>,
}

impl<'a> Lookup<'a> {
    fn new(generation: &'a Generation, review: &'a Review, caller: &'a Caller) -> Self {
        Self { generation, review, caller, own_object: OnceCell::new(), old_object: OnceCell::new() }
    }

    /// Do both selectors of this hook match? A clean "no" of either wins over an error of the other, and an error of
    /// the namespace selector over one of the object selector, as upstream.
    fn selects(&self, live: &LiveHook) -> Result<bool, Refusal> {
        let namespace = self.namespace_matches(&live.hook.namespace_selector);
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let object = self.object_matches(&live.hook.object_selector);
        if matches!(object, Ok(false)) {
            return Ok(false);
        }
        Ok(namespace? && object?)
    }

    /// Source: §4.3, upstream `W/predicates/namespace/matcher.go`.
    fn namespace_matches(&self, selector: &Selector) -> Result<bool, Refusal> {
        let review = self.review;
        let is_namespace = review.resource.resource == "namespaces";
        if selector.is_empty() || (review.namespace.is_empty() && !is_namespace) {
            return Ok(true);
        }
        let writes = matches!(review.operation, Operation::Create | Operation::Update);
        if is_namespace && review.sub_resource.is_empty() && writes {
            let none = Labels::default();
            return Ok(selector.matches(self.own_labels()?.unwrap_or(&none)));
        }
        // A Namespace's own request has its name as the namespace; where the caller left it out, the name is the same.
        let namespace = if review.namespace.is_empty() { &review.name } else { &review.namespace };
        let known = self.caller.namespace_labels.as_ref();
        let labels = known
            .or_else(|| self.generation.snapshot.namespace_labels(namespace))
            .ok_or_else(|| Box::new(status::namespace_not_found(namespace)))?;
        Ok(selector.matches(labels))
    }

    /// Source: §4.4, upstream `W/predicates/object/matcher.go`: the new object or the old one.
    fn object_matches(&self, selector: &Selector) -> Result<bool, Refusal> {
        if selector.is_empty() {
            return Ok(true);
        }
        let matches = |labels: Option<&Labels>| labels.is_some_and(|labels| selector.matches(labels));
        Ok(matches(self.own_labels()?) || matches(self.old_labels()?))
    }

    fn own_labels(&self) -> Result<Option<&Labels>, Refusal> {
        self.labels(&self.own_object, &self.review.object)
    }

    fn old_labels(&self) -> Result<Option<&Labels>, Refusal> {
        self.labels(&self.old_object, &self.review.old_object)
    }

    fn labels<'s>(
        &'s self,
        cell: &'s OnceCell<Result<Option<Labels>, Refusal>>,
        place: &Option<std::ops::Range<usize>>,
    ) -> Result<Option<&'s Labels>, Refusal> {
        let Some(place) = place else { return Ok(None) };
        cell.get_or_init(|| {
            labels::of_object(&self.review.bytes, place.clone()).map_err(|error| Box::new(status::internal(&error)))
        })
        .as_ref()
        .map(Option::as_ref)
        .map_err(Clone::clone)
    }
}
