//! Case: one review that is being decided, and the hooks that it is for.

use std::time::{Duration, Instant};

use super::{
    access::Access,
    bypass_decision::BypassDecision,
    caller::Caller,
    conditions::Judge,
    gate::Gate,
    lookup::{Found, Lookup, LookupError},
    select::{Role, Selected, Selection},
    status::{self, StatusError},
};
use crate::{
    clock::now,
    live::{Generation, discovery::DiscoveryView},
    model::{HookType, Review},
    snapshot::{HookSet, Matched},
};

/// One review that is being decided.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) gate: &'a Gate,
    pub(super) review: &'a Review,
    pub(super) caller: &'a Caller,
    pub(super) began: Instant,
    /// Age of the configuration when the decision began.
    pub(super) age: Option<Duration>,
    pub(super) generation: &'a Generation,
    pub(super) bypass: &'a BypassDecision<'a>,
    /// Decided access checks: those of one phase hold in the next.
    pub(super) access: &'a Access<'a>,
}

impl<'a> Case<'a> {
    /// The labels that selectors look at, of a review about an object; `found`: of its namespace, as it was found
    /// before.
    pub(super) fn lookup<'r>(&self, review: &'r Review, found: Option<Found>) -> Lookup<'r>
    where
        'a: 'r,
    {
        let Self { gate, caller, began, generation, access, .. } = *self;
        Lookup::new(generation, gate.namespaces.as_deref(), review, caller, began, access).with(found)
    }

    /// The hooks of that type whose rules mean this request.
    pub(super) fn matching(&self, hook_type: HookType) -> HookSet {
        let Self { gate, review, caller, generation, bypass, .. } = *self;
        if !generation.snapshot.has(hook_type) {
            return HookSet::new();
        }
        let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
        let served = looked.as_ref().map(DiscoveryView::served);
        let mut matching = Selection { generation, bypass, review, caller, served }.matching(hook_type);
        if let Some(segment) = caller.segment.filter(|_| hook_type == HookType::Mutating) {
            let snapshot = &generation.snapshot;
            matching
                .retain(|matched| snapshot.segment(matched.hook).is_none_or(|own| segment.asks(own.number, own.of)));
        }
        matching
    }

    /// The place of one hook in this request. Waits as [`Case::selected`] does, and has found out together what those
    /// `behind` it will need as well; `behind`: `None` where nothing is to be waited for, and then the place may be
    /// `None`.
    pub(super) async fn role(
        self,
        review: &Review,
        lookup: &mut Lookup<'_>,
        matched: Matched,
        behind: Option<&[Matched]>,
    ) -> Result<Option<Role<'a>>, StatusError> {
        let Self { gate, caller, generation, bypass, .. } = self;
        let mut found = false;
        loop {
            let role = {
                let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
                let served = looked.as_ref().map(DiscoveryView::served);
                let judge = Judge::new(&lookup.conditions);
                let selection = Selection { generation, bypass, review, caller, served };
                let role = selection.role(lookup, &judge, matched);
                if lookup.conditions.has_slow() {
                    behind.unwrap_or_default().iter().for_each(|next| selection.prepare(lookup, &judge, *next));
                }
                role
            };
            if lookup.conditions.has_slow() {
                match behind {
                    None => return Ok(None),
                    Some(_) => lookup.conditions.evaluate().await,
                }
                continue;
            }
            match role {
                Ok(role) => return Ok(Some(role)),
                Err(LookupError::Refused(refusal)) => return Err(refusal),
                Err(LookupError::Unavailable(why)) => return Err(Box::new(status::internal(&why))),
                Err(LookupError::Unknown(_) | LookupError::Large | LookupError::Slow) if behind.is_none() => {
                    return Ok(None);
                }
                Err(LookupError::Large) => lookup.read().await,
                Err(LookupError::Slow) => lookup.conditions.evaluate().await,
                Err(LookupError::Unknown(namespace)) if found => {
                    return Err(Box::new(status::namespace_not_found(&namespace)));
                }
                Err(LookupError::Unknown(namespace)) => {
                    found = true;
                    lookup.find(&namespace).await;
                }
            }
        }
    }

    /// The validating hooks this request is for. Waits only for a namespace, or a resource, that is not known
    /// yet, for large objects to be read, and for conditions that take long.
    pub(super) async fn selected(self, review: &Review) -> Result<Selected<'a>, StatusError> {
        let Self { gate, caller, generation, bypass, .. } = self;
        let mut lookup = self.lookup(review, None);
        let select = |lookup: &Lookup<'_>| {
            let looked = gate.discovery.as_ref().map(|discovery| discovery.look(now()));
            let served = looked.as_ref().map(DiscoveryView::served);
            Selection { generation, bypass, review, caller, served }.validating(lookup)
        };
        // Twice at most: for a namespace, and for a resource, that the cluster has just got.
        let (mut found, mut discovered) = (false, false);
        loop {
            match select(&lookup) {
                Ok(selected) if selected.undiscovered && !discovered => self.discovered().await,
                Ok(selected) => {
                    selected.count_unmet();
                    return Ok(selected);
                }
                Err(LookupError::Refused(refusal)) => return Err(refusal),
                Err(LookupError::Unavailable(why)) => return Err(Box::new(status::internal(&why))),
                Err(LookupError::Large) => {
                    lookup.read().await;
                    continue;
                }
                Err(LookupError::Slow) => {
                    lookup.conditions.evaluate().await;
                    continue;
                }
                Err(LookupError::Unknown(namespace)) if found => {
                    return Err(Box::new(status::namespace_not_found(&namespace)));
                }
                Err(LookupError::Unknown(namespace)) => {
                    found = true;
                    lookup.find(&namespace).await;
                    continue;
                }
            }
            discovered = true;
        }
    }

    /// Has what the cluster serves read anew, within the request's time.
    pub(super) async fn discovered(self) {
        /// An apiserver that takes longer is not waited for: hooks that may mean the request then fail their call.
        const LONGEST: Duration = Duration::from_secs(3);
        let Some(discovery) = &self.gate.discovery else { return };
        let until = self.caller.deadline.instant().min(now() + LONGEST);
        let _ = tokio::time::timeout_at(until.into(), discovery.refresh(now())).await;
    }
}
