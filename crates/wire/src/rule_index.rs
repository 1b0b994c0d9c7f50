//! Decodes the messages of `gatepost.v1.RuleIndex`.

use bytes::Bytes;
use prost::Message as _;

use super::pb::gatepost::v1::IndexPoll;

/// Decodes one message of a plugin, without its frame header; `None` if it is invalid.
pub fn poll(message: Bytes) -> Option<IndexPoll> {
    IndexPoll::decode(message).ok()
}
