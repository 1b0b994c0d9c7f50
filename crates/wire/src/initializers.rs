//! Decodes and encodes the messages of `gatepost.v1.Initializers/Attach`, and decodes those of
//! `gatepost.v1.Initialization`.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len},
};

use super::{
    answer::MAX_CAUSES,
    inbound::FRAME_HEAD,
    outbound::framed,
    pb::{
        gatepost::v1::{
            Attached, Cancel, Draining, InitializerMessage, InitializerTask, ReadPolicyRequest, SidecarMessage,
            StoredObjectEvent, initializer_message, sidecar_message::Message as To,
        },
        k8s::io::api::admission::v1::AdmissionReview,
    },
    walk::{Value, Walk},
};
pub use super::{answer::status as status_info, outbound::status};
use gatepost_api::Rope;

/// Maximum number of initializers that one answer may add.
const MAX_ADDS: usize = 64;

/// Field numbers: `InitializerMessage.answer`, and the paths of `answer.done.add` and `answer.fail.details.causes`.
const ANSWER: u32 = 3;
const ADDS: [u32; 3] = [ANSWER, 3, 2];
const CAUSES: [u32; 4] = [ANSWER, 4, 5, 4];
/// Field numbers of `SidecarMessage.task` and of `review` in it.
const TASK: u32 = 2;
const REVIEW: u32 = 4;

/// Decodes one message of an instance, without its frame header. `None` if it is invalid, or has too many names or
/// causes.
pub fn read(message: Bytes) -> Option<initializer_message::Message> {
    if !is_within_limits(&message) {
        return None;
    }
    InitializerMessage::decode(message).ok()?.message
}

/// Returns true if the message does not exceed the limits on names and causes. Each of these may have two bytes on the
/// wire, and takes many times as much memory when decoded.
fn is_within_limits(message: &Bytes) -> bool {
    let (rope, whole) = (Rope::new([message.clone()]), 0..message.len());
    let counted = |path: &[u32], most| count(Walk::over(&rope, whole.clone()), path, most).is_some();
    counted(&ADDS, MAX_ADDS) && counted(&CAUSES, MAX_CAUSES)
}

/// Returns `most` less the number of fields at `path`. `None` if there are more, or the message is invalid.
pub(super) fn count(mut walk: Walk<'_>, path: &[u32], mut most: usize) -> Option<usize> {
    let (wanted, below) = path.split_first()?;
    while let Some((number, value)) = walk.next().ok()? {
        match value {
            Value::Bytes(_) if number == *wanted && below.is_empty() => most = most.checked_sub(1)?,
            Value::Bytes(place) if number == *wanted => most = count(walk.inside(place), below, most)?,
            _ => {}
        }
    }
    Some(most)
}

/// Returns the task and the attempt that a message answers, from its first bytes. `None` if it is another message, or
/// the bytes end too early.
pub fn answered(mut beginning: &[u8]) -> Option<(u64, u32)> {
    if decode_key(&mut beginning).ok()? != (ANSWER, WireType::LengthDelimited) {
        return None;
    }
    decode_varint(&mut beginning).ok()?;
    let (mut task, mut attempt) = (0, 0);
    loop {
        match decode_key(&mut beginning).ok()? {
            (1, WireType::Varint) => task = decode_varint(&mut beginning).ok()?,
            (2, WireType::Varint) => attempt = u32::try_from(decode_varint(&mut beginning).ok()?).ok()?,
            _ => return Some((task, attempt)),
        }
    }
}

/// Returns true if the bytes decode as an AdmissionReview, so that every protobuf parser can read them.
pub fn is_review(review: Bytes) -> bool {
    AdmissionReview::decode(review).is_ok()
}

/// The part of a task message before its review.
#[derive(Clone, Copy, Debug)]
pub struct TaskHead<'a> {
    /// Number of the task.
    pub task: u64,
    /// Number of the attempt.
    pub attempt: u32,
    /// Time left for the answer.
    pub left: Duration,
    /// Length of the review, an AdmissionReview in protobuf, in bytes.
    pub review: usize,
    /// Labels of the namespace.
    pub namespace_labels: &'a [(Box<str>, Box<str>)],
}

