//! The program around it: settings, then build, run, drain.

pub mod build;
mod certificates;
pub mod listeners;
pub mod run;
pub mod settings;

pub use build::{Sidecar, StartError};
pub use run::{Addresses, Drained, Running};
pub use settings::Settings;
