//! Reads of opted-in resources: LIST, WATCH, and GET by name.
//!
//! LIST and WATCH get a label selector that hides uninitialized objects. The apiserver does the rest of a watch: it
//! sends ADDED on completion, and no event for the deletion of a hidden object.
//!
//! The object in the response to a GET shows if it is initialized. If the response does not show this, the object's
//! metadata is read. The two may be of different times, as one may come from a cache. The object is therefore read
//! again, and shown only if the metadata before and after that read is of the same, initialized object.

use gatepost_api::initialization::HiddenObject;
use gatepost_kube_support::KubeError;
use gatepost_wire::object_head::{MARKS, ObjectHead};
use http::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE},
};

use super::{
    body::Body,
    inspect::head,
    query::Query,
    refusal::ProxyRefusal,
    resources::ResourcePath,
    serve::{ForwardedRequest, OriginalRequest, Proxy, RequestResult},
};
use crate::metrics::ProxyOutcome;

/// Subresource that shows the whole object.
const STATUS: &str = "status";

/// A request without a body, to be sent again.
struct RepeatableRequest {
    uri: Uri,
    headers: HeaderMap,
}

impl Proxy {
    /// Passes the request, and inspects the object in the response.
    pub(super) async fn get(
        &self,
        mut passing: ForwardedRequest<'_>,
        path: &ResourcePath,
    ) -> Result<RequestResult, ProxyRefusal> {
        let query = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(query.as_deref());
        if query.includes_uninitialized() {
            passing.set_query(&query.without_include())?;
        }
        // No apiserver reads a body here, and the request may be sent twice.
        *passing.request.body_mut() = Body::default();
        // An inspected response must not be compressed, and the request has no body.
        for field in [ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE] {
            passing.request.headers_mut().remove(field);
        }
        let again =
            RepeatableRequest { uri: passing.request.uri().clone(), headers: passing.request.headers().clone() };
        let ForwardedRequest { request, sent } = passing;
        let is_head = request.method() == Method::HEAD;
        let answer = self.send(sent.user, request).await?;
        // Such a response shows no object. A user without permission gets only the apiserver's rejection.
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
                // A scale has no labels, but the uid and the version of its object.
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

    /// Sends the request again, not to be answered from a cache, after `before` was found initialized. The response
    /// shows the same object if `before` still exists afterwards.
    async fn get_again(
        &self,
        again: RepeatableRequest,
        sent: &OriginalRequest<'_>,
        path: &ResourcePath,
        before: &ObjectHead,
    ) -> Result<RequestResult, ProxyRefusal> {
        let mut request = Request::new(Body::default());
        let query = again.uri.query().map(str::to_owned);
        *request.uri_mut() = again.uri;
        *request.headers_mut() = again.headers;
        let mut passing = ForwardedRequest { request, sent: sent.clone() };
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

    /// Reads the head of an object that its response does not show.
    async fn head_of(&self, path: &ResourcePath) -> Result<ObjectHead, ProxyRefusal> {
        let name = path.name.as_deref().unwrap_or_default();
        let asking = async { self.cluster.client().await?.find_head(&path.collection(), name, MARKS).await };
        match asking.await {
            Ok(Some(head)) => Ok(head),
            // The object was deleted meanwhile, so it is not shown.
            Ok(None) => Err(ProxyRefusal::not_found(path)),
            Err(failure) => {
                self.cluster.record_failure(&failure).await;
                Err(match failure {
                    KubeError::InvalidResponse { .. } => ProxyRefusal::unknown_object(),
                    _ => ProxyRefusal::unavailable(),
                })
            }
        }
    }
}

impl Proxy {
    /// Rewrites the query. Returns whether objects are left out.
    ///
    /// # Errors
    /// A refusal if the query cannot be rewritten, or if it is unknown what the user may see.
    pub(super) async fn filter(
        &self,
        passing: &mut ForwardedRequest<'_>,
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
