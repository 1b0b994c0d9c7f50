//! Decider: a party that has a say in requests, as outcomes and the verdict know it, however it is asked.

use crate::{
    live::LiveHook,
    model::{FailurePolicy, Protocol},
};

/// A party that has a say in a request.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    /// Name in denials, metrics and annotations.
    pub name: &'a str,
    /// Identity, unlike every other: `<configuration>/<name>/<n>`.
    pub id: &'a str,
    /// Failure policy: passed over, or the request is rejected.
    pub failure_policy: FailurePolicy,
    /// It may itself be a sidecar, whose audit annotations name hooks of its own (`<inner hook>/<key>`).
    pub chained: bool,
}

impl<'a> From<&'a LiveHook> for Decider<'a> {
    fn from(live: &'a LiveHook) -> Self {
        let hook = &live.hook;
        Self {
            name: &hook.name,
            id: &hook.id,
            failure_policy: hook.failure_policy,
            chained: *live.target.protocol() == Protocol::Grpc,
        }
    }
}

impl<'a> Decider<'a> {
    /// Name of the configuration that it stands in.
    pub fn configuration(&self) -> &'a str {
        let id = self.id.strip_prefix("manifest/").unwrap_or(self.id);
        id.split('/').next().unwrap_or_default()
    }
}
