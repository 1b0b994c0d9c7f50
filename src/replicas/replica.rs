//! Replica: this sidecar's name among its like, and how telling others of it goes.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use super::Report;
use crate::live::Current;

/// This sidecar's name among its like, and how telling others of it goes.
#[derive(Debug)]
pub struct Replica {
    name: String,
    telling: Mutex<Telling>,
}

/// How telling others goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    /// Where; `None` where nobody is told, but whoever asks at the admin address.
    pub place: Option<String>,
    /// When that last succeeded.
    pub told: Option<SystemTime>,
    /// Why it does not succeed now.
    pub failure: Option<String>,
}

impl Replica {
    /// One of this name, that tells nobody yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), telling: Mutex::default() }
    }

    /// The name of this machine, by which a replica goes where nothing else is said.
    pub fn host() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What there is to tell now, of at most so many hooks.
    pub fn report(&self, current: &Current, most_hooks: usize) -> Report {
        Report::of(current, &self.name, (Instant::now(), SystemTime::now()), most_hooks)
    }

    /// How telling others goes.
    pub fn telling(&self) -> Telling {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Telling> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
