//! What operators see: metrics, the audit log. Nothing here ever makes a request wait.

pub mod audit;
mod cells;
mod exposition;
pub mod metrics;
pub mod table;
pub mod throttle;

pub use audit::Audit;
pub use exposition::CONTENT_TYPE;
pub use metrics::{HookMetrics, HookOutcome, Metrics, ReadOutcome, Reading, Refused, RequestOutcome};
