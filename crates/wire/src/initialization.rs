//! Messages of `gatepost.v1.Initialization`, read; and a Status as its answers have it.

use bytes::Bytes;
use prost::Message as _;

use super::pb::gatepost::v1::{HoldRequest, QuotaPhaseRequest, ReadPolicyRequest, StoredObjectEvent};
use super::{
    answer::{self, MOST_CAUSES},
    initializers::count,
    outbound,
    pb::k8s::io::apimachinery::pkg::apis::meta::v1::Status,
    walk::{Value, Walk},
};
use gatepost_api::{Rope, StatusInfo};

/// The most groups of a user, and the most keys and values of `extra`.
const MOST_OF_USER: usize = 4096;
/// The most names of one list that are read.
const MOST_NAMES: usize = 1024;

/// Numbers of fields: of `ReadPolicyRequest` the groups, keys and values of `user`; of `StoredObjectEvent` `pending` and
/// the causes of `result`.
const USER: [&[u32]; 3] = [&[2, 3], &[2, 4], &[2, 4, 2, 1]];
const PENDING: [u32; 2] = [1, 7];
const CAUSES: [u32; 4] = [1, 8, 5, 4];
const UID: [u32; 2] = [1, 5];

/// The last text at that path.
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

/// Number of fields at that path; `None` where the bytes are no message. Decoded, each takes many times the two bytes that
/// it may come in.
fn number(message: &Bytes, path: &[u32]) -> Option<usize> {
    let rope = Rope::new([message.clone()]);
    Some(usize::MAX - count(Walk::over(&rope, 0..message.len()), path, usize::MAX)?)
}

/// Reads the message of a `ReadPolicy`, without its frame head; `None` where it is none, or has more of a user than may be.
pub fn read_policy(message: Bytes) -> Option<ReadPolicyRequest> {
    for path in USER {
        number(&message, path).filter(|number| *number <= MOST_OF_USER)?;
    }
    ReadPolicyRequest::decode(message).ok()
}

/// Reads the message of a `QuotaPhase`.
pub fn quota_phase(message: Bytes) -> Option<QuotaPhaseRequest> {
    QuotaPhaseRequest::decode(message).ok()
}

/// Reads the message of a `Hold`.
pub fn hold(message: Bytes) -> Option<HoldRequest> {
    HoldRequest::decode(message).ok()
}

/// Reads one message of a `Follow`; `None` where it is none.
pub fn event(message: Bytes) -> Option<StoredObjectReport> {
    let (names, causes) = (number(&message, &PENDING)?, number(&message, &CAUSES)?);
    let uid = || {
        let rope = Rope::new([message.clone()]);
        text_at(Walk::over(&rope, 0..message.len()), &UID)
    };
    if names > MOST_NAMES {
        return Some(StoredObjectReport::TooManyNames(uid()));
    }
    if causes > MOST_CAUSES {
        return Some(StoredObjectReport::TooManyCauses(uid()));
    }
    StoredObjectEvent::decode(message).ok().map(StoredObjectReport::Event)
}

/// A message of a `Follow`.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredObjectReport {
    /// Read.
    Event(StoredObjectEvent),
    /// Not read, as its list would hold far more than its bytes; the object's uid, where it has one.
    TooManyNames(Option<String>),
    /// The same of the causes of its result.
    TooManyCauses(Option<String>),
}

/// A Status that was read.
pub fn status_info(status: Status) -> StatusInfo {
    answer::status(status)
}

/// A Status that is written.
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
        assert!(reading(MOST_OF_USER).is_some() && reading(MOST_OF_USER + 1).is_none());
        let report = |names, causes| {
            let details = StatusDetails { causes: vec![StatusCause::default(); causes], ..Default::default() };
            let result = Some(Status { details: Some(details), ..Default::default() });
            let (uid, pending) = ("u".into(), vec![String::new(); names]);
            let object = StoredObject { uid, pending, result, ..Default::default() };
            event(StoredObjectEvent { event: Some(Event::Unfinished(object)) }.encode_to_vec().into())
        };
        assert!(matches!(report(MOST_NAMES, MOST_CAUSES), Some(StoredObjectReport::Event(_))));
        assert_eq!(
            (report(MOST_NAMES + 1, 0), report(0, MOST_CAUSES + 1)),
            (
                Some(StoredObjectReport::TooManyNames(Some("u".into()))),
                Some(StoredObjectReport::TooManyCauses(Some("u".into())))
            )
        );
        assert_eq!((event(Bytes::from_static(b"\xff")), read_policy(Bytes::from_static(b"\xff"))), (None, None));
    }
}
