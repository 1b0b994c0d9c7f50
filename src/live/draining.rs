//! Draining: a hook on its way out.

use std::{sync::Arc, time::SystemTime};

/// A hook that is no longer in force, but still holds requests that began while it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Its name.
    pub hook: Arc<str>,
    /// Since when it is not asked anew.
    pub since: SystemTime,
}
