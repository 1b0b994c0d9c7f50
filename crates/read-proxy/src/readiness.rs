//! Readiness: may clients be sent to this proxy?

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// May clients be sent here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyReadiness {
    /// Yes. An apiserver that is away later does not change that: another proxy would not reach it either.
    Ready,
    /// Not yet: the apiserver has answered no question of ours.
    Unanswered,
    /// Not any longer: the process is about to end.
    Draining,
}

impl fmt::Display for ProxyReadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ok",
            Self::Unanswered => "not ready: the apiserver has not answered a question about a user yet; see the log",
            Self::Draining => "not ready: shutting down",
        })
    }
}

/// The steps of a proxy's life.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    answered: AtomicBool,
    draining: AtomicBool,
}

impl Lifecycle {
    /// The apiserver has answered a question.
    pub(super) fn answered(&self) {
        self.answered.store(true, Relaxed);
    }

    /// The proxy is to end.
    pub(super) fn drains(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(super) fn readiness(&self) -> ProxyReadiness {
        match (self.draining.load(Relaxed), self.answered.load(Relaxed)) {
            (true, _) => ProxyReadiness::Draining,
            (false, true) => ProxyReadiness::Ready,
            (false, false) => ProxyReadiness::Unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_ready_between_the_first_answer_and_its_end() {
        let lifecycle = Lifecycle::default();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Unanswered);
        lifecycle.answered();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Ready);
        lifecycle.drains();
        lifecycle.answered();
        assert_eq!(lifecycle.readiness(), ProxyReadiness::Draining);
    }
}
