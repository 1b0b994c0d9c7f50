//! Reads of resources that are opted in: LIST and WATCH get a label selector that hides what is not initialized; of GET by
//! name the object in the answer says whether it is.
//!
//! The apiserver does the rest of a watch by itself: completion is ADDED, and the deletion of what was hidden is silent.
//!
//! Where the answer to a GET does not show that, the object's metadata does. The two may be of different times, as one may come from
//! a cache; so what is then shown was read between two reads of metadata that find the same object initialized.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gatepost_api::initialization::HiddenObject;
use gatepost_kube_support::KubeError;
use gatepost_wire::object_head::{MARKS, ObjectHead};
use http::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    body::Body,
    plan::Query,
    refusal::ProxyRefusal,
    resources::ResourcePath,
    serve::{Answered, Passing, Proxy, Sent},
};
use crate::metrics::{ProxyOutcome, ProxyRefused};

/// Subresource that shows the whole object.
const STATUS: &str = "status";

/// A request without content, to be sent once more.
struct Again {
    uri: Uri,
    headers: HeaderMap,
}

impl Proxy {
    /// Passes the request, and looks at the object in the answer.
    pub(super) async fn get(&self, mut passing: Passing<'_>, path: &ResourcePath) -> Result<Answered, ProxyRefusal> {
        let query = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(query.as_deref());
        if query.includes_uninitialized() {
            passing.set_query(&query.without_include())?;
        }
        // No apiserver reads content here, and the request may be sent twice.
        *passing.request.body_mut() = Body::default();
        // An answer that is looked at must not be compressed; it is one object.
        for field in [ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE] {
            passing.request.headers_mut().remove(field);
        }
        let again = Again { uri: passing.request.uri().clone(), headers: passing.request.headers().clone() };
        let Passing { request, sent } = passing;
        let is_head = request.method() == Method::HEAD;
        let answer = self.send(sent.user, request).await?;
        // A user who may not read the object learns nothing else of it.
        if answer.status() != StatusCode::OK || is_head {
            return Ok((ProxyOutcome::Passed, answer));
        }
        let inspected = self.inspect(answer, &self.inspected, sent.share).await?;
        let shows_object = path.subresource.as_deref().is_none_or(|subresource| subresource == STATUS);
        let shown = head(inspected.answer.headers(), &inspected.body);
        let (head, is_current) = match shown {
            Some(head) if shows_object => (head, true),
            shown => {
                let head = self.head_of(path).await?;
                // A scale has no labels, and the uid and version of its object.
                let is_current =
                    shown.is_some_and(|shown| shown.uid == head.uid && shown.resource_version == head.resource_version);
                (head, is_current)
            }
        };
        if head.label.is_none() {
            return match is_current {
                true => Ok((ProxyOutcome::Shown, inspected.into_response())),
                false => {
                    drop(inspected);
                    self.get_again(again, &sent, path, &head).await
                }
            };
        }
        let account = self.account(&sent).await?;
        if let Some(account) = &account
            && (self.sees_all(account)
                || (query.includes_uninitialized() && self.cluster.may_initialize(account, path).await?))
        {
            return Ok((ProxyOutcome::Shown, inspected.into_response()));
        }
        let how = self.hidden_as(&sent, account.as_ref());
        let object = HiddenObject {
            group: &path.group,
            resource: &path.resource,
            name: path.name.as_deref().unwrap_or_default(),
            uid: &head.uid,
            resource_version: &head.resource_version,
        };
        Err(ProxyRefusal::hidden(how, object))
    }

    /// The answer to the same request, read after `before` has been found initialized, and not from a cache. It is the
    /// same object as long as that is still there afterwards.
    async fn get_again(
        &self,
        again: Again,
        sent: &Sent<'_>,
        path: &ResourcePath,
        before: &ObjectHead,
    ) -> Result<Answered, ProxyRefusal> {
        let mut request = Request::new(Body::default());
        let query = again.uri.query().map(str::to_owned);
        *request.uri_mut() = again.uri;
        *request.headers_mut() = again.headers;
        let mut passing = Passing { request, sent: sent.clone() };
        passing.set_query(&Query::new(query.as_deref()).without_version())?;
        let answer = self.send(sent.user, passing.request).await?;
        if answer.status() != StatusCode::OK {
            return Ok((ProxyOutcome::Passed, answer));
        }
        let after = self.head_of(path).await?;
        match after.uid == before.uid && after.label.is_none() {
            true => Ok((ProxyOutcome::Shown, answer)),
            false => Err(ProxyRefusal::replaced()),
        }
    }

