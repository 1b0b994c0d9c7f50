//! Target: terms of calling a hook, all from one configuration.

use std::{sync::Arc, time::Duration};

use crate::{
    hooks::{Channel, PatchRates},
    model::{Endpoint, Hook, HookType, Protocol, SideEffects},
};

/// Terms of calling a hook: one entry's endpoint (TLS included), path, form and version, side effects and timeout, and
/// the channel to that endpoint. While a hook moves this is its former entry's, whole: rules, selectors and failure
/// policy, which say whether it is called and what a failure means, are [`LiveHook::hook`](super::LiveHook)'s.
#[derive(Clone, Debug)]
pub struct CallTarget {
    entry: Arc<Hook>,
    channel: Arc<Channel>,
    patch_rates: Option<Arc<PatchRates>>,
}

impl CallTarget {
    /// The entry's own endpoint, by this channel to it.
    pub fn new(entry: Arc<Hook>, channel: Arc<Channel>) -> Self {
        debug_assert_eq!(entry.endpoint, *channel.endpoint(), "a target is of one configuration");
        let path = match &entry.protocol {
            Protocol::Grpc => Arc::default(),
            Protocol::Http { path, .. } => Arc::clone(path),
        };
        let patch_rates = (entry.hook_type == HookType::Mutating).then(|| channel.patch_rates(&path));
        Self { entry, channel, patch_rates }
    }

    /// The entry by which the hook is called.
    pub fn entry(&self) -> &Arc<Hook> {
        &self.entry
    }

    /// The connections that calls take.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Endpoint of the calls.
    pub fn endpoint(&self) -> &Endpoint {
        self.channel.endpoint()
    }

    /// Protocol of the calls, with the path.
    pub fn protocol(&self) -> &Protocol {
        &self.entry.protocol
    }

    /// Patch rates of the hook at that endpoint, where it is a mutating one.
    pub fn patch_rates(&self) -> Option<&PatchRates> {
        self.patch_rates.as_deref()
    }

    /// The longest one call may take.
    pub fn timeout(&self) -> Duration {
        self.entry.timeout
    }

    /// Side effects of the hook at that endpoint.
    pub fn side_effects(&self) -> SideEffects {
        self.entry.side_effects
    }
}
