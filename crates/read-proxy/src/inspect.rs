//! Inspection: responses that are read completely, and the object in them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, Response,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{body::Body, query::Query, refusal::ProxyRefusal, serve::Proxy};
use crate::metrics::ProxyRefused;
use gatepost_wire::object_head::{MARKS, ObjectHead};

/// Maximum size of an inspected object, in bytes: more than an apiserver stores.
// source: etcd --max-request-bytes (1.5 MiB), and the limit of a request's body of 3 MiB in kubernetes/apiserver
// pkg/server/config.go.
const MAX_OBJECT_BYTES: usize = 8 << 20;
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A response that was read completely.
pub(super) struct InspectedResponse {
    pub(super) answer: Response<()>,
    pub(super) body: Bytes,
    pub(super) room: Option<Room>,
}

/// Reserved memory for inspected objects, of the whole proxy and of one connection.
pub(super) struct Room {
    all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
}

impl Room {
    /// Reserves this many KiB, of the whole proxy's memory and of the connection's.
    fn take(all: &Arc<Semaphore>, own: &Arc<Semaphore>, kib: usize) -> Result<Self, ProxyRefusal> {
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let why = "no memory left for objects that it must look at";
        let too_many = |_| ProxyRefusal::too_many(ProxyRefused::Memory, why);
        let own = Arc::clone(own).try_acquire_many_owned(kib).map_err(too_many)?;
        let all = Arc::clone(all).try_acquire_many_owned(kib).map_err(too_many)?;
        Ok(Self { all, own })
    }

    /// Reserves memory for a body of this length, in bytes.
    pub(super) fn of(all: &Arc<Semaphore>, own: &Arc<Semaphore>, length: usize) -> Result<Self, ProxyRefusal> {
        Self::take(all, own, length.div_ceil(1024))
    }
}

impl Proxy {
    /// Reads a response completely. Memory is reserved chunk by chunk, and released once the client has the body.
    pub(super) async fn inspect(
        &self,
        answer: Response<Body>,
        all: &Arc<Semaphore>,
        own: &Arc<Semaphore>,
    ) -> Result<InspectedResponse, ProxyRefusal> {
        let (parts, mut body) = answer.into_parts();
        let mut bytes = BytesMut::new();
        let mut room: Option<Room> = None;
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| ProxyRefusal::lost())?.into_data() else { continue };
            if bytes.len() + chunk.len() > MAX_OBJECT_BYTES {
                return Err(ProxyRefusal::too_large(MAX_OBJECT_BYTES));
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
        Ok(InspectedResponse { answer: Response::from_parts(parts, ()), body: bytes.freeze(), room })
    }
}

impl InspectedResponse {
    /// Returns the response unchanged.
    pub(super) fn into_response(self) -> Response<Body> {
        let Self { answer, body, room } = self;
        answer.map(|()| Body::keeping(body, room))
    }
}

/// Returns the head of the object in a response; `None` if it cannot be found.
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

/// Returns true if every response that these fields allow shows an object's head: JSON does, also as a table with
/// objects, and protobuf except as a table. An apiserver uses the first `Accept` field, and JSON if there is none.
pub(super) fn always_shows_head(headers: &HeaderMap, query: Query<'_>) -> bool {
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

/// Returns true if an apiserver may know a requested form. Otherwise it rejects the request before it stores anything.
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
mod tests {
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
            assert_eq!(always_shows_head(&headers, Query::new(Some(query))), shows, "{accept} {query}");
        }
    }
}
