//! Upkeep: our registrations, as they have to be for what is served and for what is wanted.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Adopt, AdoptionView, digest, own::Own};
use crate::{
    adopt::{OwnRegistration, Reason, SeenWebhook, WebhookKey},
    model::HookType,
    snapshot::{Snapshot, SourceFile, load},
    source::{Contents, kubernetes::objects::Kind},
};

/// Delay before a registration is updated that already sends everything that is wanted, and perhaps more.
const WIDE: Duration = Duration::from_secs(60);

/// Maker of the webhooks of a registration: of that type, for that configuration, leading where those lead that it has.
#[derive(Clone, Copy)]
pub struct Upkeep(pub fn(&Snapshot, &Value, HookType) -> Result<Vec<Value>, String>);

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

impl PartialEq for Upkeep {
    /// There is one.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Upkeep {}

/// A registration that is to have these webhooks.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// The registration as it was read.
    pub registered: OwnRegistration,
    /// Its webhooks from now on.
    pub webhooks: Vec<Value>,
    /// An entry of it has a condition of others, which may hold anything back.
    pub conditional: bool,
}

/// State between reads.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Cached result of the comparison, by type, with a digest of its inputs.
    found: HashMap<HookType, ([u8; 32], Found)>,
    /// Time from which a registration has differed from the wanted one, by type, and a digest of both.
    wide: BTreeMap<HookType, ([u8; 32], Duration)>,
}

#[derive(Clone, Debug, Default)]
struct Found {
    webhooks: Option<Vec<Value>>,
    /// Some wanted requests are not sent.
    urgent: bool,
}

/// Registrations to update, given everything that was read.
pub(super) fn due(
    memory: &mut Memory,
    adopt: &Adopt,
    lists: &[(Kind, Vec<Value>)],
    (contents, view): (&Contents, &AdoptionView),
) -> Vec<Due> {
    let Some(Upkeep(webhooks)) = adopt.upkeep else { return Vec::new() };
    let files = files(contents, view);
    let wanted =
        digest(files.iter().flat_map(|file| [file.name.clone(), String::from_utf8_lossy(&file.bytes).into_owned()]));
    let mut snapshot = None;
    let mut all = Vec::new();
    for (kind, items) in lists {
        let Some(hook_type) = kind.hook_type() else { continue };
        let own = Own::among(items, adopt);
        let [item] = own.items[..] else { continue };
        let Some(registered) = OwnRegistration::of(hook_type, item).filter(|_| own.ambiguous.is_none()) else {
            continue;
        };
        let state = [format!("{wanted:?} {:?}", own.never_sent), item["webhooks"].to_string()];
        let state = digest(state.into_iter());
        let known = memory.found.get(&hook_type).filter(|(of, _)| *of == state).map(|(_, found)| found.clone());
        let found = known.unwrap_or_else(|| {
            let loaded = snapshot.get_or_insert_with(|| load(&files, &|written| contents.reference(written)).ok());
            loaded
                .as_ref()
                .map_or_else(Found::default, |snapshot| compared(snapshot, (item, hook_type), &own, webhooks))
        });
        memory.found.insert(hook_type, (state, found.clone()));
        let Some(webhooks) = found.webhooks else {
            memory.wide.remove(&hook_type);
            continue;
        };
        let since = match memory.wide.get(&hook_type) {
            Some((of, since)) if *of == state => *since,
            _ => view.now,
        };
        memory.wide.insert(hook_type, (state, since));
        if found.urgent || view.now.saturating_sub(since) >= WIDE {
            all.push(Due { registered, webhooks, conditional: own.conditional.is_some() });
        }
    }
    all
}

