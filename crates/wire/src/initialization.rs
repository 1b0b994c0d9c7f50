//! Decodes the messages of `gatepost.v1.Initialization`, and converts the Status in its answers.

use bytes::Bytes;
use prost::Message as _;

use super::pb::gatepost::v1::{HoldRequest, QuotaPhaseRequest, ReadPolicyRequest, StoredObjectEvent};
use super::{
    answer::{self, MAX_CAUSES},
    initializers::count,
    outbound,
    pb::k8s::io::apimachinery::pkg::apis::meta::v1::Status,
    walk::{Value, Walk},
};
use gatepost_api::{Rope, StatusInfo};

/// Maximum number of a user's groups, of keys in its `extra`, and of values in its `extra`.
const MAX_USER_ITEMS: usize = 4096;
/// Maximum number of names in `pending`.
const MAX_PENDING_NAMES: usize = 1024;

/// Paths of fields by their numbers: in `ReadPolicyRequest` the groups and the `extra` keys and values of `user`; in
/// `StoredObjectEvent` `pending`, the causes of `result`, and `uid`.
const USER: [&[u32]; 3] = [&[2, 3], &[2, 4], &[2, 4, 2, 1]];
const PENDING: [u32; 2] = [1, 7];
const CAUSES: [u32; 4] = [1, 8, 5, 4];
const UID: [u32; 2] = [1, 5];

/// Returns the last string at `path`.
fn text_at(mut walk: Walk<'_>, path: &[u32]) -> Option<String> {
    let (number, below) = path.split_first()?;
    let mut found = None;
    while let Some(field) = walk.next().ok()? {
        match field.value {
            Value::Bytes(place) if field.number == *number && below.is_empty() => {
                found = Some(walk.text(place).ok()?.to_string());
            }
            Value::Bytes(place) if field.number == *number => found = text_at(walk.inside(place), below).or(found),
            _ => {}
        }
    }
    found
}

/// Returns the number of fields at `path`; `None` if the message is invalid. A field may have two bytes on the wire and
/// takes many times as much memory when decoded.
fn count_at(message: &Bytes, path: &[u32]) -> Option<usize> {
    let rope = Rope::new([message.clone()]);
    Some(usize::MAX - count(Walk::over(&rope, 0..message.len()), path, usize::MAX)?)
}

/// Decodes the message of a `ReadPolicy`, without its frame header. `None` if it is invalid, or its user is too large.
pub fn read_policy(message: Bytes) -> Option<ReadPolicyRequest> {
    for path in USER {
        count_at(&message, path).filter(|count| *count <= MAX_USER_ITEMS)?;
    }
    ReadPolicyRequest::decode(message).ok()
}

/// Decodes the message of a `QuotaPhase`; `None` if it is invalid.
pub fn quota_phase(message: Bytes) -> Option<QuotaPhaseRequest> {
    QuotaPhaseRequest::decode(message).ok()
}

/// Decodes the message of a `Hold`; `None` if it is invalid.
pub fn hold(message: Bytes) -> Option<HoldRequest> {
    HoldRequest::decode(message).ok()
}

/// Decodes one message of a `Follow`; `None` if it is invalid.
pub fn event(message: Bytes) -> Option<StoredObjectReport> {
    let (names, causes) = (count_at(&message, &PENDING)?, count_at(&message, &CAUSES)?);
    let uid = || {
        let rope = Rope::new([message.clone()]);
        text_at(Walk::over(&rope, 0..message.len()), &UID)
    };
    if names > MAX_PENDING_NAMES {
        return Some(StoredObjectReport::TooManyNames(uid()));
    }
    if causes > MAX_CAUSES {
        return Some(StoredObjectReport::TooManyCauses(uid()));
    }
    StoredObjectEvent::decode(message).ok().map(StoredObjectReport::Event)
}

/// A message of a `Follow`.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredObjectReport {
    /// The decoded event.
    Event(StoredObjectEvent),
    /// Not decoded, because `pending` has too many names. Contains the object's uid, if any.
    TooManyNames(Option<String>),
    /// Not decoded, because `result` has too many causes. Contains the object's uid, if any.
    TooManyCauses(Option<String>),
}

/// Converts a Status from protobuf.
pub fn status_info(status: Status) -> StatusInfo {
    answer::status(status)
}

/// Converts a Status to protobuf.
pub fn status(info: &StatusInfo) -> Status {
    outbound::status(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{
        gatepost::v1::{StoredObject, stored_object_event::Event},
        k8s::io::{
            api::authentication::v1::UserInfo,
            apimachinery::pkg::apis::meta::v1::{StatusCause, StatusDetails},
        },
    };

    #[test]
    fn no_message_is_many_times_as_large_when_it_is_read() {
        let reading = |groups| {
            let user = UserInfo { groups: vec![String::new(); groups], ..UserInfo::default() };
            read_policy(ReadPolicyRequest { user: Some(user), ..Default::default() }.encode_to_vec().into())
        };
        assert!(reading(MAX_USER_ITEMS).is_some() && reading(MAX_USER_ITEMS + 1).is_none());
        let report = |names, causes| {
            let details = StatusDetails { causes: vec![StatusCause::default(); causes], ..Default::default() };
            let result = Some(Status { details: Some(details), ..Default::default() });
            let (uid, pending) = ("u".into(), vec![String::new(); names]);
            let object = StoredObject { uid, pending, result, ..Default::default() };
            event(StoredObjectEvent { event: Some(Event::Unfinished(object)) }.encode_to_vec().into())
        };
        assert!(matches!(report(MAX_PENDING_NAMES, MAX_CAUSES), Some(StoredObjectReport::Event(_))));
        assert_eq!(
            (report(MAX_PENDING_NAMES + 1, 0), report(0, MAX_CAUSES + 1)),
            (
                Some(StoredObjectReport::TooManyNames(Some("u".into()))),
                Some(StoredObjectReport::TooManyCauses(Some("u".into())))
            )
        );
        assert_eq!((event(Bytes::from_static(b"\xff")), read_policy(Bytes::from_static(b"\xff"))), (None, None));
    }
}
