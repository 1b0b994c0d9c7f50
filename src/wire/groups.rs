//! The user's groups, looked at in the review's bytes only where somebody asks for them.

use std::ops::Range;

use super::{
    json::{Cursor, ReadError},
    walk::{Field, Value, Walk, WalkError},
};
use crate::model::{Encoding, Review};

/// Is the review's user in one of these groups? False where the review does not say, or cannot be read.
///
/// Takes no memory, except where a group lies in two of the pieces the review arrived in, or is written with escapes.
pub fn any_of(review: &Review, wanted: &[Box<str>]) -> bool {
    let Some(place) = review.user.clone() else { return false };
    let is_wanted = |group: &[u8]| wanted.iter().any(|wanted| wanted.as_bytes() == group);
    match review.encoding {
        Encoding::Grpc | Encoding::Envelope(_) => in_protobuf(review, place, is_wanted).unwrap_or(false),
        Encoding::Json(_) => {
            let user = review.bytes.copy_of(place);
            std::str::from_utf8(&user).is_ok_and(|user| in_json(user, is_wanted).unwrap_or(false))
        }
    }
}

/// Field 3 of `UserInfo`, as often as it is there.
fn in_protobuf(review: &Review, place: Range<usize>, is_wanted: impl Fn(&[u8]) -> bool) -> Result<bool, WalkError> {
    let mut user = Walk::over(&review.bytes, place);
    while let Some(Field { number, value }) = user.next()? {
        match (number, value) {
            (3, Value::Bytes(at)) if is_wanted(&review.bytes.copy_of(at.clone())) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// The list `groups`; that it is there once was seen when the review was viewed.
fn in_json(user: &str, is_wanted: impl Fn(&[u8]) -> bool) -> Result<bool, ReadError> {
    let mut cursor = Cursor::new(user);
    if !cursor.object("userInfo")? {
        return Ok(false);
    }
    while let Some(key) = cursor.key()? {
        if key.plain() != "groups" {
            cursor.skip()?;
            continue;
        }
        if !cursor.array("groups")? {
            return Ok(false);
        }
        while cursor.item()? {
            if cursor.string("groups")?.is_some_and(|group| is_wanted(group.plain().as_bytes())) {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        model::Rope,
        wire::{inbound, json_view, pb::k8s::io::api::authentication::v1::UserInfo},
    };

    /// In protobuf, and in JSON.
    fn reviews(groups: &[&str]) -> Vec<Review> {
        use prost::Message as _;

        use crate::wire::pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionReview};
        let user = UserInfo {
            username: Some("alice".into()),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        };
        let request = AdmissionRequest {
            uid: Some("u".into()),
            operation: Some("CREATE".into()),
            user_info: Some(user),
            ..AdmissionRequest::default()
        };
        let message = AdmissionReview { request: Some(request), response: None }.encode_to_vec();
        let mut framed = vec![0];
        framed.extend((message.len() as u32).to_be_bytes());
        framed.extend(message);
        let framed = Bytes::from(framed);
        let json = serde_json::json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": "CREATE", "userInfo": {"extra": {"groups": ["root"]}, "groups": groups}}
        });
        let cut = framed.len() / 2;
        vec![
            inbound::view(Rope::new([framed.clone()])).unwrap(),
            inbound::view(Rope::new([framed.slice(..cut), framed.slice(cut..)])).unwrap(),
            json_view::view(Bytes::from(json.to_string())).unwrap(),
        ]
    }

    fn wanted(groups: &[&str]) -> Vec<Box<str>> {
        groups.iter().map(|group| (*group).into()).collect()
    }

    #[test]
    fn groups_are_found_in_every_encoding() {
        for review in reviews(&["system:authenticated", "caf\u{e9} \"x\"", "ops"]) {
            for (any, found) in [
                (&["ops"][..], true),
                (&["nobody", "system:authenticated"], true),
                (&["caf\u{e9} \"x\""], true),
                (&["op"], false),
                (&["OPS"], false),
                (&["root"], false),
                (&["alice"], false),
                (&[], false),
            ] {
                assert_eq!(any_of(&review, &wanted(any)), found, "{any:?} in {:?}", review.encoding);
            }
        }
    }

    #[test]
    fn a_review_without_a_user_or_with_a_broken_one_is_in_no_group() {
        for mut review in reviews(&["ops"]) {
            let whole = review.user.clone().unwrap();
            review.user = Some(whole.start + 1..whole.end);
            assert!(!any_of(&review, &wanted(&["nobody"])));
            review.user = None;
            assert!(!any_of(&review, &wanted(&["ops"])));
        }
    }
}
