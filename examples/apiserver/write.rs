//! Writes: CREATE, UPDATE and DELETE, as the design for an apiserver that stores unfinished objects has them.
//!
//! ```text
//!   CREATE ─ review ─ quota ─ stored, hidden ─ held ──> completed: 201    failed: its Status    late: 504
//!   UPDATE ─ review ─ (last head gone: validated as the CREATE by its creator, the rest of the quota) ─ stored
//!                  └─ (a result is set: stored, then deleted)
//! ```

use std::time::{Duration, SystemTime};

use gatepost_wire::pb::{
    gatepost::v1::{HoldRequest, QuotaPhaseRequest, QuotaStage, hold_response::End},
    k8s::io::{
        api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
        apimachinery::pkg::{
            apis::meta::v1::{GroupVersionKind, GroupVersionResource},
            runtime::RawExtension,
        },
    },
};
use serde_json::Value;

use crate::{
    apiserver::{Apiserver, Caller},
    kind::Kind,
    object::{Object, Place, failed},
    quota::{COUNT, Charged, REST},
    refusal::Refusal,
    sidecar::{Answered, user_of},
    steps,
};

/// Longest hold of a CREATE, less the time that its answer takes.
const HELD: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

/// A CREATE that has succeeded.
pub(crate) enum Created {
    /// It is initialized.
    Whole(Object),
    /// Its creator did not want to wait.
    Unfinished(Object),
}

impl Apiserver {
    /// CREATE: a POST, or a PUT of an object that is not there.
    pub(crate) async fn create(&'static self, caller: &Caller, place: Place, json: Value) -> Result<Created, Refusal> {
        let object = finished(self.made(caller.clone(), place, json)).await?;
        if caller.dry_run || object.is_initialized() {
            return Ok(Created::Whole(object));
        }
        if caller.includes {
            return Ok(Created::Unfinished(object));
        }
        self.held(caller, object).await.map(Created::Whole)
    }