impl TaskHead<'_> {
    /// Encodes the message with its frame header, up to the bytes of the review, which must follow.
    pub fn framed(&self) -> Bytes {
        let beside = InitializerTask {
            task: self.task,
            attempt: self.attempt,
            milliseconds: milliseconds(self.left),
            review: None,
            namespace_labels: self.namespace_labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        let review = key_len(REVIEW) + encoded_len_varint(self.review as u64) + self.review;
        let task = beside.encoded_len() + review;
        let message = key_len(TASK) + encoded_len_varint(task as u64) + task;
        let mut head = BytesMut::with_capacity(FRAME_HEAD + message - self.review);
        head.put_u8(0);
        // The length of a received review is limited to far less than 4 GiB.
        head.put_u32(u32::try_from(message).unwrap_or(u32::MAX));
        encode_key(TASK, WireType::LengthDelimited, &mut head);
        encode_varint(task as u64, &mut head);
        beside.encode_raw(&mut head);
        encode_key(REVIEW, WireType::LengthDelimited, &mut head);
        encode_varint(self.review as u64, &mut head);
        head.freeze()
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Encodes the message that a claim is accepted: with the maximum time between messages of the instance before its
/// claim expires, and the maximum number of concurrent tasks. Includes the frame header, as [`cancel`] and [`draining`].
pub fn attached(lease: Duration, window: u32) -> Bytes {
    frame(To::Attached(Attached { lease_milliseconds: milliseconds(lease), window }))
}

/// Encodes the message that the caller of this task has gone.
pub fn cancel(task: u64) -> Bytes {
    frame(To::Cancel(Cancel { task }))
}

/// Encodes the message that the process is shutting down.
pub fn draining() -> Bytes {
    frame(To::Draining(Draining {}))
}

fn frame(message: To) -> Bytes {
    framed(&SidecarMessage { message: Some(message) })
}

/// Maximum number of a user's groups, of keys in its `extra`, and of values in its `extra`.
const MAX_USER_ITEMS: usize = 4096;
/// Maximum number of names in `pending`.
const MAX_PENDING_NAMES: usize = 1024;

/// Paths of fields by their numbers: in `ReadPolicyRequest` the groups and the `extra` keys and values of `user`; in
/// `StoredObjectEvent` `pending`, the causes of `result`, and `uid`.
const USER: [&[u32]; 3] = [&[2, 3], &[2, 4], &[2, 4, 2, 1]];
const PENDING: [u32; 2] = [1, 7];
const RESULT_CAUSES: [u32; 4] = [1, 8, 5, 4];
const UID: [u32; 2] = [1, 5];

/// Returns the last string at `path`.
fn text_at(mut walk: Walk<'_>, path: &[u32]) -> Option<String> {
    let (wanted, below) = path.split_first()?;
    let mut found = None;
    while let Some((number, value)) = walk.next().ok()? {
        match value {
            Value::Bytes(place) if number == *wanted && below.is_empty() => {
                found = Some(walk.text(place).ok()?.to_string());
            }
            Value::Bytes(place) if number == *wanted => found = text_at(walk.inside(place), below).or(found),
            _ => {}
        }
    }
    found
}

/// Returns the number of fields at `path`; `None` if the message is invalid. A field may have two bytes on the wire and
/// takes many times as much memory when decoded.
fn count_at(message: &Rope, path: &[u32]) -> Option<usize> {
    Some(usize::MAX - count(Walk::over(message, 0..message.len()), path, usize::MAX)?)
}

/// Decodes the message of a `ReadPolicy`, without its frame header. `None` if it is invalid, or its user is too large.
pub fn read_policy(message: Bytes) -> Option<ReadPolicyRequest> {
    let rope = Rope::new([message.clone()]);
    for path in USER {
        count_at(&rope, path).filter(|count| *count <= MAX_USER_ITEMS)?;
    }
    ReadPolicyRequest::decode(message).ok()
}

/// Decodes the message of another call; `None` if it is invalid.
pub fn decode<M: Message + Default>(message: Bytes) -> Option<M> {
    M::decode(message).ok()
}

/// Decodes one message of a `Follow`; `None` if it is invalid.
pub fn event(message: Bytes) -> Option<StoredObjectReport> {
    let rope = Rope::new([message.clone()]);
    let (names, causes) = (count_at(&rope, &PENDING)?, count_at(&rope, &RESULT_CAUSES)?);
    let uid = || text_at(Walk::over(&rope, 0..rope.len()), &UID);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{
        gatepost::v1::{Done, InitializerAnswer, initializer_answer::Outcome, initializer_message::Message as From},
        k8s::io::{
            api::{admission::v1::AdmissionRequest, authentication::v1::UserInfo},
            apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
        },
    };

    fn answer(task: u64, attempt: u32, outcome: Outcome) -> Bytes {
        let answer = InitializerAnswer { task, attempt, outcome: Some(outcome) };
        InitializerMessage { message: Some(From::Answer(answer)) }.encode_to_vec().into()
    }

    fn adding(names: usize) -> Outcome {
        Outcome::Done(Done { patch: Bytes::new(), add: vec!["a".into(); names] })
    }

    fn failing(causes: usize) -> Outcome {
        let details = StatusDetails { causes: vec![StatusCause::default(); causes], ..Default::default() };
        Outcome::Fail(Status { details: Some(details), ..Default::default() })
    }

    #[test]
    fn an_answer_names_no_more_than_is_taken() {
        for (outcome, is_read) in [
            (adding(MAX_ADDS), true),
            (adding(MAX_ADDS + 1), false),
            (failing(MAX_CAUSES), true),
            (failing(MAX_CAUSES + 1), false),
        ] {
            let message = answer(7, 1, outcome);
            assert_eq!(read(message.clone()).is_some(), is_read);
            // In two halves, which a reader joins.
            let twice: Bytes = [&*message, &*message].concat().into();
            assert!(read(twice).is_none());
        }
        assert_eq!(read(Bytes::from_static(&[0xff, 0xff])), None);
    }

    #[test]
    fn the_first_bytes_of_an_answer_say_which_task_it_is_of() {
        let whole = answer(300, 2, adding(40));
        assert_eq!(answered(&whole), Some((300, 2)));
        assert_eq!(answered(&whole[..12]), Some((300, 2)));
        assert_eq!(answered(&whole[..4]), None);
        let heartbeat = InitializerMessage { message: Some(From::Heartbeat(Default::default())) }.encode_to_vec();
        assert_eq!((answered(&heartbeat), answered(&[0x1a; 64]), answered(&[])), (None, Some((0, 0)), None));
    }

    #[test]
    fn a_task_is_read_with_the_review_behind_its_head() {
        let user_info = Some(UserInfo { groups: vec!["dev".into()], ..UserInfo::default() });
        let request = Some(AdmissionRequest { uid: Some("u".into()), user_info, ..AdmissionRequest::default() });
        let review: Bytes = AdmissionReview { request, response: None }.encode_to_vec().into();
        assert!(is_review(review.clone()));
        let labels = [("team".into(), "red".into())];
        let left = Duration::from_millis(1500);
        let task = TaskHead { task: 300, attempt: 2, left, review: review.len(), namespace_labels: &labels };
        let framed = [&*task.framed(), &*review].concat();
        assert_eq!(&framed[1..FRAME_HEAD], u32::try_from(framed.len() - FRAME_HEAD).unwrap().to_be_bytes());
        let Some(To::Task(read)) = SidecarMessage::decode(&framed[FRAME_HEAD..]).unwrap().message else { panic!() };
        assert_eq!((read.task, read.attempt, read.milliseconds), (300, 2, 1500));
        assert_eq!((read.review, &*read.namespace_labels["team"]), (AdmissionReview::decode(review).ok(), "red"));
    }

    #[test]
    fn a_group_that_is_no_text_makes_no_review() {
        // request.userInfo.groups
        let review = Bytes::from_static(&[0x0a, 5, 0x42, 3, 0x1a, 1, 0xff]);
        assert!(!is_review(review));
        assert!(is_review(Bytes::from_static(&[0x0a, 5, 0x42, 3, 0x1a, 1, b'a'])));
    }
}

#[cfg(test)]
mod initialization_tests {
    use super::*;
    use crate::pb::{
        gatepost::v1::{StoredObject, stored_object_event::Event},
        k8s::io::{
            api::authentication::v1::UserInfo,
            apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails},
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
