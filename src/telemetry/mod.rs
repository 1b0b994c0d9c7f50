//! Telemetry: metrics, the audit log and the log. None of it makes a request wait.

pub mod audit;
mod exposition;
mod hook;
mod initializer;
mod line_writer;
pub mod log;
mod metrics;
mod outcome;
pub mod reading;
mod recent;
pub mod table;

pub use self::hook::RejectionCause;
pub use self::metrics::BypassMetrics;
pub use audit::Audit;
pub use exposition::{CONTENT_TYPE, render_read_proxy};
pub use gatepost_base::throttle::Throttle;
pub use hook::{DroppedAnnotation, HookMetrics, HookOutcome, Repeat, UnmetConditions};
pub use initializer::{Attendance, DroppedReport, InitializerMetrics, InitializerOutcome};
pub use metrics::Metrics;
pub use outcome::{AccessReviewOutcome, ReadOutcome, Refused, RequestOutcome, TlsReload};
pub use reading::Reading;
pub use reading::UnreadableObjects;
pub use recent::{LastFailure, RecentCallFailures, RecentDiscards, Recovery, SAMPLE_INTERVAL};
