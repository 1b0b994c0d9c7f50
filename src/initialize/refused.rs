//! Refused: a list, or a change of one, that is not allowed.

use crate::model::{StatusCause, StatusInfo};

/// Reason why a list, or a change of one, is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedList {
    /// It is wrong, whoever asks for it. Upstream: 422.
    Invalid {
        /// The field at fault, from the object's root.
        field: String,
        /// Fault of the list.
        why: String,
    },
    /// It is somebody else's to do. Upstream: 403.
    Forbidden(String),
}

impl RefusedList {
    /// A problem with a field of `metadata.initializers`; "" is the whole.
    pub(super) fn invalid(field: &str, why: impl Into<String>) -> Self {
        let dot = if field.is_empty() { "" } else { "." };
        Self::Invalid { field: format!("metadata.initializers{dot}{field}"), why: why.into() }
    }

    /// The same of a list that the client wrote at this place instead.
    pub fn written_at(self, place: &str) -> Self {
        const FIELD: &str = "metadata.initializers";
        match self {
            Self::Invalid { field, why } => {
                let entry = field.strip_prefix(FIELD).map(|entry| entry.trim_start_matches('.')).unwrap_or_default();
                Self::Invalid { field: place.to_owned(), why: format!("{entry} {why}").trim_start().to_owned() }
            }
            Self::Forbidden(why) => Self::Forbidden(why.replacen(FIELD, place, 1)),
        }
    }

    /// HTTP status code.
    pub fn code(&self) -> i32 {
        match self {
            Self::Invalid { .. } => 422,
            Self::Forbidden(_) => 403,
        }
    }

    /// The answer to whoever wanted it.
    pub fn into_status(self) -> StatusInfo {
        let code = self.code();
        let failure = |reason: &str, message| StatusInfo {
            code,
            status: "Failure".into(),
            reason: reason.into(),
            message,
            ..StatusInfo::default()
        };
        match self {
            Self::Invalid { field, why } => StatusInfo {
                causes: vec![StatusCause {
                    reason: "FieldValueInvalid".into(),
                    message: why.clone(),
                    field: field.clone(),
                }],
                ..failure("Invalid", format!("{field}: Invalid value: {why}"))
            },
            Self::Forbidden(why) => failure("Forbidden", why),
        }
    }
}
