//! What operators see: metrics, the audit log. Nothing here ever makes a request wait.

pub mod audit;
mod bypass;
mod cells;
mod exposition;
pub mod metrics;
pub mod table;
pub mod throttle;

pub use audit::Audit;
pub use bypass::BypassMetrics;
pub use exposition::CONTENT_TYPE;
pub use metrics::{HookMetrics, HookOutcome, Metrics, ReadOutcome, Reading, Refused, RequestOutcome};
