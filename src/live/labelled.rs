//! Labelled: what is known of the objects that are stored unfinished by their label, besides what they say themselves.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

/// Gatepost's own part in such objects.
#[derive(Debug, Default)]
pub struct Labelled {
    account: Mutex<Option<Arc<str>>>,
    awaited_until: Mutex<Option<Instant>>,
    leads: AtomicBool,
    unfinished: AtomicUsize,
}

impl Labelled {
    /// Name by which the apiserver knows Gatepost, where that is known: whatever that user changes of such an object is the
    /// work of initializers, or what their failure policies say.
    pub fn account(&self) -> Option<Arc<str>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The apiserver's answer to who we are.
    pub fn set_account(&self, name: &str) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
    }

    /// The account will be known soon. Until then a review of what Gatepost itself writes cannot be decided well.
    pub fn await_account(&self, until: Instant) {
        *self.awaited_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Is the account not known, and about to be?
    pub fn awaits_account(&self, now: Instant) -> bool {
        let until = *self.awaited_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until) && self.account().is_none()
    }

    /// Is this the replica that works on such objects?
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// It is from now on, or is not.
    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Relaxed);
    }

    /// Number of such objects that this replica knows.
    pub fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// So many are known.
    pub fn set_unfinished(&self, objects: usize) {
        self.unfinished.store(objects, Ordering::Relaxed);
    }
}
