//! One entry of the cluster: a webhook, or a binding of a policy. Its name, its content without our mark, and whether
//! Gatepost can serve it.

use std::{fmt, time::Duration};

use gatepost_api::{AdoptionCondition, HookType};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Reason;

/// Annotation of an object that was written only to change its resourceVersion.
pub const FENCE_ANNOTATION: &str = "gatepost.dev/fence";
/// Annotation of an object with the [ids](EntryKey::id) of entries that a starting replica gave back. The leader does
/// not count these as dropped by their owner, and removes the annotation.
pub const GIVEN_BACK_ANNOTATION: &str = "gatepost.dev/given-back";

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// A webhook in a configuration, which has one or more of them.
    Webhook(HookType),
    /// A binding of a policy. It is an object of its own, and decides independently of other bindings of the policy.
    Binding(HookType),
}

impl EntryKind {
    /// Returns the type of the webhooks, or of the policy.
    pub const fn hook_type(self) -> HookType {
        let (Self::Webhook(hook_type) | Self::Binding(hook_type)) = self;
        hook_type
    }

    /// Returns true for a binding of a policy.
    pub const fn is_binding(self) -> bool {
        matches!(self, Self::Binding(_))
    }

    /// Returns the short name, such as `validating`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Webhook(HookType::Validating) => "validating",
            Self::Webhook(HookType::Mutating) => "mutating",
            Self::Binding(HookType::Validating) => "validating-policy",
            Self::Binding(HookType::Mutating) => "mutating-policy",
        }
    }

    /// Returns the kind of the object that carries the mark.
    pub const fn object_kind(self) -> &'static str {
        match self {
            Self::Webhook(hook_type) => hook_type.kind(),
            Self::Binding(HookType::Validating) => "ValidatingAdmissionPolicyBinding",
            Self::Binding(HookType::Mutating) => "MutatingAdmissionPolicyBinding",
        }
    }

    /// Returns the plural name of that kind in the API.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Webhook(hook_type) => hook_type.resource(),
            Self::Binding(HookType::Validating) => "validatingadmissionpolicybindings",
            Self::Binding(HookType::Mutating) => "mutatingadmissionpolicybindings",
        }
    }

    /// Returns the API path of the object of that name.
    pub fn path(self, name: &str) -> String {
        format!("/apis/admissionregistration.k8s.io/v1/{}/{name}", self.resource())
    }
}

/// Name of one entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Name of its configuration, or of its policy. Commands select entries by this name.
    pub configuration: String,
    /// Name of the webhook, or of the binding.
    pub name: String,
}

impl EntryKey {
    /// Returns a short digest of the name, for lists that must be small.
    pub fn id(&self) -> String {
        short_digest(&self.to_string())
    }

    /// Returns the name of the object that carries the mark: the configuration, or the binding.
    pub fn object(&self) -> &str {
        if self.kind.is_binding() { &self.name } else { &self.configuration }
    }

    /// Returns the API path of that object.
    pub fn path(&self) -> String {
        self.kind.path(self.object())
    }

    /// Returns true if one of these names selects the entry: `NAME`, or `validating/NAME`.
    pub fn is_named<'a>(&self, mut names: impl Iterator<Item = &'a String>) -> bool {
        let full = format!("{}/{}", self.kind.word(), self.configuration);
        names.any(|name| *name == self.configuration || *name == full)
    }
}

impl fmt::Display for EntryKey {
    /// `validating/CONFIGURATION/WEBHOOK`, or `validating-policy/POLICY/BINDING`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.word(), self.configuration, self.name)
    }
}

