//! A held CREATE, whose object is stored but not initialized: from the apiserver's 201 to the response.

use serde_json::Value;

use gatepost_wire::object_head::ObjectHead;

/// Object whose creator waits for its initialization.
#[derive(Clone, Debug)]
pub(super) struct HeldObject {
    head: ObjectHead,
    waits_for: Option<String>,
    result: Option<Value>,
}

/// End of a hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HoldEnd {
    /// The object is initialized.
    Completed,
    /// An initializer has failed, with this Status.
    Failed(Value),
    /// The object was deleted, without a reason.
    Deleted,
}

impl HeldObject {
    /// Creates the state from the object's head as created.
    pub(super) fn new(head: ObjectHead) -> Self {
        let mut this = Self { head, waits_for: None, result: None };
        this.read_state();
        this
    }

    /// Returns the name of the object.
    pub(super) fn name(&self) -> &str {
        &self.head.name
    }

    /// Returns the uid of the object.
    pub(super) fn uid(&self) -> &str {
        &self.head.uid
    }

    /// Returns the last known resource version.
    pub(super) fn resource_version(&self) -> &str {
        &self.head.resource_version
    }

    /// Returns the initializer that is next, if the object names it.
    pub(super) fn waits_for(&self) -> Option<&str> {
        self.waits_for.as_deref()
    }

    /// Updates the state of the object, and returns the end of the hold if it is reached. A failure is returned only
    /// once the object is gone or being deleted, as its creator may create another object of that name immediately.
    pub(super) fn update(&mut self, head: ObjectHead) -> Option<HoldEnd> {
        if head.uid != self.head.uid {
            return Some(self.on_deleted(None));
        }
        self.head = head;
        self.read_state();
        if self.head.label.is_none() {
            return Some(HoldEnd::Completed);
        }
        let is_over = self.result.is_some() && self.head.deleting;
        is_over.then(|| self.on_deleted(None))
    }

    /// Returns the end of the hold for a deleted object, from its last state if known.
    pub(super) fn on_deleted(&mut self, last: Option<ObjectHead>) -> HoldEnd {
        if let Some(last) = last.filter(|last| last.uid == self.head.uid) {
            self.head = last;
            self.read_state();
        }
        self.result.clone().map_or(HoldEnd::Deleted, HoldEnd::Failed)
    }

    /// Keeps a result that was read once: results never change.
    fn read_state(&mut self) {
        let state = self.head.annotation.as_deref().and_then(|state| serde_json::from_str::<Value>(state).ok());
        let Some(state) = state else { return };
        self.waits_for = state["pending"].get(0).and_then(Value::as_str).map(str::to_owned);
        if state["result"].is_object() {
            self.result = Some(state["result"].clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(version: &str, pending: &[&str], result: Option<Value>) -> ObjectHead {
        let mut state = json!({"state": "Pending", "pending": pending});
        if let Some(result) = result {
            state["result"] = result;
        }
        ObjectHead {
            name: "a".into(),
            uid: "u".into(),
            resource_version: version.into(),
            label: Some("1f".into()),
            annotation: Some(state.to_string()),
            deleting: false,
        }
    }

    #[test]
    fn an_object_without_the_label_is_initialized() {
        let mut held = HeldObject::new(head("1", &["x", "y"], None));
        assert_eq!(held.waits_for(), Some("x"));
        assert_eq!(held.update(head("2", &["y"], None)), None);
        assert_eq!((held.waits_for(), held.resource_version()), (Some("y"), "2"));
        assert_eq!(held.update(ObjectHead { label: None, ..head("3", &[], None) }), Some(HoldEnd::Completed));
    }

    #[test]
    fn a_failure_is_reported_when_the_object_is_deleted() {
        let result = json!({"status": "Failure", "code": 403, "message": "no"});
        let mut held = HeldObject::new(head("1", &["x"], None));
        assert_eq!(held.update(head("2", &["x"], Some(result.clone()))), None);
        assert_eq!(held.on_deleted(None), HoldEnd::Failed(result.clone()));
        // Or when its finalizers run.
        let deleting = ObjectHead { deleting: true, ..head("3", &["x"], Some(result.clone())) };
        assert_eq!(held.clone().update(deleting), Some(HoldEnd::Failed(result.clone())));
        // The last state comes with the deletion, too.
        let mut held = HeldObject::new(head("1", &["x"], None));
        assert_eq!(held.on_deleted(Some(head("2", &["x"], Some(result.clone())))), HoldEnd::Failed(result.clone()));
        // Another object of that name is not this one.
        let mut held = HeldObject::new(head("1", &["x"], None));
        let other = ObjectHead { uid: "v".into(), ..head("2", &["x"], Some(result)) };
        assert_eq!(held.clone().on_deleted(Some(other.clone())), HoldEnd::Deleted);
        assert_eq!(held.update(other), Some(HoldEnd::Deleted));
    }

    #[test]
    fn a_state_that_cannot_be_read_says_nothing() {
        for state in [None, Some("{"), Some("[]"), Some("{\"pending\": 1, \"result\": \"no\"}")] {
            let mut held = HeldObject::new(ObjectHead { annotation: state.map(Into::into), ..head("1", &["x"], None) });
            assert_eq!(held.waits_for(), None, "{state:?}");
            assert_eq!(held.on_deleted(None), HoldEnd::Deleted, "{state:?}");
        }
    }
}
