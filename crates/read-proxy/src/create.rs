//! CREATE of a resource that is opted in: by POST, PUT or server-side apply. The answer is held while the object is not
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
    inspect::{Inspected, Room, asks_for_a_head, head, may_be_known},
    query::Query,
    refusal::ProxyRefusal,
    resources::ResourcePath,
    serve::{Answered, Passing, Proxy, Sent},
};
use crate::metrics::{ProxyHoldEnd, ProxyOutcome, ProxyRefused};
use gatepost_kube_support::{KubeError, WatchedChange};
use gatepost_wire::object_head::{MARKS, ObjectHead};

/// Form that always shows the object.
const JSON: &str = "application/json";
/// Time for the answer itself, out of the client's.
const MARGIN: Duration = Duration::from_secs(1);
/// Pause before an apiserver is asked again that has ended a watch.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest watch; the hold ends before.
const LASTING: Duration = Duration::from_secs(300);

impl Proxy {
    /// Passes the request; where the object in its answer waits for initializers, so does the client.
    pub(super) async fn create(&self, mut passing: Passing<'_>, path: &ResourcePath) -> Result<Answered, ProxyRefusal> {
        let query = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(query.as_deref());
        let until = passing.sent.arrived + self.patience(query);
        let is_dry_run = query.is_dry_run();
        // Before anything is stored: afterwards it is too late to say no.
        let no_room = || ProxyRefusal::too_many(ProxyRefused::Holds, "too many writes that wait for initializers");
        let _hold = self.holds.take().ok_or_else(no_room)?;
        passing.request.headers_mut().remove(ACCEPT_ENCODING);
        // The answer has to show the object. It is read once more in a form that does not.
        let headers = &passing.sent.headers;
        let in_another_form = !is_dry_run && !asks_for_a_head(headers, query) && may_be_known(headers);
        if in_another_form {
            passing.request.headers_mut().insert(ACCEPT, HeaderValue::from_static(JSON));
        }
        let Passing { request, sent } = passing;
        let answer = self.send(sent.user, request).await?;
        let is_created = answer.status() == StatusCode::CREATED;
        if is_dry_run || !(is_created || (answer.status().is_success() && in_another_form)) {
            return Ok((ProxyOutcome::Written, answer));
        }
        let Inspected { mut answer, body, room } =
            self.inspect(answer, &self.created, sent.share_of_writes).await.map_err(ProxyRefusal::once_stored)?;
        // Not by the warning: an apiserver leaves warnings out where there are many.
        let head = head(answer.headers(), &body).ok_or_else(ProxyRefusal::unknown_object)?;
        if head.label.is_none() {
            fields::remove_pending_warning(answer.headers_mut());
        }
        let is_held = is_created && head.label.is_some();
        if !is_held && !in_another_form {
            return Ok((ProxyOutcome::Written, Inspected { answer, body, room }.into_response()));
        }
        // Many may wait, and for long.
        drop((body, room));
        let mut held = HeldObject::new(head);
        if !is_held {
            return Ok((ProxyOutcome::Written, self.in_form(answer, path, &held, &sent).await?));
        }
        // A creator that leaves drops this.
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
        // An object that cannot be shown is counted as such.
        answer.map(|answer| (ProxyOutcome::Held, answer))
    }

    /// The answer with the object as it is now, in the form that was asked for.
    async fn in_form(
        &self,
        mut answer: Response<()>,
        path: &ResourcePath,
        held: &HeldObject,
        sent: &Sent<'_>,
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

    /// Time that an answer may be held: ours, or the client's where that is shorter, less what the answer takes.
    fn patience(&self, query: Query<'_>) -> Duration {
        let theirs = query.first("timeout").and_then(|text| String::from_utf8(text).ok());
        let theirs = theirs.and_then(|text| humantime::parse_duration(&text).ok()).filter(|theirs| !theirs.is_zero());
        let patience = theirs.map_or(self.settings.hold_timeout, |theirs| theirs.min(self.settings.hold_timeout));
        patience.saturating_sub(MARGIN).max(patience / 2)
    }

    /// Watches the object until its initialization has ended.
    async fn follow(&self, path: &ResourcePath, held: &mut HeldObject) -> HoldEnd {
        let at = path.collection();
        loop {
            match self.watch(&at, held).await {
                Ok(Some(ended)) => return ended,
                // From here on the last revision may be forgotten.
                Ok(None) => {}
                Err(failure) => self.cluster.failed(&failure).await,
            }
            sleep(PAUSE).await;
            let asking = async { self.cluster.client().await?.find_head(&at, held.name(), MARKS).await };
            match asking.await {
                Ok(Some(head)) => {
                    if let Some(ended) = held.now(head) {
                        return ended;
                    }
                }
                Ok(None) => return held.gone(None),
                Err(failure) => self.cluster.failed(&failure).await,
            }
        }
    }

    /// Watches the object; `None` where the apiserver has ended the watch.
    async fn watch(&self, at: &str, held: &mut HeldObject) -> Result<Option<HoldEnd>, KubeError> {
        let client = self.cluster.client().await?;
        let mut watch = client.watch_object(at, held.name(), held.resource_version(), LASTING).await?;
        while let Some(event) = watch.next::<Box<RawValue>>().await? {
            let head = |object: Box<RawValue>| ObjectHead::of_json(object.get().as_bytes(), MARKS);
            let ended = match event {
                WatchedChange::Changed(object) => head(object).and_then(|head| held.now(head)),
                WatchedChange::Gone(object) => Some(held.gone(head(object))),
                WatchedChange::Bookmark(_) => None,
                WatchedChange::Expired => return Ok(None),
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// uid of the object of that name, which is empty where there is none; `None` where nobody can say.
    async fn uid_now(&self, at: &str, name: &str) -> Option<String> {
        let asking = async { self.cluster.client().await?.find_head(at, name, MARKS).await };
        match asking.await {
            Ok(found) => Some(found.map(|head| head.uid).unwrap_or_default()),
            Err(failure) => {
                self.cluster.failed(&failure).await;
                None
            }
        }
    }

    /// The object as it is now, in the form that its creator asked for.
    async fn finished(
        &self,
        path: &ResourcePath,
        held: &HeldObject,
        accept: &str,
        sent: &Sent<'_>,
    ) -> Result<(Bytes, Option<HeaderValue>, Room), ProxyRefusal> {
        let at = path.collection();
        let reading = async { self.cluster.client().await?.read_as(&at, held.name(), accept).await };
        match reading.await {
            Ok(read) if read.status.is_success() => {
                let room = Room::of(&self.created, sent.share_of_writes, read.body.len());
                let room = room.map_err(ProxyRefusal::once_stored)?;
                let headers: HeaderMap =
                    read.content_type.clone().map(|form| (CONTENT_TYPE, form)).into_iter().collect();
                // Another object of that name is not the one that was created.
                let uid = match head(&headers, &read.body) {
                    Some(head) => Some(head.uid),
                    // An answer that shows no head is of the object that is there before it and behind it.
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
                self.cluster.failed(&failure).await;
                Err(ProxyRefusal::unread(path, held))
            }
        }
    }
}
