//! Resources: resources that the connections to all hooks share.

use std::sync::Arc;

use super::{connection_budget::ConnectionBudget, resolve::Resolver, services::ServiceAddresses};
use crate::memory::MemoryBudget;

/// Resources shared by the connections to all hooks.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Room of answers.
    pub memory: Arc<MemoryBudget>,
    /// Budget of connections.
    pub connections: Arc<ConnectionBudget>,
    pub(super) resolver: Arc<Resolver>,
}

impl Resources {
    /// These, and a resolver.
    pub fn new(memory: Arc<MemoryBudget>, connections: Arc<ConnectionBudget>) -> Self {
        Self { memory, connections, resolver: Arc::default() }
    }

    /// These, with names of Services resolved to their endpoints where these are known.
    #[must_use]
    pub fn knowing(self, services: Arc<ServiceAddresses>) -> Self {
        Self { resolver: Arc::new(Resolver::default().knowing(services)), ..self }
    }

    /// Without a limit for all: for those who ask a few hooks and no others.
    pub fn unlimited() -> Self {
        Self::new(MemoryBudget::unlimited(), ConnectionBudget::new(usize::MAX))
    }
}