    /// Stores a new object, hidden where somebody must act on it.
    async fn made(&'static self, caller: Caller, place: Place, mut json: Value) -> Result<Object, Refusal> {
        let metadata = &mut json["metadata"];
        metadata["name"] = place.name.as_str().into();
        if place.kind.namespaced {
            metadata["namespace"] = place.namespace.as_str().into();
        }
        metadata["uid"] = random_uid()?.into();
        metadata["creationTimestamp"] = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().into();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("resourceVersion");
        }
        steps::reached("create-begun").await;
        let request = review("CREATE", &caller, &place, Some(&json), None);
        let json = patched(json, self.sidecars.review(&request, false).await??.patch)?;
        let mut object = Object { place, json, revision: 0 };
        if caller.dry_run {
            return Ok(object);
        }
        let charged = self.charge(None, Some(&object)).await??;
        steps::reached("create-reviewed").await;
        // Also while an unfinished object has the name: the same as ever.
        let exists = || {
            Refusal::new(
                409,
                "AlreadyExists",
                format!("{} {:?} already exists", object.place.kind.resource, object.place.name),
            )
        };
        object.revision = self.written(&object, 0, charged).await?.ok_or_else(exists)?;
        object.json["metadata"]["resourceVersion"] = object.revision.to_string().into();
        steps::reached("create-stored").await;
        Ok(object)
    }

    /// Writes an object whose last change is that of `revision`; where that fails, what was charged is given back.
    async fn written(&self, object: &Object, revision: i64, charged: Charged) -> Result<Option<i64>, Refusal> {
        let written = self.etcd.swap(&object.place.key(), revision, Some(object.json.to_string().as_bytes())).await;
        if !matches!(written, Ok(Some(_))) {
            self.quota.undo(charged);
        }
        Ok(written?)
    }

    /// Holds a CREATE until its object is initialized, has failed, or the time is over.
    async fn held(&self, caller: &Caller, object: Object) -> Result<Object, Refusal> {
        let within = caller.timeout.unwrap_or(HELD).min(HELD).saturating_sub(MARGIN);
        let until = tokio::time::Instant::now() + within;
        let request = HoldRequest {
            group: String::new(),
            resource: object.place.kind.resource.into(),
            namespace: object.place.namespace.clone(),
            name: object.place.name.clone(),
            uid: object.uid().to_owned(),
            resource_version: object.revision.to_string(),
        };
        let timed_out = || {
            let why = format!("Timeout: the object exists with uid {} and is not initialized", object.uid());
            Refusal::new(504, "Timeout", why)
        };
        loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            let end = self.sidecars.hold(&request, left).await.and_then(|answer| answer.end).ok_or_else(timed_out)?;
            steps::reached("create-released").await;
            match end {
                End::Failed(status) => return Err(status.into()),
                End::TimedOut(late) => return Err(late.status.map_or_else(timed_out, Refusal::from)),
                // The storage has the last word.
                End::Completed(_) | End::Deleted(_) => match self.stored(&object.place).await? {
                    Some(now) if now.uid() == object.uid() && now.is_initialized() => return Ok(now),
                    Some(now) if now.uid() == object.uid() => {}
                    _ => {
                        return Err(Refusal::new(
                            500,
                            "InternalError",
                            "the object was deleted while it was initialized",
                        ));
                    }
                },
            }
        }
    }

    /// UPDATE of an object, which must be as it was read.
    pub(crate) async fn update(&'static self, caller: &Caller, old: Object, json: Value) -> Result<Object, Refusal> {
        finished(self.updated(caller.clone(), old, json)).await
    }

    async fn updated(&'static self, caller: Caller, old: Object, mut json: Value) -> Result<Object, Refusal> {
        let stale = || Refusal::conflict(old.place.kind.resource, &old.place.name);
        let metadata = &mut json["metadata"];
        let version = metadata["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && version != old.revision.to_string() {
            return Err(stale());
        }
        for field in ["name", "namespace", "uid", "creationTimestamp"] {
            metadata[field] = old.json["metadata"][field].clone();
        }
        if !old.place.kind.namespaced
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.remove("namespace");
        }
        let request = review("UPDATE", &caller, &old.place, Some(&json), Some(&old.json));
        let json = patched(json, self.sidecars.review(&request, false).await??.patch)?;
        if caller.dry_run {
            return Ok(Object { json, ..old });
        }
        let mut new = Object { place: old.place.clone(), json, revision: 0 };
        let completes = !old.is_initialized() && new.is_initialized();
        // A no becomes the result. Where nobody answers, the updater tries again.
        if completes && let Err(refusal) = self.validated(&old, &new).await? {
            new.json = failed(&old.json, *refusal.0);
        }
        let charged = match self.charge(Some(&old), Some(&new)).await? {
            Ok(charged) => charged,
            Err(refusal) if completes => {
                new.json = failed(&old.json, *refusal.0);
                Charged::default()
            }
            Err(refusal) => return Err(refusal),
        };
        steps::reached("update-reviewed").await;
        new.revision = self.written(&new, old.revision, charged).await?.ok_or_else(stale)?;
        new.json["metadata"]["resourceVersion"] = new.revision.to_string().into();
        steps::reached("update-stored").await;
        if new.list().is_some_and(|list| list.result.is_some()) {
            // A client that watches has seen why.
            let _ = self.removed(&new).await;
        }
        Ok(new)
    }

    /// Validating hooks on the object that is to become visible, as its creator's.
    async fn validated(&self, old: &Object, new: &Object) -> Answered<()> {
        let creator = user_of(&old.json["metadata"]["initializers"]["creator"]);
        let caller = Caller { user: creator, ..Caller::default() };
        let request = review("CREATE", &caller, &new.place, Some(&new.json), None);
        Ok(self.sidecars.review(&request, true).await?.map(drop))
    }

    /// DELETE: always allowed, also of what its client cannot see.
    pub(crate) async fn delete(&'static self, caller: &Caller, place: &Place) -> Result<Object, Refusal> {
        loop {
            let found = self.stored(place).await?;
            let object = found.ok_or_else(|| Refusal::not_found(place.kind.resource, &place.name))?;
            let request = review("DELETE", caller, place, None, Some(&object.json));
            self.sidecars.review(&request, false).await??;
            if caller.dry_run || self.removed(&object).await? {
                return Ok(object);
            }
        }
    }

    /// Removes an object from the storage, while it is as it was read.
    pub(crate) async fn removed(&'static self, object: &Object) -> Result<bool, Refusal> {
        let object = object.clone();
        finished(async move {
            steps::reached("delete-begun").await;
            if self.etcd.swap(&object.place.key(), object.revision, None).await?.is_none() {
                return Ok(false);
            }
            // Quota that is not released here is counted again by the next process.
            if let Err(refusal) = self.charge(Some(&object), None).await.flatten() {
                eprintln!("quota is not released: {}", refusal.0.message);
            }
            Ok(true)
        })
        .await
    }

    /// Charges what Gatepost says that this write charges.
    async fn charge(&self, before: Option<&Object>, after: Option<&Object>) -> Answered<Charged> {
        let mut charged = Charged::default();
        let Some(Object { place, .. }) = after.or(before) else { return Ok(Ok(charged)) };
        if !matches!(place.kind.resource, "pods" | "configmaps") {
            return Ok(Ok(charged));
        }
        let stage = |object: Option<&Object>| match object {
            None => QuotaStage::Absent,
            Some(object) if object.is_initialized() => QuotaStage::Initialized,
            Some(_) => QuotaStage::Unfinished,
        };
        let request = QuotaPhaseRequest { before: stage(before).into(), after: stage(after).into() };
        let phase = self.sidecars.quota_phase(request).await?;
        let limits = match Kind::of("resourcequotas") {
            Some(kind) => self.all(kind, &place.namespace).await?.0,
            None => Vec::new(),
        };
        for (charge, what) in [(phase.count(), COUNT), (phase.rest(), REST)] {
            if let Err(refusal) = self.quota.charge(charge, what, (before, after), &limits, &mut charged) {
                self.quota.undo(charged);
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(charged))
    }
}

