//! RetiredEntry: a hook or an initializer's process that is no longer in force, or no longer where it was.

use std::sync::Arc;

use super::Rotation;
use crate::model::Endpoint;

/// A hook that is no longer in force, or no longer at that endpoint; or the name of an initializer that no process may
/// claim any more. Draining or Gone.
#[derive(Clone, Debug)]
pub struct RetiredEntry {
    /// Name as configured.
    pub name: Arc<str>,
    /// Identity of the hook; an initializer's is its name.
    pub id: Arc<str>,
    /// The name of the configuration that held the hook; empty for an initializer, which several may hold.
    pub configuration: Arc<str>,
    /// Endpoint at which the hook was asked; `None` for an initializer, whose process comes to us.
    pub endpoint: Option<Endpoint>,
    /// Draining or Gone.
    pub rotation: Rotation,
}

impl RetiredEntry {
    /// True while requests that began before may still ask it.
    pub fn drains(&self) -> bool {
        matches!(self.rotation, Rotation::Draining { .. })
    }

    /// Is it a hook?
    pub fn is_hook(&self) -> bool {
        self.endpoint.is_some()
    }
}