fn compared(
    snapshot: &Snapshot,
    (item, hook_type): (&Value, HookType),
    own: &Own<'_>,
    webhooks: fn(&Snapshot, &Value, HookType) -> Result<Vec<Value>, String>,
) -> Found {
    let wanted = match webhooks(snapshot, item, hook_type) {
        Ok(wanted) if !wanted.is_empty() => wanted,
        Ok(_) => return Found::default(),
        Err(why) => {
            tracing::warn!(why, "cannot keep Gatepost's registration up to date; it stays as it is");
            return Found::default();
        }
    };
    let current = item["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    let same =
        current.len() == wanted.len() && wanted.iter().zip(current).all(|(wanted, current)| says(current, wanted));
    // A condition that somebody has put on an entry may hold anything back.
    let never_sent = own.never_sent.as_deref().unwrap_or_default();
    let gaps = own.registration.gaps_but_in(snapshot, never_sent);
    let missing = gaps.iter().any(|gap| gap.hook_type == hook_type);
    let urgent = missing || own.conditional.is_some();
    Found { webhooks: (!same).then_some(wanted), urgent }
}

/// True where `current` has every field of `wanted`, and no selector or condition besides; the apiserver's defaults are
/// ignored.
fn says(current: &Value, wanted: &Value) -> bool {
    const SELECTING: [&str; 3] = ["namespaceSelector", "objectSelector", "matchConditions"];
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let told = wanted.as_object().into_iter().flatten().all(|(key, value)| current[key] == *value);
    told && SELECTING.iter().all(|key| !wanted[*key].is_null() || empty(&current[*key]))
}

/// Our own configuration, and every webhook that is called, or could be.
fn files(contents: &Contents, view: &AdoptionView) -> Vec<SourceFile> {
    let ours = contents.files.iter().filter(|file| !file.name.contains("webhookconfigurations/"));
    let mut files: Vec<_> = ours.cloned().collect();
    let mut entries: BTreeMap<&WebhookKey, &Value> = BTreeMap::new();
    for SeenWebhook { standing, unservable, objection, wanted, .. } in &view.seen {
        let fits = matches!(objection, None | Some(Reason::Uncovered(_)));
        if wanted.is_ok() && unservable.is_none() && fits {
            entries.insert(&standing.key, &standing.entry);
        }
    }
    entries.extend(view.followed.webhooks.iter().map(|asked| (&asked.key, &asked.entry)));
    let mut configurations: BTreeMap<(HookType, &str), Vec<&Value>> = BTreeMap::new();
    for (key, entry) in entries {
        configurations.entry((key.hook_type, &key.configuration)).or_default().push(entry);
    }
    files.extend(configurations.into_iter().map(|((hook_type, name), entries)| {
        let document = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": WebhookKey::kind(hook_type),
            "metadata": {"name": name}, "webhooks": entries,
        });
        let name = format!("{}/{name}", WebhookKey::resource(hook_type));
        SourceFile { name, bytes: document.to_string().into() }
    }));
    files
}

#[cfg(test)]
mod tests {
    use super::{super::Adopting, *};
    use crate::adopt::AdoptionScope;

    #[test]
    fn what_an_apiserver_adds_makes_no_difference() {
        let wanted = json!({"name": "g", "rules": [{"scope": "*"}], "failurePolicy": "Fail"});
        let mut current = wanted.clone();
        current["namespaceSelector"] = json!({});
        assert!(says(&current, &wanted));
        current["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
        assert!(!says(&current, &wanted), "it leaves out what is wanted");
        let ignoring = json!({"failurePolicy": "Ignore"});
        assert!(!says(&wanted, &ignoring));
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
        let entry = |(hook, number): (&std::sync::Arc<crate::model::Hook>, usize)| {
            let name = format!("gatepost-{number}.mutate.gatepost.dev");
            let url = format!("https://127.0.0.1:9440/mutate/segment/{number}/of/{of}");
            webhook(&name, &url, &hook.rules[0].resources[0])
        };
        Ok(snapshot.hooks.iter().zip(1..).map(entry).collect())
    }

    #[test]
    fn what_is_written_stays_read_after_read_although_a_hook_is_isolated() {
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
        let adopt = Adopt {
            wanted: AdoptionScope::All,
            namespace: "gatepost".to_owned(),
            replica: "r".to_owned(),
            registration: None,
            upkeep: Some(Upkeep(apart)),
        };
        let mut adopting = Adopting::default();
        let mut due = |second, registered: &[Value]| {
            let others = vec![webhook("a.x.y", "https://h.example.com/", "configmaps")];
            let items = vec![object("c", others), object("gatepost", registered.to_vec())];
            let lists = vec![(Kind::Mutating, items), (Kind::Configuration, vec![ours.clone()])];
            let read = (Duration::from_secs(second), &adopt, "r/1");
            let (mut files, view) = adopting.take(read, Vec::new(), &lists).unwrap();
            let name = "admissioncontrolconfigurations/own".to_owned();
            files.push(SourceFile { name, bytes: ours.to_string().into() });
            let contents = Contents::new(files, Default::default());
            adopting.due(&adopt, &lists, (&contents, &view)).into_iter().map(|due| due.webhooks).next()
        };
        let before = [webhook("gatepost.mutate.gatepost.dev", "https://127.0.0.1:9440/mutate", "configmaps")];
        let written = due(0, &before).expect("pods are not sent");
        assert_eq!(written[0]["clientConfig"]["url"], "https://127.0.0.1:9440/mutate/segment/1/of/1", "{written:?}");
        for second in [1, 62, 130] {
            assert_eq!(due(second, &written), None, "after {second} s");
        }
    }
}
