//! Reads a `metav1.Status` in JSON as Go's decoder fills it.

use super::go_values::{Slice, set};
use crate::{
    json::{Cursor, JsonReadError},
    pb::k8s::io::apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusCause, StatusDetails},
};

/// Status that is being read.
#[derive(Default)]
pub(super) struct PartialStatus {
    metadata: ListMeta,
    /// All fields except `metadata` and `details`, which are set at the end.
    plain: Status,
    details: Option<Details>,
}

/// Details that are being read.
#[derive(Default)]
struct Details {
    /// All fields except `causes`.
    plain: StatusDetails,
    causes: Slice<StatusCause>,
}

impl From<PartialStatus> for Status {
    fn from(read: PartialStatus) -> Self {
        let details = read.details.map(|details| StatusDetails { causes: details.causes.into_vec(), ..details.plain });
        let metadata = Some(read.metadata).filter(|metadata| *metadata != ListMeta::default());
        Self { metadata, details, ..read.plain }
    }
}

/// Reads an object over an earlier one with the same key; `null` clears it.
pub(super) fn status(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    into: &mut Option<PartialStatus>,
) -> Result<(), JsonReadError> {
    if !cursor.object(field)? {
        *into = None;
        return Ok(());
    }
    let PartialStatus { metadata: meta, plain, details: detailed } = into.get_or_insert_default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "status" => set(cursor, "status.status", |text| plain.status = Some(text))?,
            "message" => set(cursor, "status.message", |text| plain.message = Some(text))?,
            "reason" => set(cursor, "status.reason", |text| plain.reason = Some(text))?,
            "code" => plain.code = cursor.integer("status.code")?.or(plain.code),
            "details" => details(cursor, detailed)?,
            "metadata" => metadata(cursor, meta)?,
            // kube-apiserver overwrites these two.
            "kind" => set(cursor, "status.kind", drop)?,
            "apiVersion" => set(cursor, "status.apiVersion", drop)?,
            _ => cursor.skip()?,
        }
    }
    Ok(())
}

/// Reads `metadata`. It is not a pointer in Go, so `null` changes nothing.
fn metadata(cursor: &mut Cursor<'_>, into: &mut ListMeta) -> Result<(), JsonReadError> {
    if !cursor.object("status.metadata")? {
        return Ok(());
    }
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "selfLink" => set(cursor, "status.metadata.selfLink", |text| into.self_link = Some(text))?,
            "resourceVersion" => {
                set(cursor, "status.metadata.resourceVersion", |text| into.resource_version = Some(text))?;
            }
            "continue" => set(cursor, "status.metadata.continue", |text| into.r#continue = Some(text))?,
            "remainingItemCount" => {
                into.remaining_item_count = cursor.long_integer("status.metadata.remainingItemCount")?;
            }
            _ => cursor.skip()?,
        }
    }
    Ok(())
}

fn details(cursor: &mut Cursor<'_>, into: &mut Option<Details>) -> Result<(), JsonReadError> {
    if !cursor.object("status.details")? {
        *into = None;
        return Ok(());
    }
    let Details { plain, causes } = into.get_or_insert_default();
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "name" => set(cursor, "status.details.name", |text| plain.name = Some(text))?,
            "group" => set(cursor, "status.details.group", |text| plain.group = Some(text))?,
            "kind" => set(cursor, "status.details.kind", |text| plain.kind = Some(text))?,
            "uid" => set(cursor, "status.details.uid", |text| plain.uid = Some(text))?,
            "retryAfterSeconds" => {
                let seconds = cursor.integer("status.details.retryAfterSeconds")?;
                plain.retry_after_seconds = seconds.or(plain.retry_after_seconds);
            }
            "causes" => causes.read(cursor, "status.details.causes", cause)?,
            _ => cursor.skip()?,
        }
    }
    Ok(())
}

fn cause(cursor: &mut Cursor<'_>, into: &mut StatusCause) -> Result<(), JsonReadError> {
    if !cursor.object("status.details.causes")? {
        return Ok(());
    }
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "reason" => set(cursor, "status.details.causes.reason", |text| into.reason = Some(text))?,
            "message" => set(cursor, "status.details.causes.message", |text| into.message = Some(text))?,
            "field" => set(cursor, "status.details.causes.field", |text| into.field = Some(text))?,
            _ => cursor.skip()?,
        }
    }
    Ok(())
}
