//! What operators see: metrics, the audit log. Nothing here ever makes a request wait.

pub mod audit;
pub mod metrics;

pub use audit::Audit;
pub use metrics::{HookMetrics, HookOutcome, Metrics, RequestOutcome};
