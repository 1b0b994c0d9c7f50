//! CREATE of an opted-in resource: by POST, PUT or server-side apply. The response is held until the object is
//! initialized.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout_at};

use super::{
    body::Body,
    fields,
    hold::{HeldObject, HoldEnd},
    inspect::{InspectedResponse, Room, always_shows_head, head, may_be_known},
    query::Query,
    refusal::ProxyRefusal,
    resources::ResourcePath,
    serve::{ForwardedRequest, OriginalRequest, Proxy, RequestResult},
};
use crate::metrics::{ProxyHoldEnd, ProxyOutcome, ProxyRefused};
use gatepost_kube_support::{KubeError, WatchedChange};
use gatepost_wire::object_head::{MARKS, ObjectHead};

/// Media type that always shows the object.
const JSON: &str = "application/json";
/// Part of the hold's time that is reserved for the response itself.
const RESPONSE_MARGIN: Duration = Duration::from_secs(1);
/// Pause between the end of a watch and the next read of the object.
const REREAD_PAUSE: Duration = Duration::from_millis(200);
/// Maximum duration of a watch. The hold ends earlier.
const MAX_WATCH_TIME: Duration = Duration::from_secs(300);

impl Proxy {
    /// Passes the request. If the object in the response waits for initializers, holds the response until they finish.
    pub(super) async fn create(
        &self,
        mut passing: ForwardedRequest<'_>,
        path: &ResourcePath,
    ) -> Result<RequestResult, ProxyRefusal> {
        let query = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(query.as_deref());
        let until = passing.sent.arrived + self.max_hold_time(query);
        let is_dry_run = query.is_dry_run();
        // Take a place before anything is stored: a rejection afterwards would be too late.
        let no_room = || ProxyRefusal::too_many(ProxyRefused::Holds, "too many writes that wait for initializers");
        let _hold = self.holds.take().ok_or_else(no_room)?;
        passing.request.headers_mut().remove(ACCEPT_ENCODING);
        // The response must show the object. If the requested form does not, the object is read again in that form.
        let headers = &passing.sent.headers;
        let in_another_form = !is_dry_run && !always_shows_head(headers, query) && may_be_known(headers);
        if in_another_form {
            passing.request.headers_mut().insert(ACCEPT, HeaderValue::from_static(JSON));
        }
        let ForwardedRequest { request, sent } = passing;
        let answer = self.send(sent.user, request).await?;
        let is_created = answer.status() == StatusCode::CREATED;
        if is_dry_run || !(is_created || (answer.status().is_success() && in_another_form)) {
            return Ok((ProxyOutcome::Written, answer));
        }
        let InspectedResponse { mut answer, body, room } =
            self.inspect(answer, &self.created, sent.share_of_writes).await.map_err(ProxyRefusal::once_stored)?;
        // The warning is not reliable: an apiserver omits warnings if there are many.
        let head = head(answer.headers(), &body).ok_or_else(ProxyRefusal::unknown_object)?;
        if head.label.is_none() {
            fields::remove_pending_warning(answer.headers_mut());
        }
        let is_held = is_created && head.label.is_some();
        if !is_held && !in_another_form {
            return Ok((ProxyOutcome::Written, InspectedResponse { answer, body, room }.into_response()));
        }
        // Release the memory: many requests may wait for a long time.
        drop((body, room));
        let mut held = HeldObject::new(head);
        if !is_held {
            return Ok((ProxyOutcome::Written, self.in_form(answer, path, &held, &sent).await?));
        }
        // `Abandoned` counts if the creator disconnects, which drops this future.
        let mut counted = self.metrics.begin(ProxyHoldEnd::Abandoned);
        let ended = timeout_at(until, self.follow(path, &mut held)).await;
        counted.end = match &ended {
            Err(_) => ProxyHoldEnd::TimedOut,
            Ok(HoldEnd::Failed(_)) => ProxyHoldEnd::Failed,
            Ok(HoldEnd::Deleted) => ProxyHoldEnd::Deleted,
            Ok(HoldEnd::Completed) => ProxyHoldEnd::Completed,
        };
        drop(counted);
        let answer = match ended {
            Err(_) => Err(ProxyRefusal::timed_out(path, &held)),
            Ok(HoldEnd::Failed(result)) => Err(ProxyRefusal::verbatim(result)),
            Ok(HoldEnd::Deleted) => Err(ProxyRefusal::deleted(path, &held).after_hold()),
            Ok(HoldEnd::Completed) => self.in_form(answer, path, &held, &sent).await,
        };
        // If the object cannot be shown, the outcome of the refusal counts.
        answer.map(|answer| (ProxyOutcome::Held, answer))
    }

