//! Writes of our mark, our finalizer and our registrations: their documents and requests, and the finalizers that
//! keep our registrations while entries are taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gatepost_api::HookType;
use gatepost_kube_support::{KubeClient, KubeError};
use serde_json::{Value, json};

use crate::{
    CONDITION, EntryKey, EntryKind, FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION, Route, UnservedEntry, Write,
    binding::{BindingChange, binding_patch, binding_query, bindings_of, forced_return},
    webhook::our_condition,
    webhooks_of,
};

/// Maximum number of attempts to give webhooks back in an object that changes meanwhile.
const GIVE_BACK_ATTEMPTS: u32 = 4;
/// First minor version of Kubernetes 1 with match conditions of webhooks.
const FIRST_MINOR_WITH_CONDITIONS: u64 = 28;

/// Outcome of a write. Entries to give back have been given back, unless the object is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The object has been written as planned.
    Done,
    /// The object has changed since it was read. The next read returns the change.
    Outdated,
    /// The object no longer exists.
    Gone,
    /// The apiserver rejected the write, or dropped the condition, for this reason.
    Refused(String),
}

/// Update of the webhooks of a registration.
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrationUpdate {
    /// The registration as it was read.
    pub registration: OwnRegistration,
    /// The new webhooks.
    pub webhooks: Vec<Value>,
    /// One of its entries has a match condition of others, which may exclude any request.
    pub conditional: bool,
}

/// Writes one object.
///
/// # Errors
/// [`KubeError`] of a request.
pub async fn write(client: &KubeClient, write: &Write) -> Result<WriteOutcome, KubeError> {
    let path = write.kind.path(&write.object);
    let binding = &write.content["binding"];
    let all: Vec<_> = write.given_back.iter().map(|(key, _)| key).collect();
    let object = match send(client, write.kind, &path, &write.document()).await {
        Ok(object) => object,
        Err(KubeError::WriteRefused { code: 404, .. }) => return Ok(WriteOutcome::Gone),
        Err(KubeError::WriteRefused { code: 409, .. }) => {
            return give_back(client, &all, binding, WriteOutcome::Outdated).await;
        }
        // Give entries back even if the rest of the document is rejected.
        Err(KubeError::WriteRefused { code: 400 | 403 | 422, message, .. }) => {
            return give_back(client, &all, binding, WriteOutcome::Refused(message)).await;
        }
        Err(error) => return Err(error),
    };
    let by_others = all.into_iter().filter(|key| write.written_by_others.contains(&key.name));
    let by_others: Vec<_> = by_others.collect();
    if !by_others.is_empty() {
        remove_mark(client, &by_others, binding).await?;
    }
    let webhooks = object.map(|object| webhooks_of(write.kind.hook_type(), &object));
    let carries = |key: &EntryKey| {
        webhooks.as_ref().is_none_or(|webhooks| webhooks.iter().any(|it| it.carries && it.key == *key))
    };
    Ok(match write.taken.iter().all(carries) {
        true => WriteOutcome::Done,
        false => WriteOutcome::Refused(
            "it accepts the write and leaves the condition out; before 1.30, match conditions need the feature gate \
             AdmissionWebhookMatchConditions"
                .to_owned(),
        ),
    })
}

/// Sends the document of an object. Returns the object as stored if it is a webhook configuration.
pub(crate) async fn send(
    client: &KubeClient,
    kind: EntryKind,
    path: &str,
    document: &Value,
) -> Result<Option<Value>, KubeError> {
    match kind {
        EntryKind::Webhook(_) => client.apply_conditions(MANAGER, path, document).await.map(Some),
        EntryKind::Binding(_) => {
            let path = format!("{path}{}", binding_query());
            client.patch(&path, "application/merge-patch+json", document).await.map(|()| None)
        }
    }
}

