//! Telemetry: metrics, the audit log and the log. None of it makes a request wait.
//!
//! Calls of hooks are recorded by `review::record` in [`HookMetrics`], requests and everything else in [`Metrics`].
//! `table` has the names of all metrics, `exposition` renders them, and `front::admin` serves them at `/metrics`.

pub mod audit;
mod exposition;
mod hook;
mod initializer;
mod line_writer;
pub mod log;
mod metrics;
mod outcome;
mod policy;
pub mod reading;
mod recent;
mod shadow;
pub mod table;

pub use audit::Audit;
pub use exposition::{CONTENT_TYPE, render_read_proxy};
pub use gatepost_base::throttle::Throttle;
pub use hook::{DroppedAnnotation, HookMetrics, HookOutcome, RejectionCause, Repeat, UnmetConditions};
pub use initializer::{Attendance, DroppedReport, InitializerMetrics, InitializerOutcome};
pub use metrics::{BypassMetrics, Metrics};
pub use outcome::{AccessReviewOutcome, ReadOutcome, RefusalReason, RequestOutcome, TlsReload};
pub use policy::{PolicyMetrics, PolicyOutcome};
pub use reading::{Reading, UnreadableObjects};
pub use recent::{LastFailure, RecentCallFailures, RecentDiscards, Recovery, SAMPLE_INTERVAL};
pub use shadow::{KeptRequest, ShadowDrop, ShadowMetrics, ShadowOutcome};
