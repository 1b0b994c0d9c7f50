//! HTTP: requests of clients such as kubectl, and their answers.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use gatepost_wire::pb::k8s::io::api::authentication::v1::UserInfo;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use crate::{
    apiserver::{Apiserver, Caller},
    kind::{Kind, discovery},
    object::Place,
    query::{Parameters, Selection, Target},
    refusal::Refusal,
    watch,
    write::{Created, random_letters},
};

/// The largest object.
const LARGEST: usize = 3 << 20;

type Body = BoxBody<Bytes, Infallible>;
type Answer = Result<Response<Body>, Refusal>;

/// Answers one request.
pub(crate) async fn answer(
    apiserver: &'static Apiserver,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(match route(apiserver, request).await {
        Ok(response) => response,
        Err(refusal) => whole(u16::try_from(refusal.0.code).unwrap_or(500), &refusal.json()),
    })
}

async fn route(apiserver: &'static Apiserver, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/');
    if let Some(found) = discovery(path).filter(|_| parts.method == Method::GET) {
        return Ok(whole(200, &found));
    }
    let missing = || Refusal::new(404, "NotFound", "the server could not find the requested resource");
    let Target { kind, namespace, name } = Target::of(path).ok_or_else(missing)?;
    let parameters = Parameters::of(parts.uri.query().unwrap_or_default());
    let caller = Caller {
        user: user(&parts.headers),
        includes: parameters.is_true("includeUninitialized"),
        dry_run: parameters.get("dryRun") == "All",
        timeout: seconds(parameters.get("timeout")),
    };
    let selection = Selection::of(&namespace, &parameters);
    let place = Place { kind, namespace, name };
    match (&parts.method, place.name.is_empty()) {
        (&Method::GET, true) if parameters.is_true("watch") => {
            let from = parameters.get("resourceVersion").parse().ok().filter(|from| *from > 0);
            let lines = watch::watch(apiserver, &caller, kind, selection, from).await?;
            let frames = ReceiverStream::new(lines).map(|line| Ok(Frame::data(line)));
            Ok(response(200, BodyExt::boxed(StreamBody::new(frames))))
        }
        (&Method::GET, true) => {
            let (objects, revision) = apiserver.list(&caller, kind, &place.namespace).await?;
            let items: Vec<Value> =
                objects.into_iter().filter(|object| selection.has(object)).map(|object| object.json).collect();
            let metadata = json!({"resourceVersion": revision.to_string()});
            Ok(whole(
                200,
                &json!({"kind": format!("{}List", kind.kind), "apiVersion": "v1", "metadata": metadata, "items": items}),
            ))
        }
        (&Method::GET, false) => Ok(whole(200, &apiserver.get(&caller, &place).await?.json)),
        (&Method::POST, true) => {
            let object = read(body, kind).await?;
            let name = named(&object)?;
            created(apiserver.create(&caller, Place { name, ..place }, object).await?)
        }
        (&Method::PUT, false) => {
            let object = read(body, kind).await?;
            put(apiserver, &caller, place, object).await
        }
        (&Method::PATCH, false) => {
            let patch = read_json(body).await?;
            let content = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
            patched(apiserver, &caller, place, content, patch).await
        }
        (&Method::DELETE, false) => {
            let object = apiserver.delete(&caller, &place).await?;
            let details = json!({"name": place.name, "kind": kind.resource, "uid": object.uid()});
            Ok(whole(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details})))
        }
        (&Method::DELETE, true) => {
            // Hidden ones too: a namespace must become empty.
            let (objects, _) = apiserver.all(kind, &place.namespace).await?;
            for object in objects.iter().filter(|object| selection.has(object)) {
                match apiserver.delete(&caller, &object.place).await {
                    Err(refusal) if refusal.0.code != 404 => return Err(refusal),
                    _ => {}
                }
            }
            Ok(whole(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})))
        }
        _ => Err(Refusal::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

/// A PUT: an update, or, where the object is not there, a CREATE that is held as any other.
async fn put(apiserver: &'static Apiserver, caller: &Caller, place: Place, object: Value) -> Answer {
    match apiserver.stored(&place).await? {
        Some(old) => Ok(whole(200, &apiserver.update(caller, old, object).await?.json)),
        None => created(apiserver.create(caller, place, object).await?),
    }
}

/// A PATCH, tried again while others write. Strategic merge is taken for merge: this is an example.
async fn patched(apiserver: &'static Apiserver, caller: &Caller, place: Place, content: &[u8], patch: Value) -> Answer {
    const TRIES: usize = 8;
    let broken = |why: String| Refusal::new(422, "Invalid", why);
    for last in (0..TRIES).rev() {
        let found = apiserver.stored(&place).await?;
        let old = found.ok_or_else(|| Refusal::not_found(place.kind.resource, &place.name))?;
        let mut json = old.json.clone();
        if content.starts_with(b"application/json-patch+json") {
            let patch: json_patch::Patch =
                serde_json::from_value(patch.clone()).map_err(|error| broken(error.to_string()))?;
            json_patch::patch(&mut json, &patch).map_err(|error| broken(error.to_string()))?;
        } else {
            json_patch::merge(&mut json, &patch);
        }
        let json = checked(json, place.kind)?;
        match apiserver.update(caller, old, json).await {
            Err(refusal) if refusal.0.code == 409 && last > 0 && patch["metadata"]["resourceVersion"].is_null() => {}
            ended => return Ok(whole(200, &ended?.json)),
        }
    }
    Err(Refusal::conflict(place.kind.resource, &place.name))
}

fn created(created: Created) -> Answer {
    Ok(match created {
        Created::Whole(object) => whole(201, &object.json),
        Created::Unfinished(object) => whole(202, &object.json),
    })
}

/// The name of a new object, with letters by chance where the apiserver is to find one.
fn named(object: &Value) -> Result<String, Refusal> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    match (text("name"), text("generateName")) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(prefix)) => Ok(format!("{prefix}{}", random_letters(5, b"bcdfghjklmnpqrstvwxz2456789")?)),
        (None, None) => {
            Err(Refusal::new(422, "Invalid", "metadata.name: Required value: name or generateName is required"))
        }
    }
}