/// A write to its end, also where its client has gone: between the charge and the write it must not stop.
async fn finished<T: Send + 'static>(
    write: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let broken = |error| Refusal::new(500, "InternalError", format!("Internal error occurred: {error}"));
    tokio::spawn(write).await.map_err(broken)?
}

fn review(
    operation: &str,
    caller: &Caller,
    place: &Place,
    new: Option<&Value>,
    old: Option<&Value>,
) -> AdmissionRequest {
    let raw = |object: &Value| RawExtension { raw: Some(object.to_string().into()) };
    let text = |text: &str| Some(text.to_owned());
    let kind = GroupVersionKind { group: text(""), version: text("v1"), kind: text(place.kind.kind) };
    let resource = GroupVersionResource { group: text(""), version: text("v1"), resource: text(place.kind.resource) };
    let user: UserInfo = caller.user.clone();
    AdmissionRequest {
        uid: random_uid().ok(),
        kind: Some(kind),
        resource: Some(resource),
        name: text(&place.name),
        namespace: text(&place.namespace),
        operation: text(operation),
        user_info: Some(user),
        object: new.map(raw),
        old_object: old.map(raw),
        dry_run: Some(caller.dry_run),
        ..AdmissionRequest::default()
    }
}

/// The object with the patch of a verdict.
fn patched(mut json: Value, patch: Option<bytes::Bytes>) -> Result<Value, Refusal> {
    let Some(patch) = patch.filter(|patch| !patch.is_empty()) else { return Ok(json) };
    let broken = |why: String| Refusal::new(500, "InternalError", format!("Internal error occurred: {why}"));
    let patch: json_patch::Patch = serde_json::from_slice(&patch).map_err(|error| broken(error.to_string()))?;
    json_patch::patch(&mut json, &patch).map_err(|error| broken(error.to_string()))?;
    if json["metadata"].is_object() { Ok(json) } else { Err(broken("a patch has taken the metadata away".to_owned())) }
}

/// 128 bits from the system, as a uid.
fn random_uid() -> Result<String, Refusal> {
    let hex = random_letters(32, b"0123456789abcdef")?;
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// Random letters.
pub(crate) fn random_letters(count: usize, letters: &[u8]) -> Result<String, Refusal> {
    use std::io::Read as _;
    let mut bytes = vec![0; count];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(|error| Refusal::new(500, "InternalError", error.to_string()))?;
    Ok(bytes.iter().map(|byte| letters[usize::from(*byte) % letters.len()] as char).collect())
}
