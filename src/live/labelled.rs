//! Labelled: what is known of the objects that are stored unfinished by their label, besides what they say themselves.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Gatepost's own part in such objects.
#[derive(Debug, Default)]
pub struct Labelled {
    account: Mutex<Option<Arc<str>>>,
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
