//! Runs one initializer on a stored object. The initializer is built in, or is an attached process.

use std::{sync::Arc, time::Instant};

use serde_json::Value;

use super::{
    super::namespaces::labels_of,
    review,
    turn::{Turn, WholeObject},
};
use gatepost_api::{FailurePolicy, Initializer, Labels, ObjectAdditions, StatusCause, StatusInfo};
use gatepost_base::{memory::Purpose, offload};
use gatepost_initializers::{
    TurnFailure,
    built_in::{self, TemplateFacts},
    hub::Contribution,
    marks::{InitState as State, touches_reserved},
};
use gatepost_json_patch::MAX_OPERATIONS;
use gatepost_kube_support::KubeError;

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
    /// It did not act within its timeout.
    Late,
    /// No process has been attached under its name for too long.
    Vacant,
    /// No process has attached under its name since it was configured.
    Unproven,
    /// It cannot act on this object, for the given reason.
    Unable(String),
    /// It rejected the object.
    Rejected(Box<StatusInfo>),
    /// There is no memory for the object now; it is retried.
    NoRoom,
    /// The apiserver did not return what is needed; it is retried.
    Unread(KubeError),
}

impl ActFailure {
    /// Returns the final status of the object; `None` if the object continues without the initializer.
    pub(super) fn result(self, name: &str, policy: FailurePolicy) -> Option<StatusInfo> {
        let failure = |code, reason: &str, message: String, (cause, why): (&str, String)| StatusInfo {
            code,
            status: "Failure".into(),
            reason: reason.into(),
            message,
            causes: vec![StatusCause { reason: cause.into(), message: why, field: name.to_owned() }],
            ..StatusInfo::default()
        };
        let open = policy == FailurePolicy::Ignore;
        match self {
            Self::Rejected(said) => {
                let code = if (400..600).contains(&said.code) { said.code } else { 403 };
                let message = match &*said.message {
                    "" => format!("initializer \"{name}\" refused the object"),
                    message => message.to_owned(),
                };
                let mut causes = said.causes.clone();
                let (reason, field) = ("InitializationFailed".into(), name.to_owned());
                causes.push(StatusCause { reason, message: said.message.clone(), field });
                Some(StatusInfo { code, message, causes, has_details: true, ..*said })
            }
            Self::Unproven => None,
            _ if open => None,
            Self::Late | Self::NoRoom | Self::Unread(_) => {
                let message = format!("Timeout: initializer \"{name}\" did not act in time; the object is deleted");
                let cause = ("InitializationTimedOut", "the object is deleted".to_owned());
                Some(failure(504, "Timeout", message, cause))
            }
            Self::Vacant => {
                let message =
                    format!("Timeout: no instance of initializer \"{name}\" is attached; the object is deleted");
                let cause = ("InitializationTimedOut", "the object is deleted".to_owned());
                Some(failure(504, "Timeout", message, cause))
            }
            Self::Unable(why) => {
                let message = format!("initializer \"{name}\" failed: {why}");
                Some(failure(500, "InternalError", message, ("InitializationFailed", why)))
            }
        }
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
            (None, Some(_)) => self.ask(one, (state, object), until).await,
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
        let patch = adding.await.map_err(ActFailure::Unable)?;
        let changes = patch.map(|patch| serde_json::from_slice(&patch)).transpose();
        let changes = changes.map_err(|_| ActFailure::Unable("its patch cannot be read".to_owned()))?;
        Ok(StoredTurnEffect { changes: changes.unwrap_or_default(), adds: Vec::new() })
    }

    async fn ask(
        &self,
        one: &Initializer,
        (state, whole): (&State, WholeObject),
        until: Instant,
    ) -> Result<StoredTurnEffect, ActFailure> {
        let labels = match self.namespace_labels().await {
            Err(unread @ ActFailure::Unread(_)) => return Err(unread),
            labels => labels.unwrap_or_default(),
        };
        let review = review::of(&self.resource, &self.stored, state, &whole.object);
        // The call may take long and does not need the object.
        drop(whole);
        let room = self.engine.memory.reserve(Purpose::Queue, 2 * review.len()).ok_or(ActFailure::NoRoom)?;
        let name = Arc::clone(&one.name);
        let writing = offload::run(2 * review.len(), move || review::message(&name, review, &labels, room));
        let message = writing.await.map_err(ActFailure::Unable)?;
        let hub = self.engine.current.hub();
        let (Contribution { patch, adds }, _room) =
            hub.ask(&one.name, message, until).await.map_err(|why| match why {
                TurnFailure::Late => ActFailure::Late,
                TurnFailure::Vacant => ActFailure::Vacant,
                TurnFailure::Unproven => ActFailure::Unproven,
                TurnFailure::Full | TurnFailure::NoRoom => ActFailure::NoRoom,
                TurnFailure::Unable(why) => ActFailure::Unable(why),
                TurnFailure::Rejected(status) => ActFailure::Rejected(status),
            })?;
        let Some(text) = patch else { return Ok(StoredTurnEffect { changes: Vec::new(), adds }) };
        let parsing = offload::run(2 * text.len(), move || serde_json::from_slice(&text));
        let changes = parsing.await.map_err(|_| ActFailure::Unable("its patch cannot be read".to_owned()))?;
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
                ActFailure::Unable("the labels of the namespace may not be read".to_owned())
            }
            failure => ActFailure::Unread(failure),
        };
        let found = labels_of(&self.client, namespace).await.map_err(unknown)?;
        found.map(Arc::new).ok_or_else(|| ActFailure::Unable("there is no such namespace".to_owned()))
    }
}

/// Returns the effect if its patch changes only what the initializer may change.
fn check_effect(one: &Initializer, acted: StoredTurnEffect) -> Result<StoredTurnEffect, ActFailure> {
    if acted.changes.is_empty() {
        return Ok(acted);
    }
    let unable = |why: &str| ActFailure::Unable(why.to_owned());
    if acted.changes.len() > MAX_OPERATIONS {
        return Err(unable("its patch has more operations than an apiserver takes"));
    }
    let outside = |operation: &&Value| {
        let is_outside = |key: &str| {
            let path = operation[key].as_str();
            path.is_some_and(|path| !path.starts_with("/metadata/"))
        };
        operation["op"] != "test" && (is_outside("path") || is_outside("from"))
    };
    if one.metadata_only && acted.changes.iter().any(|operation| outside(&operation)) {
        return Err(unable("it changes more than metadata, and says `changes: Metadata`"));
    }
    match touches_reserved(&acted.changes) {
        false => Ok(acted),
        true => Err(unable("it changes the marks of the object, or what identifies it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_result_asks_nobody_to_repeat_the_create_and_a_new_name_fails_no_object() {
        for late in [ActFailure::Late, ActFailure::Vacant] {
            let result = late.result("a.example.com", FailurePolicy::Fail).unwrap();
            assert_eq!((result.code, result.retry_after_seconds), (504, 0));
        }
        assert_eq!(ActFailure::Unproven.result("a.example.com", FailurePolicy::Fail), None);
    }
}
