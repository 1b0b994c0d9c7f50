//! RetiredHook: a hook that is no longer in force, or no longer where it was.

use std::sync::Arc;

use super::Rotation;
use crate::model::{Endpoint, Hook};

/// A hook that is no longer in force, or no longer at that endpoint: Draining or Gone.
#[derive(Clone, Debug)]
pub struct RetiredHook {
    /// Entry as configured.
    pub hook: Arc<Hook>,
    /// The name of the configuration that held it.
    pub configuration: Arc<str>,
    /// Endpoint at which it was asked.
    pub endpoint: Endpoint,
    /// Draining or Gone.
    pub rotation: Rotation,
}

impl RetiredHook {
    /// True while requests that began before may still ask it.
    pub fn drains(&self) -> bool {
        matches!(self.rotation, Rotation::Draining { .. })
    }
}
