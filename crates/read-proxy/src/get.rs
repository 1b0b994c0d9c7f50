//! Reads of resources that are opted in: LIST and WATCH, and GET by name.
//!
//! LIST and WATCH get a label selector that hides what is not initialized. The apiserver does the rest of a watch by
//! itself: completion is ADDED, and the deletion of a hidden object is silent.
//!
//! The object in the answer to a GET says whether it is initialized. Where the answer does not show that, the object's
//! metadata does. The two may be of different times, as one may come from a cache; so the object that is then shown was
//! read between two reads of metadata that find the same object initialized.

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
    serve::{Answered, Passing, Proxy, Sent},
};
use crate::metrics::ProxyOutcome;

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