/// Returns the first 8 bytes of the text's SHA-256, in hex.
pub(super) fn short_digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// One entry, as it was read from the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterEntry {
    /// Name of the entry.
    pub key: EntryKey,
    /// [Id](EntryKey::id) of that name.
    pub id: String,
    /// uid of its object.
    pub uid: String,
    /// resourceVersion of its object.
    pub version: String,
    /// Labels of its configuration, or of its policy and its binding.
    pub labels: Vec<(String, String)>,
    /// It carries our mark, so the apiserver does not use it. False if it is orphaned.
    pub carries: bool,
    /// It is a parked binding whose policy no longer exists. There is nothing to evaluate, and the apiserver accepts a
    /// new `paramRef` for it only from a user who may read every resource.
    pub orphaned: bool,
    /// Our condition as it was read; `None` if it is not a webhook that carries it.
    pub current_condition: Option<AdoptionCondition>,
    /// Our condition as it should be, whether the webhook carries it or not. Unused for a binding.
    pub condition: AdoptionCondition,
    /// It carries our condition with another expression, for example because its rules have changed.
    pub outdated: bool,
    /// It carries our mark, and our field manager alone can remove it, according to `managedFields`.
    pub only_owned_by_us: bool,
    /// Its object has a [`FENCE_ANNOTATION`] or [`GIVEN_BACK_ANNOTATION`], which the leader removes.
    pub has_leader_annotation: bool,
    /// [`GIVEN_BACK_ANNOTATION`] names it: a starting replica has given it back.
    pub given_back: bool,
    /// It has a match condition of our name with an expression that is not ours, or is parked without an annotation that
    /// says what its params are.
    pub foreign: bool,
    /// It is a binding whose params annotation can be parsed. Gatepost removes only such an annotation, because one
    /// that cannot be parsed may mean something to the owner.
    pub has_readable_params: bool,
    /// Number of its match conditions, without ours.
    pub other_conditions: usize,
    /// Its content without our mark: the entry of a webhook, or for a binding `policy` and `binding`, the specs of the
    /// two objects.
    pub content: Value,
}

/// Metadata of the object of an entry.
pub(super) struct ObjectMetadata<'a>(pub(super) &'a Value);

impl ObjectMetadata<'_> {
    pub(super) fn text(&self, key: &str) -> String {
        self.0[key].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let labels = self.0["labels"].as_object().into_iter().flatten();
        labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    pub(super) fn has_leader_annotation(&self) -> bool {
        let annotations = &self.0["annotations"];
        [FENCE_ANNOTATION, GIVEN_BACK_ANNOTATION].iter().any(|key| !annotations[key].is_null())
    }

    /// Returns the ids of the entries that a starting replica gave back.
    pub(super) fn given_back(&self) -> impl Iterator<Item = &str> {
        self.0["annotations"][GIVEN_BACK_ANNOTATION].as_str().unwrap_or_default().split_whitespace()
    }
}

/// An entry that was read, with the assessment of whether to adopt it.
#[derive(Clone, Debug, PartialEq)]
pub struct AssessedEntry {
    /// The entry as it was read.
    pub standing: ClusterEntry,
    /// Reason why Gatepost cannot serve its newest content; `None` if it can.
    pub unservable: Option<Reason>,
    /// Reason to leave it to the apiserver although Gatepost can serve it; `None` if there is none.
    pub reason_not_to_adopt: Option<Reason>,
    /// Our registration makes apiservers send only some of the requests that the entry matches, or none. If the entry
    /// carries the mark, nobody uses it for the other requests.
    pub unsent: bool,
    /// `Ok` if commands or `serve --adopt` select it, or the reason why not.
    pub wanted: Result<(), Reason>,
    /// Its expressions query the authorizer of the cluster.
    pub uses_authorizer: bool,
    /// Reads of the cluster without which Gatepost cannot evaluate its expressions.
    pub reads: Vec<ObjectAccess>,
    /// Every registration of ours for hooks of its type has our finalizer.
    pub guarded: bool,
    /// Maximum time from an apiserver's decision on whether to use it to our review of the same request.
    pub in_flight: Duration,
}

/// Access to objects of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectAccess {
    /// Group and version of their kind.
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// Their namespace; "" for every namespace, and for objects outside of namespaces.
    pub namespace: String,
    /// `get` or `list`.
    pub verb: &'static str,
}

impl AssessedEntry {
    /// Returns the reason to leave it to the apiserver, or to give it back, if the entry itself has one. Ignores which
    /// replicas use it.
    pub fn against(&self) -> Option<&Reason> {
        // A foreign condition comes first, because it might prevent every call of the webhook, selected or not.
        let foreign = self.unservable.as_ref().filter(|reason| **reason == Reason::ForeignCondition);
        let own = || self.unservable.as_ref().or(self.reason_not_to_adopt.as_ref());
        foreign.or_else(|| self.wanted.as_ref().err()).or_else(own)
    }
}