    /// Head of an object whose answer does not show it: it is asked for.
    async fn head_of(&self, path: &ResourcePath) -> Result<ObjectHead, ProxyRefusal> {
        let name = path.name.as_deref().unwrap_or_default();
        let asking = async { self.cluster.client().await?.find_head(&path.collection(), name, MARKS).await };
        match asking.await {
            Ok(Some(head)) => Ok(head),
            // It has gone since: then it is not shown either.
            Ok(None) => Err(ProxyRefusal::not_found(path)),
            Err(failure) => {
                self.cluster.failed(&failure).await;
                Err(match failure {
                    KubeError::Nonsense { .. } => ProxyRefusal::unknown_object(),
                    _ => ProxyRefusal::unavailable(),
                })
            }
        }
    }
}

impl Proxy {
    /// Rewrites the parameters. Says whether anything is left out.
    ///
    /// # Errors
    /// A refusal where they cannot be rewritten, or nobody can say what the user may see.
    pub(super) async fn filter(
        &self,
        passing: &mut Passing<'_>,
        path: &ResourcePath,
    ) -> Result<ProxyOutcome, ProxyRefusal> {
        let sent = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(sent.as_deref());
        let account = self.account(&passing.sent).await?;
        let sees = match &account {
            None => false,
            Some(account) if self.sees_all(account) => true,
            Some(account) => query.includes_uninitialized() && self.cluster.may_initialize(account, path).await?,
        };
        let (outcome, query) = match sees {
            true => (ProxyOutcome::Passed, query.without_include()),
            false => (ProxyOutcome::Filtered, query.initialized_only()),
        };
        passing.set_query(&query)?;
        Ok(outcome)
    }
}

/// The largest object that is inspected: more than an apiserver stores.
// source: etcd --max-request-bytes (1.5 MiB), and the limit of a request's body of 3 MiB in kubernetes/apiserver
// pkg/server/config.go.
const LARGEST: usize = 8 << 20;
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An answer that was read to its end.
pub(super) struct Inspected {
    pub(super) answer: Response<()>,
    pub(super) body: Bytes,
    pub(super) room: Option<Room>,
}

/// Share of the memory for inspected objects: of all of it, and of the connection's.
pub(super) struct Room {
    all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
}

impl Room {
    /// Room for so many KiB, of all of it and of the connection's.
    fn take(all: &Arc<Semaphore>, own: &Arc<Semaphore>, kib: usize) -> Result<Self, ProxyRefusal> {
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let why = "no memory left for objects that it must look at";
        let too_many = |_| ProxyRefusal::too_many(ProxyRefused::Memory, why);
        let own = Arc::clone(own).try_acquire_many_owned(kib).map_err(too_many)?;
        let all = Arc::clone(all).try_acquire_many_owned(kib).map_err(too_many)?;
        Ok(Self { all, own })
    }

    /// Room for content of that length.
    pub(super) fn of(all: &Arc<Semaphore>, own: &Arc<Semaphore>, length: usize) -> Result<Self, ProxyRefusal> {
        Self::take(all, own, length.div_ceil(1024))
    }
}

