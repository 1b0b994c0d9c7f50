//! Messages of `gatepost.v1.Initialization`, read; and a Status as its answers have it.

use bytes::Bytes;
use prost::Message as _;

use super::pb::gatepost::v1::{HoldRequest, QuotaPhaseRequest, ReadPolicyRequest, StoredObjectEvent};
use super::{answer, outbound, pb::k8s::io::apimachinery::pkg::apis::meta::v1::Status};
use crate::model::StatusInfo;

/// Reads the message of a `ReadPolicy`, without its frame head; `None` where it is none.
pub fn read_policy(message: Bytes) -> Option<ReadPolicyRequest> {
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

/// Reads one message of a `Follow`.
pub fn event(message: Bytes) -> Option<StoredObjectEvent> {
    StoredObjectEvent::decode(message).ok()
}

/// A Status that was read.
pub fn status_info(status: Status) -> StatusInfo {
    answer::status(status)
}

/// A Status that is written.
pub fn status(info: &StatusInfo) -> Status {
    outbound::status(info)
}
