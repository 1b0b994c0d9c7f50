//! Objects: the kinds that are read from a cluster, and the part of an object that is configuration.

use serde_json::Value;

use gatepost_adopt::{EntryKind, without_our_condition};
use gatepost_api::HookType;
use gatepost_config::{Note, SourceFile};
use gatepost_kube_support::is_our_own;

/// Objects of a cluster that are read as hooks. [`Kind::BreakGlass`] is always read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSelection {
    /// Objects of our own kind.
    pub configurations: bool,
    /// Objects of Kubernetes' two kinds.
    pub webhooks: bool,
}

impl Default for ObjectSelection {
    /// Selects our own kind only. The apiserver itself calls the webhooks of the others; if they were read here, too,
    /// they would be called twice.
    fn default() -> Self {
        Self { configurations: true, webhooks: false }
    }
}

impl ObjectSelection {
    /// Returns the kinds to read, in order. With `adopts`, these are also what can be taken over.
    pub(super) fn kinds(self, adopts: bool) -> impl Iterator<Item = Kind> {
        let webhooks = self.webhooks || adopts;
        let all = [
            (Kind::Configuration, self.configurations),
            (Kind::Webhooks(HookType::Validating), webhooks),
            (Kind::Webhooks(HookType::Mutating), webhooks),
            (Kind::Policies(HookType::Validating), adopts),
            (Kind::Bindings(HookType::Validating), adopts),
            (Kind::Policies(HookType::Mutating), adopts),
            (Kind::Bindings(HookType::Mutating), adopts),
            (Kind::BreakGlass, true),
        ];
        all.into_iter().filter_map(|(kind, wanted)| wanted.then_some(kind))
    }
}

/// Kind of objects that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our own configuration.
    Configuration,
    /// Webhook configurations.
    Webhooks(HookType),
    /// Admission policies.
    Policies(HookType),
    /// Their bindings.
    Bindings(HookType),
    /// Break-glass documents.
    BreakGlass,
}

impl Kind {
    /// Returns the plural name in the API.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Configuration => "admissioncontrolconfigurations",
            Self::Webhooks(hook_type) => hook_type.resource(),
            Self::Policies(HookType::Validating) => "validatingadmissionpolicies",
            Self::Policies(HookType::Mutating) => "mutatingadmissionpolicies",
            Self::Bindings(hook_type) => EntryKind::Binding(hook_type).resource(),
            Self::BreakGlass => "breakglasses",
        }
    }

    fn group(self) -> (&'static str, &'static str) {
        match self.is_ours() {
            true => ("gatepost.dev", "v1alpha1"),
            false => ("admissionregistration.k8s.io", "v1"),
        }
    }

    /// Returns the type of the webhooks in objects of this kind; `None` if it is another kind.
    pub fn hook_type(self) -> Option<HookType> {
        match self {
            Self::Webhooks(hook_type) => Some(hook_type),
            _ => None,
        }
    }

    /// Returns true for policies and their bindings, which an apiserver may not know, and which a role may not include.
    pub fn is_of_policies(self) -> bool {
        matches!(self, Self::Policies(_) | Self::Bindings(_))
    }

    /// Returns the API path.
    pub fn path(self) -> String {
        let (group, version) = self.group();
        format!("/apis/{group}/{version}/{}", self.resource())
    }

    /// Returns the name for `kubectl get`.
    pub(super) fn full_name(self) -> String {
        format!("{}.{}", self.resource(), self.group().0)
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Configuration | Self::BreakGlass)
    }
}

/// Result of converting an object.
#[derive(Debug, PartialEq)]
pub(super) enum ConvertedObject {
    /// The object is a document of the configuration.
    File(SourceFile),
    /// The object is no document, for the reason in the note.
    LeftOut(Note),
}

/// Converts one object of a list. Omits fields that change when Gatepost or a controller reports on the object.
///
/// # Errors
/// Returns a message if no apiserver could have stored the object.
pub(super) fn convert(kind: Kind, mut object: Value) -> Result<ConvertedObject, String> {
    let metadata = object.get("metadata").and_then(Value::as_object).ok_or("an object has no metadata")?;
    let name = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let file = format!("{}/{}", kind.resource(), name.ok_or("an object has no name")?);
    let note = |path: &str, [what, why, fix]: [&str; 3]| Note {
        file: file.clone(),
        path: path.to_owned(),
        what: what.to_owned(),
        why: why.to_owned(),
        fix: fix.to_owned(),
    };
    if kind.is_ours() && metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        let text = [
            "the object is being deleted",
            "so it is no longer read, and its hooks drain",
            "to keep them, write the object anew once it is gone",
        ];
        return Ok(ConvertedObject::LeftOut(note("metadata.deletionTimestamp", text)));
    }
    if !kind.is_ours() && is_our_own(&object) {
        let text = [
            "Gatepost's own registration is ignored",
            "since Gatepost would call itself",
            "see that this apiserver does not also call the other webhooks: they would be called twice",
        ];
        return Ok(ConvertedObject::LeftOut(note("metadata.labels", text)));
    }
    if kind.is_ours()
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
    if !kind.is_ours() {
        // Removes the condition by which another Gatepost keeps the apiserver from calling the webhook: it is always
        // false.
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for entry in webhooks.into_iter().flatten() {
            *entry = without_our_condition(entry.take()).0;
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !BOOKKEEPING.contains(&&**key));
    }
    let bytes = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
    Ok(ConvertedObject::File(SourceFile { name: file, bytes: bytes.into() }))
}