impl Proxy {
    /// Reads an answer to its end. Memory for it is taken chunk by chunk, and kept until the client has it.
    pub(super) async fn inspect(
        &self,
        answer: Response<Body>,
        all: &Arc<Semaphore>,
        own: &Arc<Semaphore>,
    ) -> Result<Inspected, ProxyRefusal> {
        let (parts, mut body) = answer.into_parts();
        let mut bytes = BytesMut::new();
        let mut room: Option<Room> = None;
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| ProxyRefusal::lost())?.into_data() else { continue };
            if bytes.len() + chunk.len() > LARGEST {
                return Err(ProxyRefusal::too_large(LARGEST));
            }
            bytes.extend_from_slice(&chunk);
            let held = room.as_ref().map_or(0, |room| room.all.num_permits());
            let more = Room::take(all, own, bytes.len().div_ceil(1024).saturating_sub(held))?;
            match &mut room {
                Some(room) => {
                    room.all.merge(more.all);
                    room.own.merge(more.own);
                }
                None => room = Some(more),
            }
        }
        Ok(Inspected { answer: Response::from_parts(parts, ()), body: bytes.freeze(), room })
    }
}

impl Inspected {
    /// The answer as it came.
    pub(super) fn into_response(self) -> Response<Body> {
        let Self { answer, body, room } = self;
        answer.map(|()| Body::keeping(body, room))
    }
}

/// Head of the object in an answer; `None` where it cannot be found there.
pub(super) fn head(headers: &HeaderMap, body: &Bytes) -> Option<ObjectHead> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let form = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    match form.split(';').next()?.trim() {
        JSON => ObjectHead::of_json(body, MARKS),
        PROTOBUF => ObjectHead::of_protobuf(body.clone(), MARKS),
        _ => None,
    }
}

/// True where every answer that these fields ask for shows an object's head: JSON does, also as a table with objects, and
/// protobuf where it is no table. An apiserver takes the first field of that name, and JSON where there is none.
pub(super) fn asks_for_a_head(headers: &HeaderMap, query: Query<'_>) -> bool {
    let accept = headers.get(ACCEPT).map_or(Ok(""), |accept| accept.to_str());
    let Ok(accept) = accept else { return false };
    let shows = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let is_table = |part: &str| part.eq_ignore_ascii_case("as=table");
        match parts.next().unwrap_or_default() {
            "" | "*/*" | "application/*" => true,
            JSON => query.first("includeObject").is_none_or(|objects| objects != b"None"),
            PROTOBUF => !parts.any(is_table),
            _ => false,
        }
    };
    accept.split(',').all(|range| shows(range.trim()))
}

/// May an apiserver know one of the forms that are asked for? Else it refuses the request before anything is stored.
// source: github.com/munnerz/goautoneg (blanks are trimmed, case counts), and k8s.io/apiserver
// pkg/endpoints/handlers/negotiation, MediaTypesForSerializer.
pub(super) fn may_be_known(headers: &HeaderMap) -> bool {
    let Ok(accept) = headers.get(ACCEPT).map_or(Ok(""), |accept| accept.to_str()) else { return true };
    accept.split(',').any(|range| {
        let form = range.split(';').next().unwrap_or_default().trim();
        let (kind, form) = form.split_once('/').map_or((form, "*"), |(kind, form)| (kind.trim(), form.trim()));
        let forms = ["*", "json", "yaml", "cbor", "vnd.kubernetes.protobuf"];
        kind.is_empty() || matches!(kind, "*" | "application") && forms.contains(&form)
    })
}

#[cfg(test)]
mod inspect_tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_form_that_no_apiserver_writes_is_asked_for_as_it_is() {
        for (accept, wanted) in [
            ("text/x", false),
            ("application/xml", false),
            ("Application/YAML", false),
            ("text/x, application/yaml;q=0.1", true),
            ("application / yaml", true),
            ("*/*", true),
            ("application/*", true),
            ("*", true),
            ("", true),
        ] {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(may_be_known(&headers), wanted, "{accept}");
        }
    }

    #[test]
    fn forms_that_show_no_head_are_known() {
        for (accept, query, shows) in [
            ("", "", true),
            ("*/*", "", true),
            ("application/json;q=0.9", "", true),
            ("application/vnd.kubernetes.protobuf, application/json", "", true),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "", true),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", "includeObject=None", false),
            ("application/vnd.kubernetes.protobuf; as=Table;v=v1", "", false),
            ("application/json,application/yaml", "", false),
            ("application/cbor", "", false),
            ("text/html", "", false),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(asks_for_a_head(&headers, Query::new(Some(query))), shows, "{accept} {query}");
        }
    }
}
