//! GET by name of a resource that is opted in: the object in the answer says whether it is initialized.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, Method, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    body::Body,
    hold::MARKS,
    path::ResourcePath,
    query::Query,
    refusal::Refusal,
    serve::{Passing, Proxy},
};
use crate::{
    initialize::visibility::{HiddenObject, hidden},
    wire::object_head::ObjectHead,
};

/// The largest object that is inspected: more than an apiserver stores.
// source: etcd --max-request-bytes (1.5 MiB), and the limit of a request's body of 3 MiB in kubernetes/apiserver
// pkg/server/config.go.
const LARGEST: usize = 8 << 20;
/// Subresource that shows the whole object.
const STATUS: &str = "status";

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

impl Proxy {
    /// Passes the request, and looks at the object in the answer.
    pub(super) async fn get(&self, mut passing: Passing<'_>, path: &ResourcePath) -> Result<Response<Body>, Refusal> {
        let query = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(query.as_deref());
        if query.includes_uninitialized() {
            passing.set_query(&query.without_include())?;
        }
        // What is looked at must not be compressed; it is one object.
        passing.request.headers_mut().remove(ACCEPT_ENCODING);
        let Passing { request, sent } = passing;
        let is_head = request.method() == Method::HEAD;
        let answer = self.send(sent.user, request).await?;
        if answer.status() != StatusCode::OK || is_head {
            return Ok(answer);
        }
        let inspected = self.inspect(answer, &self.inspected, sent.share).await?;
        let shows_object = path.subresource.as_deref().is_none_or(|subresource| subresource == STATUS);
        let head = match head(inspected.answer.headers(), &inspected.body).filter(|_| shows_object) {
            Some(head) => Some(head),
            None => self.head_of(path).await?,
        };
        let Some(head) = head.filter(|head| head.label.is_some()) else { return Ok(inspected.into_response()) };
        let account = self.account(&sent).await?;
        if let Some(account) = &account
            && (self.sees_all(account)
                || (query.includes_uninitialized() && self.cluster.may_initialize(account, path).await?))
        {
            return Ok(inspected.into_response());
        }
        let how = self.hidden_as(&sent, account.as_ref());
        let object = HiddenObject {
            group: &path.group,
            resource: &path.resource,
            name: path.name.as_deref().unwrap_or_default(),
            uid: &head.uid,
            resource_version: &head.resource_version,
        };
        Err(Refusal::of(&hidden(how, object)))
    }

    /// Reads an answer to its end. Memory for it is taken chunk by chunk, and kept until the client has it.
    pub(super) async fn inspect(
        &self,
        answer: Response<Body>,
        all: &Arc<Semaphore>,
        own: &Arc<Semaphore>,
    ) -> Result<Inspected, Refusal> {
        let (parts, mut body) = answer.into_parts();
        let mut bytes = BytesMut::new();
        let mut room: Option<Room> = None;
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| Refusal::lost())?.into_data() else { continue };
            if bytes.len() + chunk.len() > LARGEST {
                return Err(Refusal::too_large(LARGEST));
            }
            bytes.extend_from_slice(&chunk);
            let held = room.as_ref().map_or(0, |room| room.all.num_permits());
            let more = u32::try_from(bytes.len().div_ceil(1024).saturating_sub(held)).unwrap_or(u32::MAX);
            let too_many = |_| Refusal::too_many("no memory left for objects that it must look at");
            let own = Arc::clone(own).try_acquire_many_owned(more).map_err(too_many)?;
            let all = Arc::clone(all).try_acquire_many_owned(more).map_err(too_many)?;
            match &mut room {
                Some(room) => {
                    room.all.merge(all);
                    room.own.merge(own);
                }
                None => room = Some(Room { all, own }),
            }
        }
        Ok(Inspected { answer: Response::from_parts(parts, ()), body: bytes.freeze(), room })
    }

    /// Head of an object whose answer does not show it: it is asked for.
    async fn head_of(&self, path: &ResourcePath) -> Result<Option<ObjectHead>, Refusal> {
        let name = path.name.as_deref().unwrap_or_default();
        let asking = async { self.cluster.client().await?.find_metadata(&path.collection(), name).await };
        match asking.await {
            Ok(Some(object)) => Ok(ObjectHead::of_json(object.to_string().as_bytes(), MARKS)),
            // It has gone since: then it is not shown either.
            Ok(None) => Err(Refusal::not_found(path)),
            Err(failure) => {
                self.cluster.failed(&failure).await;
                Err(Refusal::unavailable())
            }
        }
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
        "application/json" => ObjectHead::of_json(body, MARKS),
        "application/vnd.kubernetes.protobuf" => ObjectHead::of_protobuf(body.clone(), MARKS),
        _ => None,
    }
}
