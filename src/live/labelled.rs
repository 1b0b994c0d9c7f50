//! LabelledObjectRole: Gatepost's role for objects that a stock apiserver stores unfinished, marked by a label.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

/// Gatepost's role for objects that are stored unfinished and marked by a label.
#[derive(Debug, Default)]
pub struct LabelledObjectRole {
    account: Mutex<Option<Arc<str>>>,
    awaited_until: Mutex<Option<Instant>>,
    leads: AtomicBool,
    unfinished: AtomicUsize,
}

impl LabelledObjectRole {
    /// Returns Gatepost's username at the apiserver, if known. Changes of such an object by this user are the work of
    /// initializers, or follow from their failure policies.
    pub fn account(&self) -> Option<Arc<str>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the username that the apiserver returned for Gatepost.
    pub fn set_account(&self, name: &str) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
    }

    /// Announces that the account will be known by `until`. While it is unknown, Gatepost cannot recognize its own
    /// writes.
    pub fn await_account(&self, until: Instant) {
        *self.awaited_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns true if the account is announced but not known yet.
    pub fn awaits_account(&self, now: Instant) -> bool {
        let until = *self.awaited_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until) && self.account().is_none()
    }

    /// Returns true if this replica works on such objects.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// Sets whether this replica works on such objects.
    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Returns the number of such objects that this replica knows.
    pub fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// Sets the number of known objects.
    pub fn set_unfinished(&self, objects: usize) {
        self.unfinished.store(objects, Ordering::Relaxed);
    }
}
