//! Searches the user's groups in the review's bytes. They are read only when needed.

use std::ops::Range;

use super::{
    json::{Cursor, JsonReadError},
    walk::{Value, Walk, WalkError},
};
use gatepost_api::{Encoding, Review, Rope};

/// Returns true if the review's user is in one of these groups. Returns false if there is no user or it is unreadable.
///
/// Allocates memory only if a user in JSON spans several pieces of the review, or a group in it has escapes.
pub fn any_of(review: &Review, wanted: &[Box<str>]) -> bool {
    let Some(place) = review.user.clone() else { return false };
    match (review.encoding, review.bytes.contiguous(place.clone())) {
        (Encoding::Grpc | Encoding::Envelope(_), _) => in_protobuf(&review.bytes, place, wanted).unwrap_or(false),
        (Encoding::Json(_), Some(user)) => in_json(user, wanted),
        (Encoding::Json(_), None) => in_json(&review.bytes.copy_of(place), wanted),
    }
}

/// Compares each occurrence of field 3 (`groups`) of `UserInfo`.
fn in_protobuf(bytes: &Rope, place: Range<usize>, wanted: &[Box<str>]) -> Result<bool, WalkError> {
    let mut user = Walk::over(bytes, place);
    while let Some((number, value)) = user.next()? {
        if let (3, Value::Bytes(at)) = (number, value)
            && wanted.iter().any(|wanted| is(bytes, at.clone(), wanted))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the bytes at `at` equal `text`, whatever pieces they are in.
fn is(bytes: &Rope, at: Range<usize>, text: &str) -> bool {
    let mut rest = Some(text.as_bytes());
    bytes.slices(at).for_each(|slice| rest = rest.and_then(|rest| rest.strip_prefix(slice)));
    rest.is_some_and(<[u8]>::is_empty)
}

fn in_json(user: &[u8], wanted: &[Box<str>]) -> bool {
    let is_wanted = |group: &str| wanted.iter().any(|wanted| **wanted == *group);
    std::str::from_utf8(user).is_ok_and(|user| any_in_list(user, is_wanted).unwrap_or(false))
}

/// Compares the items of `groups`. Viewing the review has checked that `groups` occurs at most once.
fn any_in_list(user: &str, is_wanted: impl Fn(&str) -> bool) -> Result<bool, JsonReadError> {
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
            if cursor.string("groups")?.is_some_and(|group| is_wanted(&group.plain())) {
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
    use crate::{inbound, json_view, pb::k8s::io::api::authentication::v1::UserInfo};

    /// In protobuf, and in JSON.
    fn reviews(groups: &[&str]) -> Vec<Review> {
        use prost::Message as _;

        use crate::pb::k8s::io::{
            api::admission::v1::{AdmissionRequest, AdmissionReview},
            apimachinery::pkg::apis::meta::v1::{GroupVersionKind, GroupVersionResource},
        };
        let user = UserInfo {
            username: Some("alice".into()),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        };
        let request = AdmissionRequest {
            uid: Some("u".into()),
            operation: Some("CREATE".into()),
            kind: Some(GroupVersionKind { version: Some("v1".into()), kind: Some("Thing".into()), group: None }),
            resource: Some(GroupVersionResource {
                version: Some("v1".into()),
                resource: Some("things".into()),
                group: None,
            }),
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
            "request": {"uid": "u", "operation": "CREATE", "kind": {"version": "v1", "kind": "Thing"},
                "resource": {"version": "v1", "resource": "things"}, "userInfo": {"extra": {"groups": ["root"]}, "groups": groups}}
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