async fn read(body: Incoming, kind: &Kind) -> Result<Value, Refusal> {
    checked(read_json(body).await?, kind)
}

/// An object of that kind, as far as it is looked into here.
fn checked(object: Value, kind: &Kind) -> Result<Value, Refusal> {
    if !object["metadata"].is_object() || object["kind"] != kind.kind || object["apiVersion"] != "v1" {
        return Err(Refusal::new(400, "BadRequest", format!("the body must be a v1 {} with metadata", kind.kind)));
    }
    Ok(object)
}

async fn read_json(body: Incoming) -> Result<Value, Refusal> {
    let broken = |why: String| Refusal::new(400, "BadRequest", why);
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| broken(error.to_string()))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| broken(error.to_string()))
}

/// The caller, believed to be whoever they say. This is an example, and listens on loopback.
fn user(headers: &HeaderMap) -> UserInfo {
    let texts = |name| headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned);
    let username = texts("impersonate-user").next().or(Some("kubectl".to_owned()));
    UserInfo { username, groups: texts("impersonate-group").collect(), ..UserInfo::default() }
}

/// `10s`, or `10`.
fn seconds(text: &str) -> Option<Duration> {
    text.trim_end_matches('s').parse().ok().map(Duration::from_secs)
}

fn whole(code: u16, json: &Value) -> Response<Body> {
    response(code, Full::new(Bytes::from(json.to_string())).boxed())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_patch_leaves_is_an_object_or_refused() {
        let kind = Kind::of("pods").unwrap();
        for json in [json!([]), json!({"apiVersion": "v1", "kind": "Pod", "metadata": "x"}), json!({"metadata": {}})] {
            assert_eq!(checked(json, kind).unwrap_err().0.code, 400);
        }
        assert!(checked(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}), kind).is_ok());
    }
}
