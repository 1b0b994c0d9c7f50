//! Said: everything that a review says, in plain values, whichever way it was written.

use std::collections::BTreeMap;

use bytes::Bytes;
use gatepost_api::{Operation, builtin};
use gatepost_wire::pb::k8s::io::{
    api::{
        admission::v1::{AdmissionRequest, AdmissionReview},
        authentication::v1::UserInfo,
    },
    apimachinery::pkg::{
        apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        runtime::RawExtension,
    },
};
use prost::Message;

/// Group, version and kind or resource.
pub(crate) type Three = [String; 3];

/// User of a review.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct User {
    pub(crate) username: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Fields of a review.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) uid: String,
    pub(crate) kind: Three,
    pub(crate) resource: Three,
    pub(crate) sub_resource: String,
    pub(crate) request_kind: Option<Three>,
    pub(crate) request_resource: Option<Three>,
    pub(crate) request_sub_resource: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) operation: String,
    pub(crate) dry_run: bool,
    /// `None` where the review's `userInfo` cannot be read.
    pub(crate) user: Option<User>,
    /// The bytes of `object`, `oldObject` and `options`.
    pub(crate) objects: [Option<Vec<u8>>; 3],
}

impl Said {
    /// Fields of a message that prost has read.
    pub(crate) fn in_protobuf(request: AdmissionRequest) -> Self {
        Self {
            kind: request.kind.map(kind).unwrap_or_default(),
            resource: request.resource.map(resource).unwrap_or_default(),
            request_kind: request.request_kind.map(kind),
            request_resource: request.request_resource.map(resource),
            user: Some(request.user_info.map(User::from).unwrap_or_default()),
            objects: [request.object, request.old_object, request.options].map(raw),
            uid: request.uid.unwrap_or_default(),
            sub_resource: request.sub_resource.unwrap_or_default(),
            request_sub_resource: request.request_sub_resource.unwrap_or_default(),
            name: request.name.unwrap_or_default(),
            namespace: request.namespace.unwrap_or_default(),
            operation: request.operation.unwrap_or_default(),
            dry_run: request.dry_run.unwrap_or_default(),
        }
    }

    /// Without a uid nobody can answer, there are four operations, and rules must have something to look at.
    pub(crate) fn is_a_review(&self) -> bool {
        let operation = Operation::ALL.iter().any(|operation| operation.as_str() == self.operation);
        let threes =
            [Some(&self.kind), Some(&self.resource), self.request_kind.as_ref(), self.request_resource.as_ref()];
        let whole = threes.iter().flatten().all(|[_, version, third]| !version.is_empty() && !third.is_empty());
        let bare = self.request_resource.is_none() && self.request_sub_resource.is_empty();
        let sub = bare || self.request_sub_resource == self.sub_resource;
        let named = [Some(&self.resource), self.request_resource.as_ref()];
        let named = named.iter().flatten().all(|[group, _, resource]| {
            let in_place = builtin(group, resource)
                .is_none_or(|known| known.namespaced != self.namespace.is_empty() || known.resource == "namespaces");
            in_place && !resource.contains('/')
        });
        !self.uid.is_empty() && operation && whole && sub && named
    }
}

/// Fields of a bare AdmissionReview by prost: `Ok(None)` where it has no request.
pub(crate) fn by_prost(message: Bytes) -> Result<Option<Said>, String> {
    let review = AdmissionReview::decode(message).map_err(|error| error.to_string())?;
    Ok(review.request.map(Said::in_protobuf))
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        Self {
            username: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups,
            extra: user.extra.into_iter().map(|(key, value)| (key, value.items)).collect(),
        }
    }
}

fn kind(GroupVersionKind { group, version, kind }: GroupVersionKind) -> Three {
    [group, version, kind].map(Option::unwrap_or_default)
}

fn resource(GroupVersionResource { group, version, resource }: GroupVersionResource) -> Three {
    [group, version, resource].map(Option::unwrap_or_default)
}

/// Go's marshaller writes an extension that is not set as an empty one.
fn raw(extension: Option<RawExtension>) -> Option<Vec<u8>> {
    Some(extension?.raw?.to_vec()).filter(|raw| !raw.is_empty())
}