/// Metadata fields that the apiserver and its controllers maintain.
const BOOKKEEPING: [&str; 5] = ["managedFields", "resourceVersion", "generation", "finalizers", "selfLink"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(kind: Kind, object: &Value) -> SourceFile {
        match convert(kind, object.clone()) {
            Ok(ConvertedObject::File(file)) => file,
            other => panic!("{object}: {other:?}"),
        }
    }

    fn left_out(kind: Kind, object: &Value) -> String {
        match convert(kind, object.clone()) {
            Ok(ConvertedObject::LeftOut(note)) => note.to_string(),
            other => panic!("{object}: {other:?}"),
        }
    }

    #[test]
    fn reports_on_an_object_do_not_change_it() {
        let bare = json!({"metadata": {"name": "main", "uid": "1"}, "externalAdmissionHooks": []});
        let mut reported = bare.clone();
        reported["status"] = json!({"replicas": [{"revision": 7}]});
        for (key, value) in [("resourceVersion", json!("9")), ("generation", json!(3)), ("finalizers", json!(["x"]))] {
            reported["metadata"][key] = value;
        }
        reported["metadata"]["managedFields"] = json!([{"manager": "gatepost"}]);
        assert_eq!(file(Kind::Configuration, &reported), file(Kind::Configuration, &bare));
        assert_eq!(file(Kind::Configuration, &bare).name, "admissioncontrolconfigurations/main");
        let mut changed = reported;
        changed["externalAdmissionHooks"] = json!([{}]);
        assert_ne!(file(Kind::Configuration, &changed), file(Kind::Configuration, &bare));
    }

    #[test]
    fn an_object_of_ours_that_is_being_deleted_is_gone() {
        let going = json!({"metadata": {"name": "x", "deletionTimestamp": "2026-11-21T00:00:00Z"}, "webhooks": []});
        assert!(left_out(Kind::Configuration, &going).contains("its hooks drain"));
        assert!(left_out(Kind::BreakGlass, &going).starts_with("breakglasses/x: "));
        file(Kind::Webhooks(HookType::Validating), &going);
    }

    #[test]
    fn our_own_registration_is_no_hook() {
        let labels = json!({"app.kubernetes.io/managed-by": "gatepost"});
        let own = json!({"metadata": {"name": "gatepost", "labels": labels}, "webhooks": [{"name": "a.b.c"}]});
        let note = left_out(Kind::Webhooks(HookType::Validating), &own);
        assert!(
            note.starts_with("validatingwebhookconfigurations/gatepost: metadata.labels: Gatepost's own"),
            "{note}"
        );
        left_out(Kind::Webhooks(HookType::Mutating), &own);
        file(Kind::Configuration, &own);
    }

    #[test]
    fn own_condition_is_removed_from_webhooks() {
        let object = |conditions: Value| json!({"metadata": {"name": "x"}, "webhooks": [{"name": "a.b.c", "matchConditions": conditions}]});
        let ours = json!({"name": "gatepost.dev/served", "expression": "false"});
        let own = json!({"name": "own", "expression": "true"});
        let marked = object(json!([own, ours]));
        assert_eq!(
            file(Kind::Webhooks(HookType::Validating), &marked),
            file(Kind::Webhooks(HookType::Validating), &object(json!([own])))
        );
    }

    #[test]
    fn objects_that_no_apiserver_stores_are_rejected() {
        for wrong in [json!(1), json!({}), json!({"metadata": {}}), json!({"metadata": {"name": ""}})] {
            assert!(convert(Kind::Webhooks(HookType::Validating), wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn policies_are_listed_where_something_is_adopted() {
        let names: Vec<_> = ObjectSelection::default().kinds(true).map(Kind::resource).collect();
        let policies = [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ];
        assert_eq!(names[3..7], policies, "{names:?}");
    }

    #[test]
    fn break_glass_is_read_despite_selectors() {
        let webhooks = ObjectSelection { configurations: false, webhooks: true };
        let kinds: Vec<_> = webhooks.kinds(false).collect();
        assert_eq!(kinds, [Kind::Webhooks(HookType::Validating), Kind::Webhooks(HookType::Mutating), Kind::BreakGlass]);
        assert_eq!(
            ObjectSelection::default().kinds(false).collect::<Vec<_>>(),
            [Kind::Configuration, Kind::BreakGlass]
        );
    }
}
