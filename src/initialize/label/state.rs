//! State: what the annotation of an unfinished object says, as JSON.
//!
//! ```text
//! {"state":"Pending","pending":["a.example.com","b.example.com"],"started":"2026-11-23T08:00:00Z",
//!  "creator":{"username":"ann","uid":"","groups":["dev"],"extra":{}}}
//! {"state":"Failed","pending":["b.example.com"],"done":["a.example.com"],…,"result":{"status":"Failure","code":403,…}}
//! {"state":"Completed","pending":[]}
//! ```
//!
//! The policy for apiservers compares the beginning and the end of the first form with a request: fields stand in this order,
//! and those of the creator in the order of their names, the username last.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{
    Initialization, Initializers, MOST_PENDING, initializers::Status, lifecycle::Misstep, stored_result,
};
use crate::model::StatusInfo;

/// Bytes of a state: all annotations of an object together may have 256 KiB.
// source: k8s.io/apimachinery pkg/api/validation, TotalAnnotationSizeLimitB.
const MOST_BYTES: usize = 128 << 10;

/// Part of its way on which an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelPhase {
    /// Initializers must still act.
    Pending,
    /// It is initialized.
    Completed,
    /// It has a result, and is deleted.
    Failed,
}

/// State of an unfinished object.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Names that must still act, and the result.
    pub list: Initializers,
    /// Names that had their turn, in order: none of them comes back.
    pub done: Vec<Box<str>>,
    /// User who has created the object: username, uid, groups, extra.
    pub creator: Value,
    /// Time at which it was marked, in RFC 3339.
    pub started: Box<str>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    state: LabelPhase,
    pending: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    started: Box<str>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    creator: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Status>,
}

fn is_empty(text: &str) -> bool {
    text.is_empty()
}

impl State {
    /// State of a new object.
    pub fn new(list: Initializers, creator: Value, started: &str) -> Self {
        Self { list, done: Vec::new(), creator, started: started.into() }
    }

    /// State of an object on which nobody must act any more.
    pub fn completed() -> Self {
        Self::new(Initializers::default(), Value::Null, "")
    }

    /// Reads an annotation.
    ///
    /// # Errors
    /// It is none that Gatepost may have written; the text repeats nothing of it.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("is longer than {MOST_BYTES} bytes"));
        }
        let written: Written = serde_json::from_str(text)
            .map_err(|error| format!("cannot be read at line {}, column {}", error.line(), error.column()))?;
        let Written { state, pending, done, started, creator, result } = written;
        if pending.len() + done.len() > MOST_PENDING {
            return Err(format!("has more than {MOST_PENDING} entries"));
        }
        let list = Initializers { pending, result: result.map(|result| Box::new(result.into())) };
        let this = Self { list, done, creator, started };
        match this.phase() == state {
            true => Ok(this),
            false => Err("says another state than its pending names and its result".to_owned()),
        }
    }

    /// The annotation. Of a finished object it says nothing more: everybody may read that.
    ///
    /// # Errors
    /// It would be too long.
    pub fn write(&self) -> Result<String, String> {
        if self.phase() == LabelPhase::Completed {
            return Ok(r#"{"state":"Completed","pending":[]}"#.to_owned());
        }
        let written = Written {
            state: self.phase(),
            pending: self.list.pending.clone(),
            done: self.done.clone(),
            started: self.started.clone(),
            creator: self.creator.clone(),
            result: self.list.result.as_deref().map(Status::from),
        };
        let text = serde_json::to_string(&written).map_err(|error| error.to_string())?;
        match text.len() <= MOST_BYTES {
            true => Ok(text),
            false => Err(format!("the creator's groups and extra fields have more than {MOST_BYTES} bytes")),
        }
    }

    /// Where the object is on its way.
    pub fn phase(&self) -> LabelPhase {
        match &self.list {
            Initializers { result: Some(_), .. } => LabelPhase::Failed,
            Initializers { pending, .. } if pending.is_empty() => LabelPhase::Completed,
            _ => LabelPhase::Pending,
        }
    }

    /// Name of the creator, where it is known.
    pub fn username(&self) -> Option<&str> {
        self.creator.get("username")?.as_str()
    }

    /// The state after the head has done its part; `adds` must act behind it.
    ///
    /// # Errors
    /// It is not its turn, or these names cannot be added.
    pub fn done(&self, head: &str, adds: Vec<Box<str>>) -> Result<Self, Misstep> {
        let mut way = Initialization::resumed(self.list.clone(), self.done.clone());
        way.done(head, adds)?;
        let done = way.gone().to_vec();
        Ok(Self { done, ..self.with(Initializers::of(way.pending())) })
    }

    /// The state after the object has failed.
    pub fn failed(&self, result: StatusInfo) -> Self {
        let result = StatusInfo { status: "Failure".into(), ..stored_result(result) };
        self.with(Initializers { pending: self.list.pending.clone(), result: Some(Box::new(result)) })
    }

    /// The same with another list.
    pub fn with(&self, list: Initializers) -> Self {
        Self { list, done: self.done.clone(), creator: self.creator.clone(), started: self.started.clone() }
    }
}
