//! Act: one initializer's part in a stored object, built in or by a process that has claimed its name.

use std::{sync::Arc, time::Instant};

use serde_json::Value;

use super::{
    super::namespaces::labels_of,
    review,
    turn::{Turn, WholeObject},
};
use gatepost_api::{BuiltIn, FailurePolicy, Initializer, Labels, StatusCause, StatusInfo};
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
    /// Initializers that must act behind it.
    pub(super) adds: Vec<Box<str>>,
}

/// Reasons why an initializer's part is not done.
#[derive(Debug)]
pub(super) enum Failure {
    /// Its time is over.
    Late,
    /// No process has claimed its name for long.
    Vacant,
    /// No process has claimed its name since it was configured.
    Unproven,
    /// It cannot act on this object.
    Unable(String),
    /// It refuses the object.
    Rejected(Box<StatusInfo>),
    /// There is no room for the object at the moment: it waits.
    NoRoom,
    /// The apiserver does not say what is needed at the moment: it waits.
    Unread(KubeError),
}

impl Failure {
    /// Result of the object; `None` where it goes on without the initializer.
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
                let message =
                    format!("Timeout: initializer \"{name}\" did not act in time; the object is deleted again");
                let cause = ("InitializationTimedOut", "the object is deleted again".to_owned());
                Some(failure(504, "Timeout", message, cause))
            }
            Self::Vacant => {
                let message =
                    format!("Timeout: no instance of initializer \"{name}\" is attached; the object is deleted again");
                let cause = ("InitializationTimedOut", "the object is deleted again".to_owned());
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
    /// Has the initializer act on the object, by `until`. `None`: who acts is a client of the apiserver.
    pub(super) async fn act(
        &self,
        one: &Initializer,
        (state, object): (&State, WholeObject),
        until: Instant,
    ) -> Option<Result<StoredTurnEffect, Failure>> {
        let acted = match (&one.built_in, &one.attach) {
            (Some(additions), _) => self.add(additions, state, object).await,
            (None, Some(_)) => self.ask(one, (state, object), until).await,
            (None, None) => return None,
        };
        Some(match acted {
            Ok(acted) => fitting(one, acted),
            failed => failed,
        })
    }

    async fn add(&self, additions: &BuiltIn, state: &State, whole: WholeObject) -> Result<StoredTurnEffect, Failure> {
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
        let patch = adding.await.map_err(Failure::Unable)?;
        let changes = patch.map(|patch| serde_json::from_slice(&patch)).transpose();
        let changes = changes.map_err(|_| Failure::Unable("its patch cannot be read".to_owned()))?;
        Ok(StoredTurnEffect { changes: changes.unwrap_or_default(), adds: Vec::new() })
    }

    async fn ask(
        &self,
        one: &Initializer,
        (state, whole): (&State, WholeObject),
        until: Instant,
    ) -> Result<StoredTurnEffect, Failure> {
        let labels = match self.namespace_labels().await {
            Err(unread @ Failure::Unread(_)) => return Err(unread),
            labels => labels.unwrap_or_default(),
        };
        let review = review::of(&self.resource, &self.stored, state, &whole.object);
        // It may take long; the object is not needed for it.
        drop(whole);
        let room = self.engine.memory.reserve(Purpose::Queue, 2 * review.len()).ok_or(Failure::NoRoom)?;
        let name = Arc::clone(&one.name);
        let writing = offload::run(2 * review.len(), move || review::message(&name, review, &labels, room));
        let message = writing.await.map_err(Failure::Unable)?;
        let hub = self.engine.current.hub();
        let (Contribution { patch, adds }, _room) =
            hub.ask(&one.name, message, until).await.map_err(|why| match why {
                TurnFailure::Late => Failure::Late,
                TurnFailure::Vacant => Failure::Vacant,
                TurnFailure::Unproven => Failure::Unproven,
                TurnFailure::Full | TurnFailure::NoRoom => Failure::NoRoom,
                TurnFailure::Unable(why) => Failure::Unable(why),
                TurnFailure::Rejected(status) => Failure::Rejected(status),
            })?;
        let Some(text) = patch else { return Ok(StoredTurnEffect { changes: Vec::new(), adds }) };
        let parsing = offload::run(2 * text.len(), move || serde_json::from_slice(&text));
        let changes = parsing.await.map_err(|_| Failure::Unable("its patch cannot be read".to_owned()))?;
        Ok(StoredTurnEffect { changes, adds })
    }

    /// Labels of the object's namespace.
    async fn namespace_labels(&self) -> Result<Arc<Labels>, Failure> {
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
                Failure::Unable("the labels of the namespace may not be read".to_owned())
            }
            failure => Failure::Unread(failure),
        };
        let found = labels_of(&self.client, namespace).await.map_err(unknown)?;
        found.map(Arc::new).ok_or_else(|| Failure::Unable("there is no such namespace".to_owned()))
    }
}

/// The same where its patch leaves alone what is not the initializer's to change.
fn fitting(one: &Initializer, acted: StoredTurnEffect) -> Result<StoredTurnEffect, Failure> {
    if acted.changes.is_empty() {
        return Ok(acted);
    }
    let unable = |why: &str| Failure::Unable(why.to_owned());
    if acted.changes.len() > MAX_OPERATIONS {
        return Err(unable("its patch has more operations than an apiserver takes"));
    }
    let outside = |operation: &&Value| {
        let leaves = |key: &str| {
            let path = operation[key].as_str();
            path.is_some_and(|path| !path.starts_with("/metadata/"))
        };
        operation["op"] != "test" && (leaves("path") || leaves("from"))
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
        for late in [Failure::Late, Failure::Vacant] {
            let result = late.result("a.example.com", FailurePolicy::Fail).unwrap();
            assert_eq!((result.code, result.retry_after_seconds), (504, 0));
        }
        assert_eq!(Failure::Unproven.result("a.example.com", FailurePolicy::Fail), None);
    }
}
