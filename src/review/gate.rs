//! Gate: everything that decisions need and that outlives one request.

use std::{sync::Arc, time::Duration};

use super::ahead::Speculation;
use crate::{
    live::{Authorizer, BreakGlasses, ConfigurationStatus, Current, Discovery, Namespaces},
    memory::MemoryBudget,
    telemetry::{Audit, Metrics},
};

/// Reasons that a rejection gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// The first denial or closed failure answers at once and cancels the calls still running.
    #[default]
    First,
    /// The first one, and those of the hooks that answer within so long after it, so that their warnings are kept.
    Within(Duration),
    /// Every hook is waited for and every reason reported.
    All,
}

/// Everything `decide` needs that outlives one request.
#[derive(Debug)]
pub struct Gate {
    /// Generation in force.
    pub current: Arc<Current>,
    /// What was read and is not in force, for messages.
    pub status: Arc<ConfigurationStatus>,
    /// Open break-glass.
    pub break_glass: Arc<BreakGlasses>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Reasons that a rejection gives.
    pub reasons: Reasons,
    /// Are the patches of mutating hooks put into audit annotations, as kube-apiserver does at the level Request?
    pub patch_annotations: bool,
    /// Default mode of asking mutating hooks.
    pub speculation: Speculation,
    /// Memory budget that patched objects are reserved in.
    pub memory: Arc<MemoryBudget>,
    /// The cluster's namespaces, where they are followed.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Resources and versions that the cluster serves.
    pub discovery: Option<Arc<Discovery>>,
    /// The authorizer of the cluster, for conditions that ask it.
    pub authorizer: Option<Arc<Authorizer>>,
}
