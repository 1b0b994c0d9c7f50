//! The labels of a request's namespace, as a caller may send them along.

use prost::Message;

use super::pb::gatepost::v1::NamespaceLabels;
use gatepost_api::Labels;

/// Decodes a protobuf `gatepost.v1.NamespaceLabels`; `None` when it is not one.
pub fn labels(bytes: &[u8]) -> Option<Labels> {
    Some(NamespaceLabels::decode(bytes).ok()?.labels.into_iter().collect())
}
