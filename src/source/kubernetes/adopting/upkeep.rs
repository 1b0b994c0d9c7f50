//! Upkeep of our registrations: their webhooks follow from the hooks that are served and wanted.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde_json::{Value, json};

use super::{digest, judge::OwnRegistrations};
use crate::source::{Contents, kubernetes::objects::Kind};
use gatepost_adopt::{
    AdoptionSettings, AdoptionView, AssessedEntry, EntryKey, OwnRegistration, Reason, RegistrationUpdate,
};
use gatepost_api::HookType;
use gatepost_config::{Snapshot, SourceFile, load};

/// Delay before updating a registration that already sends every wanted request, and perhaps more.
const NARROWING_DELAY: Duration = Duration::from_secs(60);

/// Function that makes the webhooks of a registration of that type, with the addresses that it has.
pub type Upkeep = fn(&Snapshot, &Value, HookType) -> Result<Vec<Value>, String>;

/// State between reads.
#[derive(Debug, Default)]
pub(in super::super) struct Cache {
    /// Result of the comparison by type, with a digest of its inputs.
    comparisons: HashMap<HookType, ([u8; 32], Comparison)>,
    /// Time from which a registration has differed from the wanted one, by type, and a digest of both.
    differs_since: BTreeMap<HookType, ([u8; 32], Duration)>,
}

#[derive(Clone, Debug, Default)]
struct Comparison {
    /// Webhooks to write; `None` if the registration has these already.
    webhooks: Option<Vec<Value>>,
    /// True if some wanted requests are not sent.
    urgent: bool,
}

impl Cache {
    /// Returns the registrations to update, from everything that was read.
    pub(in super::super) fn updates(
        &mut self,
        (settings, upkeep): (&AdoptionSettings, Upkeep),
        lists: &[(Kind, Vec<Value>)],
        (contents, view): (&Contents, &AdoptionView),
    ) -> Vec<RegistrationUpdate> {
        let files = files(contents, view);
        let wanted = digest(
            files.iter().flat_map(|file| [file.name.clone(), String::from_utf8_lossy(&file.bytes).into_owned()]),
        );
        let mut snapshot = None;
        let mut updates = Vec::new();
        for (kind, items) in lists {
            let Some(hook_type) = kind.hook_type() else { continue };
            let own = OwnRegistrations::among(items, settings);
            let [item] = own.items[..] else { continue };
            let registration = OwnRegistration::of(hook_type, item).filter(|_| own.ambiguous.is_none());
            let Some(registration) = registration else { continue };
            let inputs = [format!("{wanted:?} {:?}", own.never_sent), item["webhooks"].to_string()];
            let inputs = digest(inputs.into_iter());
            let known =
                self.comparisons.get(&hook_type).filter(|(of, _)| *of == inputs).map(|(_, known)| known.clone());
            let comparison = known.unwrap_or_else(|| {
                let loaded = snapshot.get_or_insert_with(|| load(&files, &|written| contents.reference(written)).ok());
                loaded
                    .as_ref()
                    .map_or_else(Comparison::default, |snapshot| compared(snapshot, (item, hook_type), &own, upkeep))
            });
            self.comparisons.insert(hook_type, (inputs, comparison.clone()));
            let Some(webhooks) = comparison.webhooks else {
                self.differs_since.remove(&hook_type);
                continue;
            };
            let since = match self.differs_since.get(&hook_type) {
                Some((of, since)) if *of == inputs => *since,
                _ => view.now,
            };
            self.differs_since.insert(hook_type, (inputs, since));
            if comparison.urgent || view.now.saturating_sub(since) >= NARROWING_DELAY {
                updates.push(RegistrationUpdate { registration, webhooks, conditional: own.conditional.is_some() });
            }
        }
        updates
    }
}

fn compared(
    snapshot: &Snapshot,
    (item, hook_type): (&Value, HookType),
    own: &OwnRegistrations<'_>,
    upkeep: Upkeep,
) -> Comparison {
    let wanted = match upkeep(snapshot, item, hook_type) {
        Ok(wanted) if !wanted.is_empty() => wanted,
        Ok(_) => return Comparison::default(),
        Err(why) => {
            tracing::warn!(why, "cannot keep Gatepost's registration up to date; it stays as it is");
            return Comparison::default();
        }
    };
    let current = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    let is_same = current.len() == wanted.len()
        && wanted.iter().zip(current).all(|(wanted, current)| has_fields_of(current, wanted));
    // A condition that somebody has added to an entry may exclude any request.
    let never_sent = own.never_sent.as_deref().unwrap_or_default();
    let gaps = own.registration.gaps_outside(snapshot, never_sent);
    let missing = gaps.iter().any(|gap| gap.hook_type == hook_type);
    let urgent = missing || own.conditional.is_some();
    Comparison { webhooks: (!is_same).then_some(wanted), urgent }
}

/// Returns true if `current` has every field of `wanted`, and no further selector or condition that is not empty.
fn has_fields_of(current: &Value, wanted: &Value) -> bool {
    const SELECTING: [&str; 3] = ["namespaceSelector", "objectSelector", "matchConditions"];
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let has_all = wanted.as_object().into_iter().flatten().all(|(key, value)| current[key] == *value);
    has_all && SELECTING.iter().all(|key| !wanted[*key].is_null() || empty(&current[*key]))
}

