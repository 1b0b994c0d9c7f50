//! Runs one initializer on a stored object. The initializer is built in, or is an attached process.

use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};

use super::{
    super::namespaces::labels_of,
    follow::ServedResource,
    turn::{Turn, WholeObject},
};
use gatepost_api::{Initializer, Labels, ObjectAdditions};
use gatepost_base::{memory::Purpose, offload};
use gatepost_initializers::{
    TurnFailure,
    built_in::{self, TemplateFacts},
    hub::{Contribution, TaskMessage},
    marks::{InitState as State, touches_reserved},
    unfinished::StoredObject,
};
use gatepost_json_patch::MAX_OPERATIONS;
use gatepost_kube_support::KubeError;
use gatepost_wire::json_view;

/// Effect of an initializer on the object.
#[derive(Debug, Default)]
pub(super) struct StoredTurnEffect {
    /// Operations of its patch.
    pub(super) changes: Vec<Value>,
    /// Initializers that must act after it.
    pub(super) adds: Vec<Box<str>>,
}

/// Reason why an initializer did not act.
#[derive(Debug)]
pub(super) enum ActFailure {
    /// It did not do its part.
    Turn(TurnFailure),
    /// The apiserver did not return the required objects; the turn is retried.
    Unread(KubeError),
}

impl ActFailure {
    /// Creates the failure of an initializer that cannot act on this object.
    pub(super) fn unable(why: impl Into<String>) -> Self {
        Self::Turn(TurnFailure::Unable(why.into()))
    }
}

impl Turn {
    /// Runs the initializer on the object; an attached process has until `until`. Returns `None` if the initializer is
    /// neither built in nor attached: it then updates the object through the Kubernetes API itself.
    pub(super) async fn act(
        &self,
        one: &Initializer,
        (state, object): (&State, WholeObject),
        until: Instant,
    ) -> Option<Result<StoredTurnEffect, ActFailure>> {
        let acted = match (&one.built_in, &one.attach) {
            (Some(additions), _) => self.add(additions, state, object).await,
            (None, Some(_)) => self.call_initializer(one, (state, object), until).await,
            (None, None) => return None,
        };
        Some(match acted {
            Ok(acted) => check_effect(one, acted),
            failed => failed,
        })
    }

    async fn add(
        &self,
        additions: &ObjectAdditions,
        state: &State,
        whole: WholeObject,
    ) -> Result<StoredTurnEffect, ActFailure> {
        let WholeObject { object, room: _room } = whole;
        let labels = if additions.reads_namespace() { Some(self.namespace_labels().await?) } else { None };
        let (text, additions) = (object.to_string(), additions.clone());
        let user = state.username().unwrap_or_default().to_owned();
        let (namespace, name) = (self.stored.namespace.clone(), self.stored.name.clone());
        let adding = offload::run(2 * text.len(), move || {
            let namespace_labels = labels.as_deref();
            let facts = TemplateFacts { namespace: &namespace, name: &name, user: &user, namespace_labels };
            built_in::patch(&additions, text.as_bytes(), facts)
        });
        let patch = adding.await.map_err(ActFailure::unable)?;
        let changes = patch.map(|patch| serde_json::from_slice(&patch)).transpose();
        let changes = changes.map_err(|_| ActFailure::unable("its patch cannot be read"))?;
        Ok(StoredTurnEffect { changes: changes.unwrap_or_default(), adds: Vec::new() })
    }

    async fn call_initializer(
        &self,
        one: &Initializer,
        (state, whole): (&State, WholeObject),
        until: Instant,
    ) -> Result<StoredTurnEffect, ActFailure> {
        let labels = match self.namespace_labels().await {
            Err(unread @ ActFailure::Unread(_)) => return Err(unread),
            labels => labels.unwrap_or_default(),
        };
        let review = review_of(&self.resource, &self.stored, state, &whole.object);
        // The call may take long and does not need the object.
        drop(whole);
        let room = self.engine.memory.reserve(Purpose::Queue, 2 * review.len());
        let room = room.ok_or(ActFailure::Turn(TurnFailure::NoRoom))?;
        let name = Arc::clone(&one.name);
        let writing = offload::run(2 * review.len(), move || {
            let review = json_view::view(review.into()).map_err(|error| error.to_string())?;
            TaskMessage::new(&name, &review, &labels, room)
        });
        let message = writing.await.map_err(ActFailure::unable)?;
        let hub = self.engine.current.hub();
        let result = hub.ask(&one.name, message, until).await;
        let (Contribution { patch, adds }, _room) = result.map_err(ActFailure::Turn)?;
        let Some(text) = patch else { return Ok(StoredTurnEffect { changes: Vec::new(), adds }) };
        let parsing = offload::run(2 * text.len(), move || serde_json::from_slice(&text));
        let changes = parsing.await.map_err(|_| ActFailure::unable("its patch cannot be read"))?;
        Ok(StoredTurnEffect { changes, adds })
    }

    /// Returns the labels of the object's namespace.
    async fn namespace_labels(&self) -> Result<Arc<Labels>, ActFailure> {
        let namespace = &*self.stored.namespace;
        if namespace.is_empty() {
            return Ok(Arc::default());
        }
        let followed = self.engine.namespaces.as_ref().filter(|followed| followed.is_fresh(Instant::now()));
        if let Some(labels) = followed.and_then(|followed| followed.get(namespace)) {
            return Ok(labels);
        }
        let unknown = |failure| match failure {
            KubeError::Refused { code: 401 | 403, .. } => {
                ActFailure::unable("the labels of the namespace may not be read")
            }
            failure => ActFailure::Unread(failure),
        };
        let found = labels_of(&self.client, namespace).await.map_err(unknown)?;
        found.map(Arc::new).ok_or_else(|| ActFailure::unable("there is no such namespace"))
    }
}

/// Returns the effect if its patch changes only fields that the initializer may change.
fn check_effect(one: &Initializer, acted: StoredTurnEffect) -> Result<StoredTurnEffect, ActFailure> {
    if acted.changes.is_empty() {
        return Ok(acted);
    }
    if acted.changes.len() > MAX_OPERATIONS {
        return Err(ActFailure::unable("its patch has more operations than an apiserver takes"));
    }
    let outside = |operation: &&Value| {
        let is_outside = |key: &str| {
            let path = operation[key].as_str();
            path.is_some_and(|path| !path.starts_with("/metadata/"))
        };
        operation["op"] != "test" && (is_outside("path") || is_outside("from"))
    };
    if one.metadata_only && acted.changes.iter().any(|operation| outside(&operation)) {
        return Err(ActFailure::unable("it changes more than metadata, and says `changes: Metadata`"));
    }
    match touches_reserved(&acted.changes) {
        false => Ok(acted),
        true => Err(ActFailure::unable("it changes the marks of the object, or what identifies it")),
    }
}

/// Returns the review of an object, with the user that its state names as its creator.
fn review_of(resource: &ServedResource, stored: &StoredObject, state: &State, object: &Value) -> String {
    let ServedResource { group, version, resource, kind, .. } = resource;
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": &*stored.uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": stored.name,
            "namespace": stored.namespace,
            "operation": "CREATE",
            "userInfo": state.creator,
            "object": object,
            "dryRun": false,
        },
    })
    .to_string()
}
