//! Readiness: may callers be sent here? One answer for `/readyz` and for the gRPC health service.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Instant,
};

use crate::{
    admit::Gate,
    live::{Current, Namespaces},
    telemetry::{Audit, Reading},
};

/// May callers be sent here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Yes.
    Ready,
    /// Not yet: the configuration has never been read.
    NeverRead,
    /// Not any longer: the process is about to end.
    Draining,
}

impl Readiness {
    /// What holds now. A configuration that has gone stale does not make us unready: being sent elsewhere would not
    /// help the caller, and the refusals say what is wrong.
    pub fn of(current: &Current) -> Self {
        if current.is_draining() {
            Self::Draining
        } else if current.age(Instant::now()).is_none() {
            Self::NeverRead
        } else {
            Self::Ready
        }
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ok",
            Self::NeverRead => "not ready: the configuration has not been read yet",
            Self::Draining => "not ready: shutting down",
        })
    }
}

/// Tells the metrics where to read what the gate knows. Weakly: counters must not keep a configuration in force.
pub(super) fn observe(gate: &Gate) {
    fn reading<T: Send + Sync + 'static>(
        of: &Arc<T>,
        read: impl Fn(&T) -> Option<f64> + Send + Sync + 'static,
    ) -> impl Fn() -> Option<f64> + Send + Sync + 'static {
        let of: Weak<T> = Arc::downgrade(of);
        move || of.upgrade().and_then(|of| read(&of))
    }
    let (metrics, current) = (&gate.metrics, &gate.current);
    let age = |current: &Current| current.age(Instant::now()).map(|age| age.as_secs_f64());
    metrics.observe(Reading::ConfigAge, reading(current, age));
    metrics.observe(Reading::ConfigGeneration, reading(current, |current| Some(current.load().number as f64)));
    metrics.observe(
        Reading::ConfigRejected,
        reading(current, |current| Some(f64::from(u8::from(current.rejected().is_some())))),
    );
    let open = |current: &Current| Some(current.break_glass().open(Instant::now()).len() as f64);
    metrics.observe(Reading::BreakGlassOpen, reading(current, open));
    if let Some(namespaces) = &gate.namespaces {
        let age = |known: &Namespaces| known.age(Instant::now()).map(|age| age.as_secs_f64());
        metrics.observe(Reading::NamespacesAge, reading(namespaces, age));
        metrics.observe(Reading::Namespaces, reading(namespaces, |known| Some(known.len() as f64)));
    }
    metrics.observe(Reading::AuditLost, reading(&gate.audit, |audit: &Audit| Some(audit.lost() as f64)));
}
