//! Decodes and encodes the messages of `gatepost.v1.Initializers/Attach`.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len},
};

use super::pb::gatepost::v1::{
    Attached, Cancel, Draining, InitializerMessage, InitializerTask, SidecarMessage, initializer_answer::Outcome,
    initializer_message::Message as From, sidecar_message::Message as To,
};
use super::{
    answer::{self, MAX_CAUSES},
    inbound::FRAME_HEAD,
    outbound::framed,
    pb::k8s::io::api::admission::v1::AdmissionReview,
    walk::{Value, Walk},
};
use gatepost_api::{Rope, StatusInfo};

/// Maximum number of initializers that one answer may add.
const MAX_ADDS: usize = 64;

/// Field numbers: `InitializerMessage.answer`, and the paths of `answer.done.add` and `answer.fail.details.causes`.
const ANSWER: u32 = 3;
const ADDS: [u32; 3] = [ANSWER, 3, 2];
const CAUSES: [u32; 4] = [ANSWER, 4, 5, 4];
/// Field numbers of `SidecarMessage.task` and of `review` in it.
const TASK: u32 = 2;
const REVIEW: u32 = 4;

/// Message from an instance of an initializer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromInstance {
    /// Names the initializer that the instance acts for.
    Claim {
        /// Name of the initializer.
        name: String,
        /// Token; empty if none is given.
        token: String,
        /// Maximum number of concurrent tasks; 0 if not given.
        window: u32,
    },
    /// The instance is alive.
    Heartbeat,
    /// The instance accepts no more tasks.
    Leave,
    /// The instance has completed a task.
    Done {
        /// Number of the task.
        task: u64,
        /// Number of the attempt.
        attempt: u32,
        /// JSON Patch; empty if nothing changes.
        patch: Bytes,
        /// Initializers that must act after this one.
        adds: Vec<String>,
    },
    /// The instance rejects the object.
    Failed {
        /// Number of the task.
        task: u64,
        /// Number of the attempt.
        attempt: u32,
        /// Status for the creator of the object.
        status: Box<StatusInfo>,
    },
}

/// Decodes one message, without its frame header. `None` if it is invalid, or has too many names or causes.
pub fn read(message: Bytes) -> Option<FromInstance> {
    if !is_within_limits(&message) {
        return None;
    }
    Some(match InitializerMessage::decode(message).ok()?.message? {
        From::Claim(claim) => FromInstance::Claim { name: claim.name, token: claim.token, window: claim.window },
        From::Heartbeat(_) => FromInstance::Heartbeat,
        From::Leave(_) => FromInstance::Leave,
        From::Answer(ended) => {
            let (task, attempt) = (ended.task, ended.attempt);
            match ended.outcome? {
                Outcome::Done(done) => FromInstance::Done { task, attempt, patch: done.patch, adds: done.add },
                Outcome::Fail(status) => {
                    FromInstance::Failed { task, attempt, status: Box::new(answer::status(status)) }
                }
            }
        }
    })
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
    let (number, below) = path.split_first()?;
    while let Some(field) = walk.next().ok()? {
        match field.value {
            Value::Bytes(_) if field.number == *number && below.is_empty() => most = most.checked_sub(1)?,
            Value::Bytes(place) if field.number == *number => most = count(walk.inside(place), below, most)?,
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

/// Message to an instance other than a task.
#[derive(Clone, Copy, Debug)]
pub enum ToWire {
    /// The claim is accepted.
    Attached {
        /// Maximum time between messages of the instance before its claim expires.
        lease: Duration,
        /// Maximum number of concurrent tasks.
        window: u32,
    },
    /// The caller of the task has gone.
    Cancel {
        /// Number of the task.
        task: u64,
    },
    /// The process is shutting down.
    Draining,
}

impl ToWire {
    /// Encodes the message with its frame header.
    pub fn framed(&self) -> Bytes {
        let message = match *self {
            Self::Attached { lease, window } => {
                To::Attached(Attached { lease_milliseconds: milliseconds(lease), window })
            }
            Self::Cancel { task } => To::Cancel(Cancel { task }),
            Self::Draining => To::Draining(Draining {}),
        };
        framed(&SidecarMessage { message: Some(message) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{
        gatepost::v1::{Done, InitializerAnswer},
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
