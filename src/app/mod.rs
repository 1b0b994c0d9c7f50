//! The program around it: settings, then build, run, drain.

pub mod build;
mod certificates;
mod control;
pub mod descriptors;
mod first;
pub mod listeners;
pub mod priority;
mod process;
mod proxy_admin;
mod run;
mod running;
mod sampling;
mod saving;
pub mod settings;
pub mod signals;
mod sizing;
mod unwaited;

pub use build::{Sidecar, StartError};
pub use proxy_admin::ProxyAdmin;
pub use running::{Addresses, DrainResult, Running};
pub use settings::Settings;
pub(crate) use unwaited::UnwaitedRuntime;