impl Write {
    /// Returns the document to send, which the apiserver rejects if the object has changed since it was read.
    fn document(&self) -> Value {
        let (uid, version) = (&*self.read.0, &*self.read.1);
        match (self.kind, self.fenced.first()) {
            (EntryKind::Webhook(hook_type), None) => {
                conditions_document(hook_type, &self.object, uid, Some(version), &self.carry)
            }
            (EntryKind::Webhook(hook_type), Some(_)) => {
                fence_document(hook_type, &self.object, (uid, version), &self.carry)
            }
            (EntryKind::Binding(_), fenced) => {
                let spec = &self.content["binding"];
                let change = match (self.taken.is_empty(), self.carry.is_empty()) {
                    (false, _) => BindingChange::Park(spec),
                    (true, true) if !self.content["policy"].is_null() => {
                        BindingChange::Return { spec, removes_annotation: self.has_readable_params }
                    }
                    (true, _) => BindingChange::Keep,
                };
                binding_patch((uid, version), change, fenced.map(|_| (FENCE_ANNOTATION, version)))
            }
        }
    }
}

/// Removes our mark from these entries of one object, and retries if the object changes. Until the mark is removed,
/// possibly neither the apiserver nor Gatepost uses them.
async fn give_back(
    client: &KubeClient,
    entries: &[&EntryKey],
    binding: &Value,
    outcome: WriteOutcome,
) -> Result<WriteOutcome, KubeError> {
    for attempt in 1.. {
        match remove_mark(client, entries, binding).await {
            Ok(()) => break,
            Err(error) if attempt == GIVE_BACK_ATTEMPTS => return Err(error),
            Err(KubeError::Refused { code: 404, .. } | KubeError::WriteRefused { code: 404, .. }) => {
                return Ok(WriteOutcome::Gone);
            }
            // The object has changed in between.
            Err(KubeError::WriteRefused { code: 409 | 422, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Removes our mark from these entries of one object, whoever owns it. `binding` is the spec of a binding as it was read
/// before, or null: its params count if the annotation is lost.
///
/// # Errors
/// [`KubeError`] of the read or the write.
pub async fn remove_mark(client: &KubeClient, entries: &[&EntryKey], binding: &Value) -> Result<(), KubeError> {
    let Some(first) = entries.first() else { return Ok(()) };
    let path = first.path();
    let object = client.get(&path).await?;
    let patch = match first.kind {
        EntryKind::Webhook(_) => {
            let names: Vec<_> = entries.iter().map(|key| &*key.name).collect();
            forced_removal(&object, &names)
        }
        EntryKind::Binding(_) => forced_return(&object, binding),
    };
    match patch {
        Some(patch) => client.patch(&format!("{path}?timeout=2s"), "application/json-patch+json", &patch).await,
        None => Ok(()),
    }
}

/// Adds our finalizer to a registration of ours, or removes it. Does nothing if the registration has changed since it
/// was read, or is gone.
///
/// # Errors
/// [`KubeError`] of the write.
pub async fn change_finalizer(client: &KubeClient, change: &FinalizerChange) -> Result<(), KubeError> {
    let FinalizerChange { registration: OwnRegistration { hook_type, name, read: (uid, version), .. }, add } = change;
    let document = finalizer_document(*hook_type, name, (uid, version), *add);
    match client.apply_conditions(MANAGER, &EntryKind::Webhook(*hook_type).path(name), &document).await {
        Err(KubeError::WriteRefused { code: 404 | 409, .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Replaces the webhooks of a registration of ours, unless it has changed since it was read.
pub(crate) async fn update_registration(client: &KubeClient, update: &RegistrationUpdate) -> Result<(), KubeError> {
    let OwnRegistration { hook_type, name, read: (uid, version), .. } = &update.registration;
    let patch = json!({"metadata": {"uid": uid, "resourceVersion": version}, "webhooks": update.webhooks});
    let path = EntryKind::Webhook(*hook_type).path(name);
    let path = format!("{path}?timeout=2s&fieldManager=gatepost-registration");
    match client.patch(&path, "application/merge-patch+json", &patch).await {
        Err(KubeError::WriteRefused { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}

/// Returns the version of an apiserver, given its `/version`, if its webhooks have no match conditions.
pub fn version_without_conditions(version: &Value) -> Option<String> {
    let number = |key: &str| {
        let digits: String = version[key].as_str()?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let old = number("major")? == 1 && number("minor")? < FIRST_MINOR_WITH_CONDITIONS;
    old.then(|| version["gitVersion"].as_str().unwrap_or("unknown").chars().take(40).collect())
}

/// Field manager of our conditions, annotations and finalizers.
pub const MANAGER: &str = "gatepost-adopt";
/// Finalizer of our registrations while webhooks are taken over: Gatepost must receive the requests for them, as the
/// apiserver does not call them.
pub const FINALIZER: &str = "gatepost.dev/adopt";

/// Returns the server-side apply document for one configuration, in which exactly `webhooks` carry our condition: each
/// with its name, and the expression of the condition. The uid and any `version` make the write fail if the object was recreated or has changed.
pub fn conditions_document(
    hook_type: HookType,
    name: &str,
    uid: &str,
    version: Option<&str>,
    webhooks: &[(String, String)],
) -> Value {
    let entry = |(name, expression): &(String, String)| json!({"name": name, "matchConditions": [{"name": CONDITION, "expression": expression}]});
    let entries: Vec<_> = webhooks.iter().map(entry).collect();
    let mut document = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": hook_type.kind(),
        "metadata": {"name": name, "uid": uid},
    });
    if let Some(version) = version {
        document["metadata"]["resourceVersion"] = version.into();
    }
    if !entries.is_empty() {
        document["webhooks"] = entries.into();
    }
    document
}

/// Returns a [`conditions_document`] with an annotation that always changes the resourceVersion, so that a write in
/// flight fails.
pub fn fence_document(
    hook_type: HookType,
    name: &str,
    (uid, version): (&str, &str),
    webhooks: &[(String, String)],
) -> Value {
    let mut document = conditions_document(hook_type, name, uid, Some(version), webhooks);
    document["metadata"]["annotations"] = json!({ FENCE_ANNOTATION: version });
    document
}

/// Returns the document by which a starting replica gives an entry back that it cannot use, with an annotation that
/// records this. `None` if the entry does not carry the mark. The flag is true if others may own the mark: it then stays
/// until it is [removed by force](remove_mark).
pub fn give_back_document(object: &Value, unserved: &UnservedEntry) -> Option<(Value, bool)> {
    let EntryKey { kind, configuration, name } = &unserved.key;
    let hook_type = kind.hook_type();
    let entries = match kind {
        EntryKind::Webhook(_) => webhooks_of(hook_type, object),
        EntryKind::Binding(_) => {
            // The policy was in the cluster when the binding was read.
            let policy = json!({"metadata": {"name": configuration}, "spec": {}});
            bindings_of(hook_type, &[policy], std::slice::from_ref(object))
        }
    };
    let it = entries.iter().find(|one| one.carries && one.key == unserved.key)?;
    // One write gives back one entry; the ids of earlier ones stay.
    let before = object["metadata"]["annotations"][GIVEN_BACK_ANNOTATION].as_str().unwrap_or_default();
    let ids: BTreeSet<_> = before.split_whitespace().chain([&*it.id]).collect();
    let ids = ids.into_iter().collect::<Vec<_>>().join(" ");
    if kind.is_binding() {
        let change = BindingChange::Return { spec: &it.content["binding"], removes_annotation: it.has_readable_params };
        let annotation = Some((GIVEN_BACK_ANNOTATION, &*ids));
        return Some((binding_patch((&it.uid, &it.version), change, annotation), false));
    }
    let others = entries.iter().filter(|one| one.carries && one.key.name != *name);
    let carry: Vec<_> = others.map(|it| (it.key.name.clone(), it.condition.to_string())).collect();
    let mut document = conditions_document(hook_type, configuration, &it.uid, Some(&it.version), &carry);
    document["metadata"]["annotations"] = json!({ GIVEN_BACK_ANNOTATION: ids });
    Some((document, !it.only_owned_by_us))
}

/// Returns the server-side apply document for our registration, with our finalizer (`on`) or without it.
pub fn finalizer_document(hook_type: HookType, name: &str, (uid, version): (&str, &str), on: bool) -> Value {
    let mut document = conditions_document(hook_type, name, uid, Some(version), &[]);
    if on {
        document["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    document
}

/// Returns a JSON patch that removes our condition from these webhooks, whoever owns it; `None` if none carries it.
pub fn forced_removal(object: &Value, webhooks: &[&str]) -> Option<Value> {
    let mut operations = Vec::new();
    for (index, entry) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let Some(name) = entry["name"].as_str().filter(|name| webhooks.contains(name)) else { continue };
        let conditions = entry["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(at) = conditions.iter().position(|one| our_condition(one).is_some()) else { continue };
        let webhook = format!("/webhooks/{index}");
        operations.push(json!({"op": "test", "path": format!("{webhook}/name"), "value": name}));
        let path = format!("{webhook}/matchConditions/{at}");
        operations.push(json!({"op": "test", "path": format!("{path}/name"), "value": CONDITION}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    (!operations.is_empty()).then(|| operations.into())
}

/// Time for which a registration keeps its finalizer after the last read that found an entry taken over or announced.
/// Until then, an apiserver might not have observed that it must use an entry again.
const FINALIZER_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// A registration of ours, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRegistration {
    /// Kind of the configuration.
    pub hook_type: HookType,
    /// Name of the configuration.
    pub name: String,
    /// uid and resourceVersion, as they were read.
    pub read: (String, String),
    /// It has our finalizer.
    pub guarded: bool,
    /// It is being deleted; a finalizer keeps it.
    pub deleted: bool,
    /// Routes from apiservers to us, by its entries.
    pub routes: BTreeSet<Route>,
}

/// Change of the finalizer of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalizerChange {
    /// The registration.
    pub registration: OwnRegistration,
    /// True to add the finalizer, false to remove it.
    pub add: bool,
}

impl OwnRegistration {
    /// Parses an object; returns `None` if it has no name.
    pub fn of(hook_type: HookType, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let finalizers = metadata["finalizers"].as_array();
        let entries = object["webhooks"].as_array().into_iter().flatten();
        Some(Self {
            hook_type,
            name: metadata["name"].as_str()?.to_owned(),
            read: (text("uid"), text("resourceVersion")),
            guarded: finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER)),
            deleted: !metadata["deletionTimestamp"].is_null(),
            routes: entries.map(|entry| Route::of(&entry["clientConfig"])).collect(),
        })
    }
}

/// Times until which registrations keep their finalizer, by hook type.
#[derive(Debug, Default)]
pub(crate) struct Finalizers(BTreeMap<HookType, Duration>);

impl Finalizers {
    /// Returns the finalizers to change after a read that began at `now`. `needed` are the types of the entries that
    /// carry the mark, are announced, or are ending. These need the registrations of their type.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        registrations: &[OwnRegistration],
        needed: impl Iterator<Item = HookType>,
    ) -> Vec<FinalizerChange> {
        self.0.extend(needed.map(|hook_type| (hook_type, now + FINALIZER_GRACE_PERIOD)));
        let mut changes = Vec::new();
        for registration in registrations {
            // A finalizer that exists at the first turn might have been needed until now.
            let initial = if registration.guarded { now + FINALIZER_GRACE_PERIOD } else { now };
            let add = now < *self.0.entry(registration.hook_type).or_insert(initial);
            if add != registration.guarded && !(add && registration.deleted) {
                changes.push(FinalizerChange { registration: registration.clone(), add });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{EXPRESSION, Reason};

    #[test]
    fn version_before_1_28_has_no_match_conditions() {
        let version = |minor: &str| json!({"major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.3")});
        assert_eq!(version_without_conditions(&version("27+")).as_deref(), Some("v1.27+.3"));
        assert_eq!(
            [
                version_without_conditions(&version("28")),
                version_without_conditions(&version("36+")),
                version_without_conditions(&json!({}))
            ],
            [None, None, None]
        );
    }

    #[test]
    fn conditions_document_contains_only_our_conditions() {
        let condition = json!([{"name": "gatepost.dev/served", "expression": "false"}]);
        assert_eq!(
            conditions_document(HookType::Mutating, "c", "u", Some("7"), &[("a".to_owned(), EXPRESSION.to_owned())]),
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "c", "uid": "u", "resourceVersion": "7"},
                "webhooks": [{"name": "a", "matchConditions": condition}]})
        );
        let none = conditions_document(HookType::Validating, "c", "u", None, &[]);
        assert_eq!(none["metadata"], json!({"name": "c", "uid": "u"}));
        assert!(none.get("webhooks").is_none());
        let fenced = fence_document(HookType::Mutating, "c", ("u", "7"), &[("a".to_owned(), EXPRESSION.to_owned())]);
        let bare =
            conditions_document(HookType::Mutating, "c", "u", Some("7"), &[("a".to_owned(), EXPRESSION.to_owned())]);
        assert_eq!(
            (&fenced["webhooks"], &fenced["metadata"]["annotations"][FENCE_ANNOTATION]),
            (&bare["webhooks"], &"7".into())
        );
        let held = finalizer_document(HookType::Validating, "gatepost", ("u", "7"), true);
        assert_eq!(held["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(
            finalizer_document(HookType::Validating, "gatepost", ("u", "7"), false)["metadata"],
            json!({"name": "gatepost", "uid": "u", "resourceVersion": "7"})
        );
    }

    #[test]
    fn forced_removal_tests_and_removes_only_our_condition() {
        let ours = json!({"name": "gatepost.dev/served", "expression": "false"});
        let object = json!({"webhooks": [
            {"name": "a", "matchConditions": [{"name": "own", "expression": "true"}, ours]},
            {"name": "b", "matchConditions": [ours]}, {"name": "c"},
        ]});
        let patch = forced_removal(&object, &["a", "c"]).unwrap();
        assert_eq!(patch.as_array().unwrap().len(), 3);
        assert_eq!(patch[2], json!({"op": "remove", "path": "/webhooks/0/matchConditions/1"}));
        assert_eq!(forced_removal(&object, &["c"]), None);
    }

    #[test]
    fn give_back_document_annotates_the_webhook_and_keeps_other_conditions() {
        let ours = json!({"name": "gatepost.dev/served", "expression": "false"});
        let key = |webhook: &str| {
            let (configuration, name) = ("c".to_owned(), webhook.to_owned());
            EntryKey { kind: EntryKind::Webhook(HookType::Validating), configuration, name }
        };
        let unserved = |webhook: &str| {
            let (uid, reason) = ("u".to_owned(), Reason::TooMany);
            UnservedEntry { key: key(webhook), uid, reason, carries: true }
        };
        let metadata =
            json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": {GIVEN_BACK_ANNOTATION: "f"}});
        let object = json!({"metadata": metadata, "webhooks": [
            {"name": "a", "matchConditions": [ours]}, {"name": "b", "matchConditions": [ours]}, {"name": "c"}]});
        let (document, by_others) = give_back_document(&object, &unserved("a")).unwrap();
        assert!(by_others, "nobody is known to own it");
        let mut ids = [key("a").id(), "f".to_owned()];
        ids.sort();
        let metadata = json!({"name": "c", "uid": "u", "resourceVersion": "7", "annotations": {GIVEN_BACK_ANNOTATION: ids.join(" ")}});
        assert_eq!(
            (&document["metadata"], &document["webhooks"]),
            (&metadata, &json!([{"name": "b", "matchConditions": [ours]}]))
        );
        assert_eq!(give_back_document(&object, &unserved("c")), None);
        // Another expression of ours stays as it is.
        let but = gatepost_api::AdoptionCondition::default().in_namespaces(["kube-system"]).to_string();
        let but = json!([{"name": "gatepost.dev/served", "expression": but}]);
        let mut partly = object.clone();
        partly["webhooks"][1]["matchConditions"] = but.clone();
        let (document, _) = give_back_document(&partly, &unserved("a")).unwrap();
        assert_eq!(document["webhooks"], json!([{"name": "b", "matchConditions": but}]));
        assert!(forced_removal(&partly, &["b"]).is_some());

        let read = json!({"metadata": document["metadata"], "webhooks": object["webhooks"]});
        let told = webhooks_of(HookType::Validating, &read);
        assert_eq!(
            told.iter().map(|it| (it.has_leader_annotation, it.given_back)).collect::<Vec<_>>(),
            [(true, true), (true, false), (true, false)]
        );
    }

    #[test]
    fn document_of_a_binding_parks_or_returns_it() {
        let kind = EntryKind::Binding(HookType::Validating);
        let key = EntryKey { kind, configuration: "p".to_owned(), name: "b".to_owned() };
        let write = |taken: bool, kept: bool, fenced: bool, policy: Value| {
            let keys = |given: bool| given.then(|| key.clone()).into_iter();
            Write {
                kind,
                object: "b".to_owned(),
                read: ("u".to_owned(), "7".to_owned()),
                carry: (taken || kept).then(|| ("b".to_owned(), EXPRESSION.to_owned())).into_iter().collect(),
                taken: keys(taken).collect(),
                given_back: Vec::new(),
                written_by_others: Vec::new(),
                fenced: keys(fenced).collect(),
                outdated: Vec::new(),
                content: json!({"policy": policy, "binding": {"policyName": "p", "paramRef": {"name": "n"}}}),
                has_readable_params: true,
            }
        };
        let document = |taken: bool, kept: bool, fenced: bool| {
            let document = write(taken, kept, fenced, json!({})).document();
            assert_eq!(document["metadata"]["resourceVersion"], "7");
            (document["spec"].clone(), document["metadata"]["annotations"][FENCE_ANNOTATION].clone())
        };
        let named = |name: &str, params: Value| json!({"policyName": name, "paramRef": params});
        let params = json!({"name": "n"});
        assert_eq!(document(true, false, false), (named("p.parked.gatepost.dev", Value::Null), Value::Null));
        assert_eq!(document(false, false, false), (named("p", params.clone()), Value::Null));
        assert_eq!(document(false, false, true), (named("p", params.clone()), "7".into()));
        assert_eq!(document(false, true, false), (Value::Null, Value::Null), "only annotations are removed");
        assert_eq!(write(false, false, true, Value::Null).document().get("spec"), None, "nobody may write its params");
        let kept = json!({"policyName": "p", "paramRef": params});
        let annotations = json!({"gatepost.dev/parked-param-ref": kept.to_string()});
        let metadata = json!({"name": "b", "uid": "u", "resourceVersion": "7", "annotations": annotations});
        let object = |policy: &str| json!({"metadata": metadata, "spec": {"policyName": policy}});
        let unserved = UnservedEntry { key: key.clone(), uid: "u".to_owned(), reason: Reason::TooMany, carries: true };
        let (document, by_others) = give_back_document(&object("p.parked.gatepost.dev"), &unserved).unwrap();
        assert_eq!((&document["spec"], by_others), (&named("p", params), false));
        assert_eq!(document["metadata"]["annotations"][GIVEN_BACK_ANNOTATION], key.id());
        assert_eq!(give_back_document(&object("p"), &unserved), None);
    }

    fn registered(finalizers: Value, deleted: Value) -> OwnRegistration {
        let metadata = json!({"name": "gatepost", "uid": "u", "resourceVersion": "1", "finalizers": finalizers,
            "deletionTimestamp": deleted});
        OwnRegistration::of(HookType::Validating, &json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn finalizer_stays_until_the_grace_period_after_the_last_taken_webhook() {
        let (mut finalizers, at) = (Finalizers::default(), Duration::from_secs);
        let (free, held) = (registered(json!(["x"]), Value::Null), registered(json!(["x", FINALIZER]), Value::Null));
        let mut step = |second, one: &OwnRegistration, carries, announced| {
            let found = finalizers.step(
                at(second),
                std::slice::from_ref(one),
                (carries || announced).then_some(HookType::Validating).into_iter(),
            );
            found.first().map(|change| change.add)
        };
        assert_eq!(step(0, &free, false, false), None);
        assert_eq!(step(1, &free, false, true), Some(true), "before anything is taken");
        assert_eq!(step(2, &held, true, false), None);
        assert_eq!(step(6, &held, false, false), None);
        assert_eq!(step(7, &held, false, false), Some(false));
        assert_eq!(step(8, &free, false, false), None);
        let going = registered(json!(["x"]), json!("2026-11-21T00:00:00Z"));
        assert_eq!(step(9, &going, true, false), None, "what is being deleted takes no finalizer");
        let going = registered(json!([FINALIZER]), json!("2026-11-21T00:00:00Z"));
        assert_eq!((step(10, &going, false, false), step(14, &going, false, false)), (None, Some(false)));
        let mut new = Finalizers::default();
        let mut later = |second| new.step(at(second), std::slice::from_ref(&held), std::iter::empty()).len();
        assert_eq!((later(0), later(4), later(5)), (0, 0, 1), "one that begins does not know until when it was needed");
    }
}
