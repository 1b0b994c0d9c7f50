//! Messages of `gatepost.v1.Initializers/Attach`, read and written.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use super::pb::gatepost::v1::{
    Attached, Cancel, Draining, InitializerMessage, InitializerTask, SidecarMessage, initializer_answer::Outcome,
    initializer_message::Message as From, sidecar_message::Message as To,
};
use super::{answer, outbound::framed, pb::k8s::io::api::admission::v1::AdmissionReview};
use crate::model::StatusInfo;

/// The most names that one answer may add.
const MOST_ADDS: usize = 64;

/// Message from an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromInstance {
    /// For which initializer it acts.
    Claim {
        /// The initializer's name.
        name: String,
        /// A token, or "".
        token: String,
        /// Tasks it takes at once; 0 where it does not say.
        window: u32,
    },
    /// It is alive.
    Heartbeat,
    /// It wants no more tasks.
    Leave,
    /// It has done its part.
    Done {
        /// The task.
        task: u64,
        /// The attempt.
        attempt: u32,
        /// A JSON Patch; empty changes nothing.
        patch: Bytes,
        /// Initializers that must act behind it.
        adds: Vec<String>,
    },
    /// The object is not to be created.
    Failed {
        /// The task.
        task: u64,
        /// The attempt.
        attempt: u32,
        /// Status for the creator of the object.
        status: Box<StatusInfo>,
    },
}

/// Reads one message, without its frame head; `None` where it is none.
pub fn read(message: Bytes) -> Option<FromInstance> {
    Some(match InitializerMessage::decode(message).ok()?.message? {
        From::Claim(claim) => FromInstance::Claim { name: claim.name, token: claim.token, window: claim.window },
        From::Heartbeat(_) => FromInstance::Heartbeat,
        From::Leave(_) => FromInstance::Leave,
        From::Answer(ended) => {
            let (task, attempt) = (ended.task, ended.attempt);
            match ended.outcome? {
                Outcome::Done(done) if done.add.len() > MOST_ADDS => return None,
                Outcome::Done(done) => FromInstance::Done { task, attempt, patch: done.patch, adds: done.add },
                Outcome::Fail(status) => {
                    FromInstance::Failed { task, attempt, status: Box::new(answer::status(status)) }
                }
            }
        }
    })
}

/// Message to an instance.
#[derive(Clone, Copy, Debug)]
pub enum ToWire<'a> {
    /// Its claim is good.
    Attached {
        /// Longest silence before it lapses.
        lease: Duration,
        /// Tasks it gets at once.
        window: u32,
    },
    /// One new object.
    Task {
        /// The task.
        task: u64,
        /// The attempt.
        attempt: u32,
        /// Time left for the answer.
        left: Duration,
        /// An AdmissionReview in protobuf.
        review: &'a Bytes,
        /// Labels of the namespace.
        namespace_labels: &'a [(Box<str>, Box<str>)],
    },
    /// The task's caller has gone.
    Cancel {
        /// The task.
        task: u64,
    },
    /// The process is about to end.
    Draining,
}

impl ToWire<'_> {
    /// The message with its frame head.
    pub fn framed(&self) -> Bytes {
        let milliseconds = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let message = match *self {
            Self::Attached { lease, window } => {
                To::Attached(Attached { lease_milliseconds: milliseconds(lease), window })
            }
            Self::Task { task, attempt, left, review, namespace_labels } => To::Task(InitializerTask {
                task,
                attempt,
                milliseconds: milliseconds(left),
                // It was written by us.
                review: AdmissionReview::decode(review.clone()).ok(),
                namespace_labels: namespace_labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            }),
            Self::Cancel { task } => To::Cancel(Cancel { task }),
            Self::Draining => To::Draining(Draining {}),
        };
        framed(&SidecarMessage { message: Some(message) })
    }
}