    /// Returns the response with the current object, in the requested form.
    async fn in_form(
        &self,
        mut answer: Response<()>,
        path: &ResourcePath,
        held: &HeldObject,
        sent: &OriginalRequest<'_>,
    ) -> Result<Response<Body>, ProxyRefusal> {
        let accept = sent.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let (body, form, room) = self.finished(path, held, accept.unwrap_or(JSON), sent).await?;
        let headers = answer.headers_mut();
        fields::remove_pending_warning(headers);
        for field in [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE] {
            headers.remove(field);
        }
        headers.extend(form.map(|form| (CONTENT_TYPE, form)));
        Ok(answer.map(|()| Body::keeping(body, room)))
    }

    /// Returns the maximum time of a hold: the shorter of our timeout and the client's, less a margin for the response.
    fn max_hold_time(&self, query: Query<'_>) -> Duration {
        let theirs = query.first("timeout").and_then(|text| String::from_utf8(text).ok());
        let theirs = theirs.and_then(|text| humantime::parse_duration(&text).ok()).filter(|theirs| !theirs.is_zero());
        let limit = theirs.map_or(self.settings.hold_timeout, |theirs| theirs.min(self.settings.hold_timeout));
        limit.saturating_sub(RESPONSE_MARGIN).max(limit / 2)
    }

    /// Watches the object until its initialization ends.
    async fn follow(&self, path: &ResourcePath, held: &mut HeldObject) -> HoldEnd {
        let at = path.collection();
        loop {
            match self.watch(&at, held).await {
                Ok(Some(ended)) => return ended,
                // The watched revision may have expired, so read the object.
                Ok(None) => {}
                Err(failure) => self.cluster.record_failure(&failure).await,
            }
            sleep(REREAD_PAUSE).await;
            let asking = async { self.cluster.client().await?.find_head(&at, held.name(), MARKS).await };
            match asking.await {
                Ok(Some(head)) => {
                    if let Some(ended) = held.update(head) {
                        return ended;
                    }
                }
                Ok(None) => return held.on_deleted(None),
                Err(failure) => self.cluster.record_failure(&failure).await,
            }
        }
    }

    /// Watches the object; `None` if the apiserver has ended the watch.
    async fn watch(&self, at: &str, held: &mut HeldObject) -> Result<Option<HoldEnd>, KubeError> {
        let client = self.cluster.client().await?;
        let mut watch = client.watch_metadata(at, Some(held.name()), held.resource_version(), MAX_WATCH_TIME).await?;
        while let Some(event) = watch.next::<Box<RawValue>>().await? {
            let head = |object: Box<RawValue>| ObjectHead::of_json(object.get().as_bytes(), MARKS);
            let ended = match event {
                WatchedChange::Changed(object) => head(object).and_then(|head| held.update(head)),
                WatchedChange::Gone(object) => Some(held.on_deleted(head(object))),
                WatchedChange::Bookmark(_) => None,
                WatchedChange::Expired => return Ok(None),
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// Returns the uid of the object of this name, "" if it does not exist; `None` if the apiserver gives no answer.
    async fn uid_now(&self, at: &str, name: &str) -> Option<String> {
        let asking = async { self.cluster.client().await?.find_head(at, name, MARKS).await };
        match asking.await {
            Ok(found) => Some(found.map(|head| head.uid).unwrap_or_default()),
            Err(failure) => {
                self.cluster.record_failure(&failure).await;
                None
            }
        }
    }

    /// Reads the object in the form that its creator requested.
    async fn finished(
        &self,
        path: &ResourcePath,
        held: &HeldObject,
        accept: &str,
        sent: &OriginalRequest<'_>,
    ) -> Result<(Bytes, Option<HeaderValue>, Room), ProxyRefusal> {
        let at = path.collection();
        let reading = async { self.cluster.client().await?.read_as(&at, held.name(), accept).await };
        match reading.await {
            Ok(read) if read.status.is_success() => {
                let room = Room::of(&self.created, sent.share_of_writes, read.body.len());
                let room = room.map_err(ProxyRefusal::once_stored)?;
                let headers: HeaderMap =
                    read.content_type.clone().map(|form| (CONTENT_TYPE, form)).into_iter().collect();
                // Another object of that name is not the created one.
                let uid = match head(&headers, &read.body) {
                    Some(head) => Some(head.uid),
                    // A response without a head is of the created object if that exists before and after the read.
                    None => self.uid_now(&at, held.name()).await,
                };
                match uid {
                    Some(uid) if uid == held.uid() => Ok((read.body, read.content_type, room)),
                    Some(_) => Err(ProxyRefusal::deleted(path, held)),
                    None => Err(ProxyRefusal::unread(path, held)),
                }
            }
            Ok(read) if read.status == StatusCode::NOT_FOUND => Err(ProxyRefusal::deleted(path, held)),
            Ok(_) => Err(ProxyRefusal::unread(path, held)),
            Err(failure) => {
                self.cluster.record_failure(&failure).await;
                Err(ProxyRefusal::unread(path, held))
            }
        }
    }
}