/// Returns our own configuration, and every entry that is called or could be.
fn files(contents: &Contents, view: &AdoptionView) -> Vec<SourceFile> {
    let is_of_others = |name: &str| name.contains("webhookconfigurations/") || name.contains("admissionpolicies/");
    let ours = contents.files.iter().filter(|file| !is_of_others(&file.name));
    let mut files: Vec<_> = ours.cloned().collect();
    let mut entries: BTreeMap<&EntryKey, &Value> = BTreeMap::new();
    for AssessedEntry { standing, unservable, reason_not_to_adopt, wanted, .. } in &view.seen {
        let fits = matches!(reason_not_to_adopt, None | Some(Reason::Uncovered(_)));
        if wanted.is_ok() && unservable.is_none() && fits {
            entries.insert(&standing.key, &standing.content);
        }
    }
    entries.extend(view.calls.entries.iter().map(|called| (&called.key, &called.content)));
    let mut configurations: BTreeMap<(HookType, &str), Vec<&Value>> = BTreeMap::new();
    let mut bindings = Vec::new();
    for (key, content) in entries {
        match key.kind.is_binding() {
            true => bindings.push((key, content, None)),
            false => {
                configurations.entry((key.kind.hook_type(), &key.configuration)).or_default().push(content);
            }
        }
    }
    files.extend(configurations.into_iter().map(|(key, entries)| super::file(key, json!({}), json!(entries))));
    files.extend(super::policies::files(bindings.into_iter()));
    files
}

#[cfg(test)]
mod tests {
    use super::{super::EntryReader, *};
    use gatepost_adopt::AdoptionScope;

    #[test]
    fn defaults_added_by_an_apiserver_make_no_difference() {
        let wanted = json!({"name": "g", "rules": [{"scope": "*"}], "failurePolicy": "Fail"});
        let mut current = wanted.clone();
        current["namespaceSelector"] = json!({});
        assert!(has_fields_of(&current, &wanted));
        current["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
        assert!(!has_fields_of(&current, &wanted), "it leaves out what is wanted");
        let ignoring = json!({"failurePolicy": "Ignore"});
        assert!(!has_fields_of(&wanted, &ignoring));
    }

    /// A webhook for this resource, as an apiserver has it.
    fn webhook(name: &str, url: &str, resource: &str) -> Value {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]});
        json!({"name": name, "clientConfig": {"url": url}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [rule]})
    }

    /// One entry for each mutating hook, as `gatepost register` writes them where one is isolated.
    fn apart(snapshot: &Snapshot, _: &Value, _: HookType) -> Result<Vec<Value>, String> {
        let of = snapshot.hooks.len();
        let entry = |(hook, number): (&std::sync::Arc<gatepost_api::Hook>, usize)| {
            let name = format!("gatepost-{number}.mutate.gatepost.dev");
            let url = format!("https://127.0.0.1:9440/mutate/segment/{number}/of/{of}");
            webhook(&name, &url, &hook.rules[0].resources[0])
        };
        Ok(snapshot.hooks.iter().zip(1..).map(entry).collect())
    }

    #[test]
    fn updated_registration_is_stable_with_an_isolated_hook() {
        let object = |name: &str, webhooks: Vec<Value>| {
            let metadata = json!({"name": name, "uid": "u", "resourceVersion": "3"});
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": metadata, "webhooks": webhooks})
        };
        let mut isolated = webhook("own.example.com", "https://127.0.0.1:1/", "pods");
        isolated["isolate"] = true.into();
        isolated["type"] = "Mutating".into();
        let ours = json!({"apiVersion": "gatepost.dev/v1alpha1", "kind": "AdmissionControlConfiguration",
            "metadata": {"name": "own"}, "externalAdmissionHooks": [isolated]});
        let settings = AdoptionSettings {
            scope: AdoptionScope::All,
            namespace: "gatepost".to_owned(),
            replica: "r".to_owned(),
            registration: None,
        };
        let mut reader = EntryReader::default();
        let mut due = |second, registered: &[Value]| {
            let others = vec![webhook("a.x.y", "https://h.example.com/", "configmaps")];
            let items = vec![object("c", others), object("gatepost", registered.to_vec())];
            let lists = vec![(Kind::Webhooks(HookType::Mutating), items), (Kind::Configuration, vec![ours.clone()])];
            let read = (Duration::from_secs(second), &settings, "r/1");
            let (mut files, view) = reader.read(read, Vec::new(), &lists).unwrap();
            let name = "admissioncontrolconfigurations/own".to_owned();
            files.push(SourceFile { name, bytes: ours.to_string().into() });
            let contents = Contents::new(files, Default::default());
            reader
                .upkeep
                .updates((&settings, apart), &lists, (&contents, &view))
                .into_iter()
                .map(|update| update.webhooks)
                .next()
        };
        let before = [webhook("gatepost.mutate.gatepost.dev", "https://127.0.0.1:9440/mutate", "configmaps")];
        let written = due(0, &before).expect("pods are not sent");
        assert_eq!(written[0]["clientConfig"]["url"], "https://127.0.0.1:9440/mutate/segment/1/of/1", "{written:?}");
        for second in [1, 62, 130] {
            assert_eq!(due(second, &written), None, "after {second} s");
        }
    }
}
