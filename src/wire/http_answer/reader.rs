//! The fields of an answer in JSON. As in Go's decoder the last of equal keys counts, and unknown ones are passed by.

use bytes::Bytes;

use crate::wire::{
    json::{Cursor, ReadError},
    pb::k8s::io::{
        api::admission::v1::AdmissionResponse,
        apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
    },
};

/// What an answer says.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) response: Option<AdmissionResponse>,
    /// The seeds' contract has it here.
    pub(super) status: Option<Status>,
}

/// Reads an AdmissionReview with its answer.
pub(super) fn read(text: &str) -> Result<Reading, ReadError> {
    let mut cursor = Cursor::new(text);
    let mut reading = Reading::default();
    if !cursor.object("the answer")? {
        return Err(ReadError::Type { field: "the answer", wanted: "an object" });
    }
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "apiVersion" => reading.api_version = string(&mut cursor, "apiVersion")?.unwrap_or_default(),
            "kind" => reading.kind = string(&mut cursor, "kind")?.unwrap_or_default(),
            "response" => reading.response = response(&mut cursor)?,
            "status" => reading.status = status(&mut cursor, "status")?,
            _ => cursor.skip()?,
        }
    }
    cursor.end()?;
    Ok(reading)
}

/// The message of a text that is a `metav1.Status` and has one.
pub(super) fn message_of_status(text: &str) -> Option<String> {
    let mut cursor = Cursor::new(text);
    let (mut kind, mut message) = (None, None);
    cursor.object("the body").ok().filter(|entered| *entered)?;
    while let Some(key) = cursor.key().ok()? {
        match &*key.plain() {
            "kind" => kind = string(&mut cursor, "kind").ok()?,
            "message" => message = string(&mut cursor, "message").ok()?,
            _ => cursor.skip().ok()?,
        }
    }
    message.filter(|message| kind.as_deref() == Some("Status") && !message.is_empty())
}

fn response(cursor: &mut Cursor<'_>) -> Result<Option<AdmissionResponse>, ReadError> {
    if !cursor.object("response")? {
        return Ok(None);
    }
    let mut response = AdmissionResponse::default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "uid" => response.uid = string(cursor, "response.uid")?,
            "allowed" => response.allowed = cursor.boolean("response.allowed")?,
            "status" => response.status = status(cursor, "response.status")?,
            // Only whether there is one matters, so it stays the base64 it is.
            "patch" => response.patch = string(cursor, "response.patch")?.map(Bytes::from),
            "patchType" => response.patch_type = string(cursor, "response.patchType")?,
            "auditAnnotations" => {
                response.audit_annotations.clear();
                if cursor.object("response.auditAnnotations")? {
                    while let Some(key) = cursor.key()? {
                        let value = string(cursor, "response.auditAnnotations")?.unwrap_or_default();
                        response.audit_annotations.insert(key.plain().into_owned(), value);
                    }
                }
            }
            "warnings" => {
                response.warnings.clear();
                if cursor.array("response.warnings")? {
                    while cursor.item()? {
                        response.warnings.push(string(cursor, "response.warnings")?.unwrap_or_default());
                    }
                }
            }
            _ => cursor.skip()?,
        }
    }
    Ok(Some(response))
}

fn status(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<Status>, ReadError> {
    if !cursor.object(field)? {
        return Ok(None);
    }
    let mut status = Status::default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "status" => status.status = string(cursor, "status.status")?,
            "message" => status.message = string(cursor, "status.message")?,
            "reason" => status.reason = string(cursor, "status.reason")?,
            "code" => status.code = cursor.integer("status.code")?,
            "details" => status.details = details(cursor)?,
            _ => cursor.skip()?,
        }
    }
    Ok(Some(status))
}

fn details(cursor: &mut Cursor<'_>) -> Result<Option<StatusDetails>, ReadError> {
    if !cursor.object("status.details")? {
        return Ok(None);
    }
    let mut details = StatusDetails::default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "name" => details.name = string(cursor, "status.details.name")?,
            "group" => details.group = string(cursor, "status.details.group")?,
            "kind" => details.kind = string(cursor, "status.details.kind")?,
            "uid" => details.uid = string(cursor, "status.details.uid")?,
            "retryAfterSeconds" => {
                details.retry_after_seconds = cursor.integer("status.details.retryAfterSeconds")?;
            }
            "causes" => details.causes = causes(cursor)?,
            _ => cursor.skip()?,
        }
    }
    Ok(Some(details))
}

fn causes(cursor: &mut Cursor<'_>) -> Result<Vec<StatusCause>, ReadError> {
    let mut causes = Vec::new();
    if !cursor.array("status.details.causes")? {
        return Ok(causes);
    }
    while cursor.item()? {
        let mut cause = StatusCause::default();
        if cursor.object("status.details.causes")? {
            while let Some(key) = cursor.key()? {
                match &*key.plain() {
                    "reason" => cause.reason = string(cursor, "status.details.causes.reason")?,
                    "message" => cause.message = string(cursor, "status.details.causes.message")?,
                    "field" => cause.field = string(cursor, "status.details.causes.field")?,
                    _ => cursor.skip()?,
                }
            }
        }
        causes.push(cause);
    }
    Ok(causes)
}

fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<String>, ReadError> {
    Ok(cursor.string(field)?.map(|text| text.plain().into_owned()))
}
