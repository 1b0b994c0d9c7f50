//! Viewed: fields of a review by its view, and by the view of the same review written as JSON.

use gatepost_api::{Encoding, Gvk, Gvr, Review};
use gatepost_wire::pb::k8s::io::api::authentication::v1::UserInfo;
use prost::Message;

use super::{
    json,
    said::{Said, Three, User},
};

impl Said {
    /// Facts of a review as our view gives them.
    pub(crate) fn by(review: &Review) -> Self {
        let user = match review.user.clone().map(|place| review.bytes.copy_of(place)) {
            None => Some(User::default()),
            Some(bytes) => match review.encoding {
                Encoding::Json(_) => json::user(&bytes),
                Encoding::Grpc | Encoding::Envelope(_) => UserInfo::decode(bytes).ok().map(User::from),
            },
        };
        if let Some(user) = &user {
            assert_eq!(*user.username, *review.username, "the view's username is not that of its userInfo");
        }
        Self {
            uid: review.uid.to_string(),
            kind: gvk(&review.kind),
            resource: gvr(&review.resource),
            sub_resource: review.sub_resource.to_string(),
            request_kind: review.request_kind.as_ref().map(gvk),
            request_resource: review.request_resource.as_ref().map(gvr),
            request_sub_resource: review.request_sub_resource.to_string(),
            name: review.name.to_string(),
            namespace: review.namespace.to_string(),
            operation: review.operation.as_str().to_owned(),
            dry_run: review.dry_run,
            user,
            objects: [&review.object, &review.old_object, &review.options]
                .map(|place| place.clone().map(|place| review.bytes.copy_of(place).to_vec())),
        }
    }

    /// The same as JSON says it that was written from protobuf: what was asked for is always there, and the white space
    /// around an object is not the object's.
    pub(crate) fn spelt_out(mut self) -> Self {
        if self.request_resource.is_none() {
            self.request_sub_resource.clone_from(&self.sub_resource);
        }
        self.request_kind.get_or_insert_with(|| self.kind.clone());
        self.request_resource.get_or_insert_with(|| self.resource.clone());
        for object in self.objects.iter_mut().flatten() {
            *object = json::without_blanks_around(object).to_vec();
        }
        self
    }
}

fn gvk(Gvk { group, version, kind }: &Gvk) -> Three {
    [group, version, kind].map(ToString::to_string)
}

fn gvr(Gvr { group, version, resource }: &Gvr) -> Three {
    [group, version, resource].map(ToString::to_string)
}
