//! In force: which webhooks of others are called in fact, and which of these as the last read has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    adopt::{CalledWebhook, WebhookKey},
    live::{Generation, LiveHook},
};

/// Time for a change by the owner to be in force, and for a probe of the endpoint that it names.
const SETTLES: Duration = Duration::from_secs(2);

/// Webhooks of others in one generation, by their ids.
#[derive(Debug, Default)]
pub(super) struct InForce {
    /// Called, wherever and in whatever state.
    pub(super) called: BTreeSet<String>,
    /// Called at the endpoint that their newest state names, and by that state. While one moves, the server that its owner
    /// has left is called; while its newest state is held back, a former one decides. Neither may be counted on.
    pub(super) in_place: BTreeSet<String>,
}

impl InForce {
    /// In this generation, by a read that wants these called.
    pub(super) fn of(generation: &Generation, asked: &[CalledWebhook]) -> Self {
        let newest: BTreeMap<_, _> =
            asked.iter().filter(|asked| !asked.former).map(|asked| (&*asked.id, &*asked.state)).collect();
        let mut found = Self::default();
        for (index, live) in (0..).zip(&generation.hooks).filter(|(_, live)| live.rotation.asks()) {
            let Some((id, state)) = of_others(generation, index, live) else { continue };
            if live.replacing.is_none() && state.is_some() && newest.get(&*id).copied() == state {
                found.in_place.insert(id.clone());
            }
            found.called.insert(id);
        }
        found
    }
}

/// Time from which each webhook has been called and not in place, by its id.
#[derive(Debug, Default)]
pub(super) struct Displaced(BTreeMap<String, Instant>);

impl Displaced {
    /// Webhooks that the others may count on: what is in place, and what was a moment ago. An owner who changes a webhook
    /// every other second does not keep it from being taken.
    pub(super) fn counted_on(&mut self, InForce { called, in_place }: InForce, now: Instant) -> BTreeSet<String> {
        self.0.retain(|id, _| called.contains(id) && !in_place.contains(id));
        for id in called.difference(&in_place) {
            self.0.entry(id.clone()).or_insert(now);
        }
        let settles = self.0.iter().filter(|(_, since)| now.saturating_duration_since(**since) < SETTLES);
        let settles: Vec<_> = settles.map(|(id, _)| id.clone()).collect();
        in_place.into_iter().chain(settles).collect()
    }
}

/// The webhook that this hook is, and the state of its entry.
fn of_others<'a>(generation: &'a Generation, index: u32, live: &LiveHook) -> Option<(String, Option<&'a str>)> {
    let origin = generation.snapshot.origin(index)?;
    let hook_type = live.hook.hook_type;
    let configuration = origin.file.strip_prefix(WebhookKey::resource(hook_type))?.strip_prefix('/')?;
    let (configuration, webhook) = (configuration.to_owned(), live.hook.name.to_string());
    Some((WebhookKey { hook_type, configuration, webhook }.id(), origin.state.as_deref()))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc, time::SystemTime};

    use serde_json::json;
    use tokio::runtime::Handle;

    use super::*;
    use crate::{
        adopt::Cause,
        hooks::Channel,
        live::{CallTarget, Replacement, Rotation},
        model::{HookType, Revision},
        snapshot::{ENTRY_STATES, SourceFile, load},
        telemetry::Metrics,
    };

    fn generation(moves: bool, probing: bool) -> Generation {
        let webhook = json!({"name": "w.x.y", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": []});
        let metadata = json!({"name": "c", "uid": "u", "annotations": {ENTRY_STATES: "w.x.y=s1 v.x.y=s2"}});
        let document = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": metadata, "webhooks": [webhook]});
        let name = "validatingwebhookconfigurations/c".to_owned();
        let file = SourceFile { name, bytes: document.to_string().into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        let (hook, since) = (Arc::clone(&snapshot.hooks[0]), SystemTime::UNIX_EPOCH);
        let channel = Channel::open(hook.endpoint.clone(), None, &[Handle::current()]);
        let replacing = Replacement { channel: Arc::clone(&channel), since, last_failure: None };
        let rotation =
            if probing { Rotation::Probing { since, last_failure: None } } else { Rotation::Active { since } };
        let live = LiveHook {
            target: CallTarget::new(Arc::clone(&hook), channel),
            rotation,
            replacing: moves.then_some(replacing),
            overdue: None,
            metrics: Metrics::new(1).hook(hook.hook_type, &hook.name),
            hook,
        };
        Generation {
            number: 1,
            digest: String::new(),
            revision: Revision::Store(1),
            published: since,
            snapshot: Arc::new(snapshot),
            hooks: vec![live],
            bypassed: Vec::new(),
            initializers: HashMap::default(),
        }
    }

    #[tokio::test]
    async fn what_moves_or_is_called_by_a_former_state_is_called_and_nobody_may_count_on_it() {
        let key =
            WebhookKey { hook_type: HookType::Validating, configuration: "c".to_owned(), webhook: "w.x.y".to_owned() };
        let found = |moves, probing, state: &str, former| {
            let (id, state) = (key.id(), state.to_owned());
            let (key, entry, cause) = (key.clone(), json!({}), Cause::Carries);
            let asked = CalledWebhook { key, id, entry, state, cause, at_once: true, former };
            let InForce { called, in_place } = InForce::of(&generation(moves, probing), &[asked]);
            (!called.is_empty(), !in_place.is_empty())
        };
        assert_eq!(found(false, false, "s1", false), (true, true));
        assert_eq!(found(false, false, "s1", true), (true, false), "its newest state cannot be served here");
        assert_eq!(found(false, false, "s2", false), (true, false), "its newest state is held back");
        assert_eq!(found(true, false, "s1", false), (true, false), "the endpoint that it moves to has passed no probe");
        assert_eq!(found(false, true, "s1", false), (false, false));
        let InForce { called, in_place } = InForce::of(&generation(false, false), &[]);
        assert_eq!((called.len(), in_place.len()), (1, 0), "no read has asked for it");
    }

    #[test]
    fn what_is_out_of_place_may_be_counted_on_for_a_moment() {
        let (mut displaced, began) = (Displaced::default(), Instant::now());
        let mut counted_on = |milliseconds, called: &[&str], in_place: &[&str]| {
            let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let in_force = InForce { called: set(called), in_place: set(in_place) };
            let counted_on = displaced.counted_on(in_force, began + Duration::from_millis(milliseconds));
            counted_on.into_iter().collect::<String>()
        };
        assert_eq!(counted_on(0, &["a", "b"], &["a", "b"]), "ab");
        assert_eq!(counted_on(1000, &["a", "b"], &["a"]), "ab");
        assert_eq!(counted_on(2999, &["a", "b"], &["a"]), "ab");
        assert_eq!(counted_on(3000, &["a", "b"], &["a"]), "a");
        assert_eq!(counted_on(4000, &["a", "b"], &["a", "b"]), "ab");
        assert_eq!(counted_on(5000, &["a", "b"], &["a"]), "ab", "anew");
        assert_eq!(counted_on(6000, &["a"], &["a"]), "a");
    }
}
